//! When a request could start.

use std::fmt;
use std::time::Duration;

/// When a request could start at the earliest, counted from the moment of the answer.
///
/// A lower bound, from limits, holds and the requests ahead in the same queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NextStart {
    /// At once.
    Now,
    /// Not before this span is over.
    After(Duration),
    /// As soon as a running attempt ends.
    WhenOneEnds,
    /// Not before its rule, or everything, is resumed, or an endpoint is enabled; never if the balancer is closed.
    Never,
}

impl fmt::Display for NextStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now => f.write_str("there is room now"),
            Self::After(span) => write!(f, "there is room in {span:?} at the earliest"),
            Self::WhenOneEnds => f.write_str("there is room when a running attempt ends"),
            Self::Never => f.write_str("its rule, or everything, is paused or closed, or no endpoint is enabled"),
        }
    }
}
