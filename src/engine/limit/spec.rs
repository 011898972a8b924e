//! A limit's numbers, in the terms of what enforces it.

use super::calendar::{self, Days};
use super::smooth::{self, Shape};
use super::window;
use crate::engine::plan::{Anchor, LimitKind};
use crate::engine::time::Nanos;

/// A limit's numbers, in the terms of what enforces it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spec<'a> {
    Window(window::Spec),
    Gcra(smooth::Spec),
    Calendar(calendar::Spec<'a>),
}

impl<'a> Spec<'a> {
    pub(crate) fn new(kind: LimitKind, days: &'a Days) -> Self {
        match kind {
            LimitKind::Window { count, period, anchor, grain } => {
                Self::Window(window::Spec { count, period, anchor, grain })
            }
            LimitKind::Spaced { interval, largest } => {
                Self::Gcra(smooth::Spec { interval, burst: largest, shape: Shape::Spaced })
            }
            LimitKind::Bucket { interval, burst } => Self::Gcra(smooth::Spec { interval, burst, shape: Shape::Bucket }),
            LimitKind::Calendar { count, zone } => Self::Calendar(calendar::Spec { count, zone, days }),
        }
    }

    /// The numbers of a window.
    pub(crate) const fn of_window(kind: LimitKind) -> Option<window::Spec> {
        match kind {
            LimitKind::Window { count, period, anchor, grain } => Some(window::Spec { count, period, anchor, grain }),
            LimitKind::Spaced { .. } | LimitKind::Bucket { .. } | LimitKind::Calendar { .. } => None,
        }
    }

    /// Whether the limit lets go only when attempts end.
    pub(crate) const fn counts_from_end(self) -> bool {
        match self {
            Self::Window(spec) => matches!(spec.anchor, Anchor::End),
            Self::Gcra(_) | Self::Calendar(_) => false,
        }
    }

    pub(super) fn window(self) -> window::Spec {
        match self {
            Self::Window(spec) => spec,
            Self::Gcra(_) | Self::Calendar(_) => self.mismatch(),
        }
    }

    pub(super) fn gcra(self) -> smooth::Spec {
        match self {
            Self::Gcra(spec) => spec,
            Self::Window(_) | Self::Calendar(_) => self.mismatch(),
        }
    }

    pub(super) fn calendar(self) -> calendar::Spec<'a> {
        match self {
            Self::Calendar(spec) => spec,
            Self::Window(_) | Self::Gcra(_) => self.mismatch(),
        }
    }

    fn mismatch(self) -> ! {
        unreachable!("a limit's state was made for another kind than {self:?}")
    }
}

/// The most that fits a limit at any time.
pub(crate) const fn capacity(kind: LimitKind) -> u32 {
    match kind {
        LimitKind::Window { count, .. } | LimitKind::Calendar { count, .. } => count,
        LimitKind::Spaced { largest, .. } => largest,
        LimitKind::Bucket { burst, .. } => burst,
    }
}

/// Whether a limit lets go only when attempts end.
pub(crate) const fn counts_from_end(kind: LimitKind) -> bool {
    match kind {
        LimitKind::Window { anchor, .. } => matches!(anchor, Anchor::End),
        LimitKind::Spaced { .. } | LimitKind::Bucket { .. } | LimitKind::Calendar { .. } => false,
    }
}

/// How long it takes to use the most that fits at once and have it all again.
pub(crate) const fn period(kind: LimitKind) -> Nanos {
    match kind {
        LimitKind::Window { period, .. } => period,
        LimitKind::Calendar { .. } => Nanos::from_secs(86_400),
        LimitKind::Spaced { interval, largest } => interval.saturating_mul(largest as u64),
        LimitKind::Bucket { interval, burst } => interval.saturating_mul(burst as u64),
    }
}
