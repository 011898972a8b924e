//! Who decides what starts when: the balancer, and what it is compared with.

mod cooling;
mod engine;
mod limiters;
mod line;
mod quotas;
mod waiters;

pub(crate) use self::limiters::Limiters;
use std::fmt;
use std::str::FromStr;

use super::setup::Setup;
use super::traffic::Call;
use crate::engine::{EndpointId, Instant, Nanos};
use crate::rules::wording::nearest;

/// Who decides what starts when.
///
/// Only this crate's engine knows of pools. The others keep to what the rules say beside `[pool]`, and send to one endpoint
/// after the other.
///
/// ```
/// use request_balancer::sim::Policy;
///
/// assert_eq!("fifo".parse(), Ok(Policy::Fifo));
/// assert_eq!(Policy::Balancer.to_string(), "request-balancer");
/// let unknown = "fif0".parse::<Policy>().unwrap_err();
/// assert!(unknown.to_string().ends_with("did you mean `fifo`?"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// This crate's engine.
    Balancer,
    /// One line for all: its first call waits until its limits have room, and everybody behind it.
    Fifo,
    /// One line for all: the first call in it whose limits have room, but none before an earlier one of its rule and key.
    Scan,
    /// What the JavaScript package of that name documents: starts of a key are T/N apart, so are all; of the keys that
    /// are cool the one with the highest priority, then the one that came first; a sleep is not interrupted; a refused
    /// call comes back as its key's last.
    SmartRequestBalancer,
    /// This crate's engine without shares for lower lanes and without pace.
    StrictLanes,
    /// As [`Scan`](Self::Scan), but a lower lane's calls stand in line as if they had come later: 10 s those of the
    /// second lane, then 60 s, 360 s and so on.
    AgeingLanes,
    /// A token bucket for each quota, asked one after the other by whoever wants to start, and in no order among those
    /// who wait for it.
    IndependentLimiters,
}

impl Policy {
    /// All of them, this crate's first.
    pub const ALL: [Self; 7] = [
        Self::Balancer,
        Self::Fifo,
        Self::Scan,
        Self::SmartRequestBalancer,
        Self::StrictLanes,
        Self::AgeingLanes,
        Self::IndependentLimiters,
    ];

    /// Its name in scenarios and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Balancer => "request-balancer",
            Self::Fifo => "fifo",
            Self::Scan => "scan",
            Self::SmartRequestBalancer => "smart-request-balancer",
            Self::StrictLanes => "strict-lanes",
            Self::AgeingLanes => "ageing-lanes",
            Self::IndependentLimiters => "independent-limiters",
        }
    }

    pub(crate) fn balancing(self, setup: &Setup, seed: u64, keys: u32) -> Box<dyn Balancing> {
        match self {
            Self::Balancer => Box::new(engine::Engine::new(setup, setup.rules.plan(), keys)),
            Self::StrictLanes => Box::new(engine::Engine::new(setup, engine::strict(&setup.rules.plan()), keys)),
            Self::Fifo => Box::new(line::Line::new(setup, line::Order::Arrival { head_only: true })),
            Self::Scan => Box::new(line::Line::new(setup, line::Order::Arrival { head_only: false })),
            Self::AgeingLanes => Box::new(line::Line::new(setup, line::Order::Ageing)),
            Self::SmartRequestBalancer => Box::new(cooling::Cooling::new(setup)),
            Self::IndependentLimiters => Box::new(waiters::Waiters::new(setup, seed)),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no policy `{name}`: there are {}{}", names(), did_you_mean(name))]
pub struct UnknownPolicy {
    name: String,
}

fn names() -> String {
    Policy::ALL.map(Policy::as_str).join(", ")
}

fn did_you_mean(name: &str) -> String {
    let near = nearest(name, Policy::ALL.map(Policy::as_str));
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let known = Self::ALL.into_iter().find(|policy| policy.as_str() == name);
        known.ok_or_else(|| UnknownPolicy { name: name.to_owned() })
    }
}

/// A policy at work. It is told what happens and says what starts; instants never go back.
pub(crate) trait Balancing {
    /// A call comes. `alone`: no other comes at this instant.
    fn arrive(&mut self, now: Instant, index: u32, call: &Call, alone: bool);
    /// Puts what starts now into `starts`, in order. Called after everything that happened at an instant.
    fn turn(&mut self, now: Instant, starts: &mut Vec<u32>);
    /// A started call is over.
    fn ended(&mut self, now: Instant, index: u32);
    /// The server refused a started call and wants to hear of its key after this time again.
    fn refused(&mut self, now: Instant, index: u32, after: Nanos);
    /// A started call took longer than an attempt may.
    fn timed_out(&mut self, now: Instant, index: u32) {
        self.ended(now, index);
    }
    /// The calls that it turned away or gave up since it was last asked.
    fn turned_away(&mut self) -> Vec<u32> {
        Vec::new()
    }
    /// The caller of a waiting call left.
    fn withdraw(&mut self, now: Instant, index: u32);
    /// Which endpoint a call that has just started uses, if the policy knows of endpoints.
    fn endpoint(&self, _index: u32) -> Option<EndpointId> {
        None
    }
    /// When there is something to do if nothing happens before.
    fn next_wake(&self) -> Option<Instant>;
}
