//! Whether messages in line are to wait for long, and for what.

use std::time::Duration;

use super::record::Queue;
use crate::engine::{EndpointRoom, Explained, Hindrance, Instant, Room, Standing};
use crate::runtime::Balancer;

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
    let known = queue.parts().ok().and_then(|(rule, key)| Some((balancer.rule(&rule).ok()?, key)));
    known.is_none_or(|(rule, key)| holds(&rule.obstacles(&key).0))
}

/// What becomes of a message in whose way that is.
pub(super) fn outlook(explained: &Explained, now: Instant) -> Outlook {
    let is_far = match explained.standing {
        Standing::New | Standing::Outside | Standing::Waiting => holds(explained) || is_far(explained, now),
        Standing::Out(_) => return Outlook::SteppedOut,
        Standing::Granted | Standing::Asleep | Standing::Running | Standing::Refused => false,
    };
    if is_far { Outlook::Stuck } else { Outlook::Starts }
}

fn holds(explained: &Explained) -> bool {
    let is_held = |hindrance: &Hindrance| match hindrance {
        Hindrance::Closed
        | Hindrance::RuleRemoved
        | Hindrance::Paused
        | Hindrance::BanGuard(_)
        | Hindrance::Held(..) => true,
        Hindrance::NotBefore(_) | Hindrance::Owed(_) | Hindrance::Paced(_) => false,
    };
    let is_shut = |room| match room {
        EndpointRoom::Held(_) | EndpointRoom::Open(_) | EndpointRoom::Disabled => true,
        EndpointRoom::Now | EndpointRoom::At(_) | EndpointRoom::WhenOneEnds | EndpointRoom::Probed => false,
    };
    let endpoints = &explained.endpoints;
    explained.hindrances.iter().any(is_held)
        || !endpoints.is_empty() && endpoints.iter().all(|endpoint| is_shut(endpoint.room))
}

/// Whether a single limit lets it wait for long.
fn is_far(explained: &Explained, now: Instant) -> bool {
    explained.limits.iter().any(|limit| match limit.room {
        Room::At(at) | Room::Unclaimed(at) => Duration::from(at.since(now)) > FAR,
        Room::Now | Room::WhenOneEnds => false,
    })
}
