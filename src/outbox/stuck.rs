//! Whether messages in line are to wait for long, and for what.

use std::time::Duration;

use super::record::Queue;
use crate::error::NextStart;
use crate::runtime::{Balancer, EndpointStanding, Explanation, Reason, Standing};

/// What is further away than this is far.
pub(super) const FAR: Duration = Duration::from_secs(1);

/// What becomes of a message in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// It may start soon, or has started.
    Starts,
    /// It was told to wait by itself, and others may pass it.
    SteppedOut,
    /// It does not start for long, nor does any behind it.
    Stuck,
}

/// Whether nothing of the queue may start, for reasons other than its limits.
pub(super) fn is_held(balancer: &Balancer, queue: &Queue) -> bool {
    let explanation = queue.parts().ok().and_then(|(rule, key)| balancer.explain(&rule, key).ok());
    explanation.is_none_or(|explanation| holds(&explanation))
}

pub(super) fn outlook(explanation: &Explanation) -> Outlook {
    let is_far = match explanation.standing {
        Standing::New | Standing::Waiting => holds(explanation) || is_far(explanation),
        Standing::SteppedOut(_) => return Outlook::SteppedOut,
        Standing::Granted | Standing::Asleep | Standing::Running | Standing::Over => false,
    };
    if is_far { Outlook::Stuck } else { Outlook::Starts }
}

fn holds(explanation: &Explanation) -> bool {
    let is_held = |reason: &Reason| match reason {
        Reason::Closed | Reason::RuleRemoved | Reason::Paused | Reason::BanGuard(_) | Reason::Held { .. } => true,
        Reason::NotBefore(_) | Reason::Owed { .. } | Reason::Paced(_) => false,
    };
    let is_shut = |standing| match standing {
        EndpointStanding::Held(_) | EndpointStanding::Open(_) | EndpointStanding::Disabled => true,
        EndpointStanding::Limited(_) | EndpointStanding::Probed => false,
    };
    let endpoints = &explanation.endpoints;
    explanation.reasons.iter().any(is_held)
        || !endpoints.is_empty() && endpoints.iter().all(|endpoint| is_shut(endpoint.standing))
}

/// Whether a single limit lets it wait for long.
fn is_far(explanation: &Explanation) -> bool {
    explanation.limits.iter().any(|limit| match limit.room {
        NextStart::After(span) => span > FAR,
        NextStart::Never => true,
        NextStart::Now | NextStart::WhenOneEnds => false,
    })
}
