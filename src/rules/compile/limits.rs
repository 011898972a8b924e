//! From quotas to what enforces them.

use crate::engine::{Anchor, Charge, Kept, LimitKind, LimitSpec, Nanos, Origin};
use crate::rules::model::Model;
use crate::rules::quota::{Quota, QuotaKind, REQUESTS};

/// Where the state of a limit lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In each key's record.
    Keyed,
    /// Once in all.
    Shared,
}

impl Place {
    /// A window of a key that counts more than this writes its starts down in granules, so that it needs little memory.
    const EXACT: u32 = 4_096;
    /// Granules of a period.
    const GRANULES: u64 = 1_024;

    const fn grain(self, count: u32, period: Nanos) -> Nanos {
        match self {
            Self::Keyed if count > Self::EXACT => period.div_ceil(Self::GRANULES),
            Self::Keyed | Self::Shared => Nanos::ZERO,
        }
    }
}

impl Model {
    /// How long a start counts against `quota`: its period and its margin, if it has one.
    pub(in crate::rules) fn period(&self, quota: &Quota) -> Nanos {
        match quota.kind() {
            QuotaKind::Window | QuotaKind::Smooth => {
                quota.nanos().saturating_add(quota.margin_nanos().unwrap_or(self.margin))
            }
            QuotaKind::Bucket { .. } | QuotaKind::Calendar { .. } => quota.nanos(),
        }
    }

    /// What a unit is to the engine.
    pub(in crate::rules) fn charge(&self, unit: &str) -> Option<Charge> {
        match unit {
            REQUESTS => Some(Charge::Requests),
            unit => self.units.iter().position(|known| **known == *unit).map(Charge::Unit),
        }
    }

    /// What a quota counts. Its unit was checked.
    pub(super) fn charge_of(&self, quota: &Quota) -> Charge {
        quota.own_unit().and_then(|unit| self.charge(unit)).unwrap_or(Charge::Requests)
    }

    /// What one `overall` or `per_key` with its concurrency cap enforces.
    pub(super) fn specs<'a>(
        &'a self,
        quotas: &'a [Quota],
        concurrency: Option<u32>,
        origin: &'a Origin,
        place: Place,
        shared: bool,
    ) -> impl Iterator<Item = LimitSpec> + 'a {
        let kept = move |kind| if shared { Kept::InStore { alone: self.shared.part(kind) } } else { Kept::Here };
        let quotas = quotas.iter().flat_map(move |quota| {
            let charge = self.charge_of(quota);
            self.kinds(quota, place).map(move |kind| LimitSpec {
                origin: origin.clone(),
                kind,
                charge,
                kept: kept(kind),
            })
        });
        let cap = concurrency.map(|count| {
            let kind = LimitKind::Window { count, period: Nanos::ZERO, anchor: Anchor::End, grain: Nanos::ZERO };
            LimitSpec { origin: origin.clone(), kind, charge: Charge::Attempt, kept: kept(kind) }
        });
        quotas.chain(cap)
    }

    /// What one quota needs: one limit, or for even spacing two.
    fn kinds(&self, quota: &Quota, place: Place) -> impl Iterator<Item = LimitKind> + use<> {
        let (count, period) = (quota.count(), self.period(quota));
        let window = |anchor| LimitKind::Window { count, period, anchor, grain: place.grain(count, period) };
        let interval = period.div_ceil(count.into());
        let (first, second) = match quota.kind() {
            QuotaKind::Window => (window(quota.own_count_from().unwrap_or(self.count_from).anchor()), None),
            // The spacing lets one start follow early where a timer was late; the window counts those too.
            QuotaKind::Smooth => {
                let spacing = LimitKind::Spaced { interval, largest: count };
                (window(Anchor::Start), (count > 1).then_some(spacing))
            }
            QuotaKind::Bucket { burst } => (LimitKind::Bucket { interval, burst: *burst }, None),
            QuotaKind::Calendar { zone } => {
                let zone = self.zones.iter().position(|known| known == zone).unwrap_or_default();
                (LimitKind::Calendar { count, zone }, None)
            }
        };
        std::iter::once(first).chain(second)
    }
}
