//! Where keys stay that stay with one endpoint: nothing is remembered, each key has an order of its own among the endpoints.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::plan::{EndpointId, PoolPlan};
use super::route::Route;
use super::{Endpoint, Pool, Standing};
use crate::engine::answer::KeyId;
use crate::engine::cost::Costs;
use crate::engine::scheduler::Scheduler;
use crate::engine::time::Instant;

/// What two runs of a program know a key or an endpoint by: it follows from the value alone.
pub(crate) fn mark(of: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
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
            record.sides.set_mark(mark);
        }
    }
}

/// How far an endpoint is from a key: of several the nearest is each one as often as its weight says.
///
/// The time until something happens that happens `weight` times as often as something else: which of them happens first
/// goes by the weights, whatever else is in the race.
fn distance(key: u64, endpoint: u64, weight: u32) -> f64 {
    const STEPS: u64 = 1 << 53;
    let drawn = mixed(key ^ mixed(endpoint)) % STEPS + 1;
    -(drawn as f64 / STEPS as f64).ln() / f64::from(weight.max(1))
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

    /// So many of 100,000 keys are nearest to each of the endpoints.
    fn shares(weights: &[(&str, u32)]) -> Vec<u32> {
        let mut shares = vec![0; weights.len()];
        for key in 0..100_000_u64 {
            let far = |(name, weight): &(&str, u32)| distance(mark(&key), mark(*name), *weight);
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

    #[test]
    fn what_a_name_is_known_by_is_the_same_in_every_run() {
        assert_eq!(mark("bot-a"), 779_935_227_213_634_702);
    }
}
