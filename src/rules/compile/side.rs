//! One side of the plan: the limits in the keys' records, or those beside them, and what lower lanes leave of them.

use std::collections::BTreeSet;
use std::ops::Range;

use super::limits::Place;
use crate::engine::{Charge, LimitRef, LimitSpec, Nanos, Origin, PaceRef};
use crate::rules::model::{CheckedLane, Model, Pace};
use crate::rules::quota::{Quota, QuotaKind};

/// From this count on lower lanes leave one in so many free.
const RESERVE_FROM: u32 = 50;

/// The limits of one place.
pub(super) struct Side {
    place: Place,
    pub(super) limits: Vec<LimitSpec>,
    groups: Vec<Group>,
    pub(super) clocks: usize,
}

/// The limits that stand under one name in the rules.
struct Group {
    limits: Range<usize>,
    windows: Vec<Window>,
    /// Positions of the lanes that draw on it.
    lanes: BTreeSet<usize>,
    /// One for each thing counted, made when the first rule goes by it.
    clocks: Vec<(Charge, usize)>,
}

/// A plain window: what lower lanes are paced by and leave some of. The other kinds spread their starts themselves, or
/// are not to be spread.
struct Window {
    limit: usize,
    count: u32,
    charge: Charge,
    /// Without the margin: it is what the pace horizon is compared with.
    period: Nanos,
    /// Time between two starts that use the window evenly up.
    interval: Nanos,
}

impl Side {
    pub(super) const fn new(place: Place) -> Self {
        Self { place, limits: Vec::new(), groups: Vec::new(), clocks: 0 }
    }

    pub(super) fn group(
        &mut self,
        model: &Model,
        quotas: &[Quota],
        (concurrency, shared): (Option<u32>, bool),
        origin: &Origin,
        lanes: BTreeSet<usize>,
    ) -> usize {
        let begin = self.limits.len();
        let mut windows = Vec::new();
        for quota in quotas {
            match quota.kind() {
                QuotaKind::Window => windows.push(Window {
                    limit: self.limits.len(),
                    count: quota.count(),
                    charge: model.charge_of(quota),
                    period: quota.nanos(),
                    interval: model.period(quota).div_ceil(quota.count().into()),
                }),
                QuotaKind::Smooth | QuotaKind::Bucket { .. } | QuotaKind::Calendar { .. } => {}
            }
            self.limits.extend(model.specs(std::slice::from_ref(quota), None, origin, self.place, shared));
        }
        self.limits.extend(model.specs(&[], concurrency, origin, self.place, shared));
        self.groups.push(Group { limits: begin..self.limits.len(), windows, lanes, clocks: Vec::new() });
        self.groups.len() - 1
    }

    /// What the groups mean for a rule of the lane at position `lane`.
    pub(super) fn bind(
        &mut self,
        groups: &[usize],
        lane: usize,
        lanes: &[CheckedLane],
    ) -> (Box<[LimitRef]>, Box<[PaceRef]>) {
        let mut refs = Vec::new();
        let mut paces = Vec::new();
        for number in groups {
            let group = &mut self.groups[*number];
            let horizon = match lanes[lane].pace {
                Pace::UpTo(horizon) if group.lanes.first().is_some_and(|first| *first < lane) => Some(horizon),
                Pace::UpTo(_) | Pace::Off => None,
            };
            refs.extend(group.limits.clone().map(|limit| {
                let window = group.windows.iter().find(|window| window.limit == limit);
                let count = window.map(|window| window.count).filter(|count| *count >= RESERVE_FROM);
                let reserve = count.filter(|_| horizon.is_some()).map_or(0, |count| count.div_ceil(RESERVE_FROM));
                LimitRef { limit, reserve }
            }));
            for (charge, interval) in horizon.map_or_else(Vec::new, |horizon| group.intervals(horizon)) {
                let known = group.clocks.iter().find(|(counted, _)| *counted == charge).map(|(_, clock)| *clock);
                let clock = known.unwrap_or_else(|| {
                    group.clocks.push((charge, self.clocks));
                    self.clocks += 1;
                    self.clocks - 1
                });
                paces.push(PaceRef { clock, interval, charge });
            }
        }
        (refs.into(), paces.into())
    }
}

impl Group {
    /// For each thing that windows up to the horizon count, the longest of their intervals.
    fn intervals(&self, horizon: Nanos) -> Vec<(Charge, Nanos)> {
        let mut longest: Vec<(Charge, Nanos)> = Vec::new();
        for window in self.windows.iter().filter(|window| window.period <= horizon) {
            match longest.iter_mut().find(|(charge, _)| *charge == window.charge) {
                Some((_, interval)) => *interval = (*interval).max(window.interval),
                None => longest.push((window.charge, window.interval)),
            }
        }
        longest
    }
}
