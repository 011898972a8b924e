//! What a limit knows of past starts, in terms that outlive the machine: another limit that is told of it refuses what
//! this one would.

use std::sync::Arc;

use super::full::{Full, Kind};
use super::observed::Told;
use super::{Days, Spec, Word, smooth};
use crate::engine::plan::{Anchor, LimitKind};
use crate::engine::time::{Instant, Nanos};

/// Limits that are free again so soon after their last start are not worth keeping.
const SHORT: Nanos = Nanos::from_secs(60);

/// How exactly the end of a server's window is known after a restart.
const ROUNDED: Nanos = Nanos::from_secs(1);

/// What a limit knows of the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Past {
    /// Starts that still count in a window.
    Starts {
        /// The window's length, margin included.
        period: Nanos,
        /// From when it counts a start.
        anchor: Anchor,
        /// When they count from, and what they cost.
        starts: Vec<(Instant, u32)>,
    },
    /// What started since midnight.
    Today {
        /// The name of the zone whose midnight it is.
        zone: Arc<str>,
        /// The last start.
        latest: Instant,
        /// The sum of costs.
        cost: u32,
    },
    /// What spacing or a bucket is owed for its starts.
    Owed {
        /// When everything that started is paid for.
        until: Instant,
    },
    /// What the server said of one of its windows.
    Told {
        /// The length of the limit's own window.
        period: Nanos,
        /// What the server or its dialect calls its window.
        window: Arc<str>,
        /// How long that is. `None`: not told.
        lasts: Option<Nanos>,
        /// How many it leaves.
        left: u32,
        /// Until when that counts.
        until: Instant,
        /// Whether the server told when that is.
        resets: bool,
    },
}

impl Past {
    /// The length of the window whose starts it tells.
    const fn period(&self) -> Nanos {
        match self {
            Self::Starts { period, .. } => *period,
            Self::Today { .. } => Nanos::from_secs(86_400),
            Self::Owed { .. } | Self::Told { .. } => Nanos::ZERO,
        }
    }

    /// Whether it is for a limit of this kind, as far as that makes a difference: what the server said of one limit is not
    /// about others in the same place.
    pub(crate) fn is_for(&self, kind: LimitKind) -> bool {
        match self {
            Self::Starts { .. } | Self::Today { .. } | Self::Owed { .. } => true,
            Self::Told { period, .. } => !matches!(kind, LimitKind::Spaced { .. }) && *period == super::period(kind),
        }
    }

    /// The starts that it tells of. What is yet to come happened now at the latest.
    fn starts(&self, now: Instant) -> Vec<(Instant, u32)> {
        match self {
            Self::Starts { starts, .. } => starts.iter().map(|&(at, cost)| (at.min(now), cost)).collect(),
            Self::Today { latest, cost, .. } => vec![((*latest).min(now), *cost)],
            Self::Owed { .. } | Self::Told { .. } => Vec::new(),
        }
    }

    fn owed(&self) -> Option<Instant> {
        match self {
            Self::Owed { until } => Some(*until),
            Self::Starts { .. } | Self::Today { .. } | Self::Told { .. } => None,
        }
    }

    /// What the server said of a window of its own, with the length of the limit's.
    fn told(&self) -> Option<(Nanos, Told)> {
        match self {
            Self::Told { period, window, lasts, left, until, resets } => {
                let (window, per) = (Arc::clone(window), *lasts);
                Some((*period, Told { window, per, left: *left, until: *until, resets: *resets }))
            }
            Self::Starts { .. } | Self::Today { .. } | Self::Owed { .. } => None,
        }
    }

    /// Whether it is what a limit of these numbers knew.
    fn is_of(&self, spec: Spec<'_>) -> bool {
        match (self, spec) {
            (Self::Starts { period, anchor, .. }, Spec::Window(spec)) => {
                *period == spec.period && *anchor == spec.anchor
            }
            (Self::Today { zone, .. }, Spec::Calendar(spec)) => **zone == *spec.zone_name(),
            (Self::Owed { .. }, Spec::Gcra(_)) => true,
            (Self::Starts { .. } | Self::Today { .. } | Self::Owed { .. } | Self::Told { .. }, _) => false,
        }
    }
}

impl Full {
    /// What is worth keeping of the limit: starts that count for more than a minute, and what the server said of its
    /// windows that counts for as long, or says that nothing is left.
    pub(super) fn pasts(&mut self, kind: LimitKind, days: &Days, now: Instant) -> impl Iterator<Item = Past> + use<> {
        let own = self.past(Spec::new(kind, days), now);
        let told = self.told(now).filter(move |told| told.left == 0 || told.until.since(now) > SHORT);
        let period = super::period(kind);
        let told = told.map(|Told { window, per, left, until, resets }| {
            let lasts = per;
            Past::Told { period, window, lasts, left, until, resets }
        });
        own.into_iter().chain(told.collect::<Vec<_>>())
    }

    fn past(&self, spec: Spec<'_>, now: Instant) -> Option<Past> {
        match &self.kind {
            Kind::Window(window) => {
                let spec = spec.window();
                if spec.period <= SHORT {
                    return None;
                }
                let mut starts = window.starts();
                starts.retain(|&(at, _)| at.saturating_add(spec.period) > now);
                match spec.anchor {
                    // What runs now would have been counted from its end, which nobody will see.
                    Anchor::End => starts.extend(Some((now, window.outstanding())).filter(|&(_, cost)| cost > 0)),
                    Anchor::Start => {}
                }
                (!starts.is_empty()).then_some(Past::Starts { period: spec.period, anchor: spec.anchor, starts })
            }
            Kind::Gcra(gcra) => {
                let until = gcra.due().filter(|until| *until > now)?;
                (longest_debt(spec.gcra()) > SHORT).then_some(Past::Owed { until })
            }
            Kind::Calendar(calendar) => {
                let spec = spec.calendar();
                let (latest, cost) = calendar.starts(spec).pop()?;
                Some(Past::Today { zone: spec.zone_name().into(), latest, cost })
            }
        }
    }

    /// Counts what other limits in the same place knew, beside what it knows itself: those with the same numbers if there
    /// are any, else the one that remembers longest.
    pub(super) fn recall(&mut self, spec: Spec<'_>, now: Instant, max_hold: Nanos, pasts: &[&Past]) {
        let told = pasts.iter().filter_map(|past| past.told()).filter(|told| told.1.until > now);
        for (period, Told { window, per, left, until, resets }) in told {
            let rest = until.since(now);
            self.observed.get_or_insert_default().remember(Word {
                window: &window,
                per,
                limit: None,
                left,
                sent: now,
                read: now,
                reset: resets.then_some((rest, ROUNDED)),
                else_for: if resets { per.unwrap_or(period) } else { rest },
                at_most: max_hold.max(period),
            });
        }
        let same = pasts.iter().find(|past| past.is_of(spec));
        let own = pasts.iter().filter(|past| past.told().is_none());
        let Some(past) = same.or_else(|| own.max_by_key(|past| past.period())) else { return };
        let starts = past.starts(now);
        match &mut self.kind {
            Kind::Window(window) => window.recall(spec.window(), starts),
            Kind::Gcra(gcra) => {
                let spec = spec.gcra();
                let last = now.saturating_add(longest_debt(spec).max(max_hold));
                gcra.recall(spec, now, past.owed().map(|until| until.min(last)), &starts);
            }
            Kind::Calendar(calendar) => calendar.recall(spec.calendar(), &starts),
        }
    }
}

/// How long it takes until everything is paid for that fits at once.
fn longest_debt(spec: smooth::Spec) -> Nanos {
    spec.interval.saturating_mul(spec.burst.into())
}
