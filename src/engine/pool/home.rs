//! Where keys stay that stay with one endpoint: nothing is remembered, each key has an order of its own among the endpoints.

use std::f64::consts::LN_2;

use super::plan::{EndpointId, PoolPlan};
use super::route::Route;
use super::{Endpoint, Pool, Standing};
use crate::engine::answer::KeyId;
use crate::engine::cost::Costs;
use crate::engine::scheduler::Scheduler;
use crate::engine::time::Instant;

/// What any two runs of a program know a key or an endpoint by, whatever built them and wherever they run: it follows from
/// bytes alone, by FNV-1a with 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(u64);

impl Mark {
    /// Of no bytes.
    pub(crate) const NONE: Self = Self(0xcbf2_9ce4_8422_2325);

    /// The same with more bytes behind.
    #[must_use]
    pub(crate) fn and(self, bytes: &[u8]) -> Self {
        const PRIME: u64 = 0x0100_0000_01b3;
        Self(bytes.iter().fold(self.0, |mark, byte| (mark ^ u64::from(*byte)).wrapping_mul(PRIME)))
    }

    pub(crate) const fn get(self) -> u64 {
        self.0
    }
}

impl Pool {
    /// The one that a key stays with: of those that may and can be used the first in the key's own order, so that when one
    /// goes or comes only its own keys move.
    pub(super) fn home(
        &self,
        plan: &PoolPlan,
        now: Instant,
        (route, costs): (&Route, Costs<'_>),
        mark: u64,
    ) -> Option<EndpointId> {
        let healthy = |(id, endpoint): &(EndpointId, &Endpoint)| {
            let plan_of = &plan.endpoints[usize::from(id.0)];
            route.allows(*id)
                && (!route.was_at(*id) || route.again == Some(*id))
                && plan_of.must_fit(costs).is_ok()
                // Those who belong to one that is tried again are who tries it.
                && matches!(endpoint.standing(plan_of, &plan.breaker, now), Standing::Usable { .. })
        };
        let far = |(id, _): (EndpointId, &Endpoint)| {
            let plan_of = &plan.endpoints[usize::from(id.0)];
            (distance(mark, plan_of.mark, plan_of.weight), plan_of.mark, id)
        };
        let all = EndpointId::all().zip(&self.endpoints).filter(healthy).map(far);
        all.min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))).map(|(.., id)| id)
    }
}

impl<W> Scheduler<W> {
    /// Tells what a key is known by where keys stay with an endpoint, so that it stays with the same one in every run. Of
    /// a key of which it is not told it is its tag. A stale key is none.
    pub fn set_mark(&mut self, key: KeyId, mark: u64) {
        if let Some(record) = self.keys.get_mut(key.index, key.generation) {
            record.extras.set_mark(mark);
        }
    }
}

/// How far an endpoint is from a key: of several the nearest is each one as often as its weight says.
///
/// The time until something happens that happens `weight` times as often as something else: which of them happens first
/// goes by the weights, whatever else is in the race.
fn distance(key: u64, endpoint: u64, weight: u32) -> f64 {
    const BITS: u32 = 53;
    let drawn = mixed(key ^ mixed(endpoint)) % (1 << BITS) + 1;
    // Of a number from 1 to 2: the library's logarithm may differ in its last bits from one target to another.
    let power = drawn.ilog2();
    let rest = drawn as f64 / (1_u64 << power) as f64;
    (f64::from(BITS - power) * LN_2 - ln(rest)) / f64::from(weight.max(1))
}

/// The natural logarithm of a number from 1 to 2, by operations that are rounded the same way everywhere.
fn ln(number: f64) -> f64 {
    // 2 artanh((x - 1) / (x + 1)): in each term a ninth at most is left of the one before.
    let part = (number - 1.0) / (number + 1.0);
    let square = part * part;
    let sum = (0..18).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    2.0 * part * sum
}

/// The finaliser of splitmix64.
const fn mixed(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(bytes: &[u8]) -> u64 {
        Mark::NONE.and(bytes).get()
    }

    /// So many of 100,000 keys are nearest to each of the endpoints.
    fn shares(weights: &[(&str, u32)]) -> Vec<u32> {
        let mut shares = vec![0; weights.len()];
        for key in 0..100_000_u64 {
            let far = |(name, weight): &(&str, u32)| distance(mark(&key.to_le_bytes()), mark(name.as_bytes()), *weight);
            let nearest = (0..weights.len()).min_by(|one, other| far(&weights[*one]).total_cmp(&far(&weights[*other])));
            shares[nearest.expect("there is one")] += 1;
        }
        shares
    }

    /// A hash divided by the weight gave one of weight 1 beside one of weight 3 a sixth of the keys.
    #[test]
    fn keys_are_shared_by_weight() {
        for (weights, expected) in [
            (&[("a", 1), ("b", 3)][..], &[25_000, 75_000][..]),
            (&[("a", 1), ("b", 1), ("c", 1)], &[33_333, 33_333, 33_333]),
            (&[("a", 1), ("b", 2), ("c", 5)], &[12_500, 25_000, 62_500]),
        ] {
            let shares = shares(weights);
            let near = |(share, expected): (&u32, &u32)| share.abs_diff(*expected) <= 500;
            assert!(shares.iter().zip(expected).all(near), "{shares:?} for {weights:?}");
        }
    }

    /// The standard library's hashes and logarithms may be others with its next release.
    #[test]
    fn what_bytes_are_known_by_is_the_same_everywhere() {
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(mark(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(mark(b"foobar"), Mark::NONE.and(b"foo").and(b"bar").get());
    }

    #[test]
    fn logarithms_are_near_enough() {
        for step in 0..=1_000 {
            let number = 1.0 + f64::from(step) / 1_000.0;
            assert!((ln(number) - number.ln()).abs() < 1e-15, "{number}");
        }
    }
}
