//! The tokio shell: it waits, the engine decides.

#[cfg_attr(not(feature = "shared"), expect(dead_code, reason = "without a store nobody asks"))]
pub(crate) mod afar;
mod aliases;
mod attempt;
mod balancer;
mod builder;
mod clock;
mod closing;
mod driver;
mod errands;
mod event;
mod explain;
mod keys;
mod live;
#[cfg(feature = "metrics")]
mod meters;
#[cfg(not(feature = "metrics"))]
#[path = "unmetered.rs"]
mod meters;
mod nesting;
mod observe;
mod permit;
mod place;
mod pool;
#[cfg(feature = "outbox")]
mod priorities;
mod request;
mod rule_handle;
mod run;
mod shared;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
mod snapshot;
#[cfg(feature = "serde")]
mod state;
mod sync;
mod target;
mod ticket;
mod typed;
mod wall;
mod watch;

pub use attempt::{Attempt, Endpoint};
pub use balancer::Balancer;
pub use builder::Builder;
pub use closing::Ended;
pub use event::{Event, Events};
#[cfg(feature = "outbox")]
pub(crate) use explain::Explainable;
pub use explain::{EndpointReport, EndpointStanding, Explanation, LimitReport, Reason, Standing};
pub use observe::LimitDifference;
pub use permit::{Acquire, Permit};
#[cfg(feature = "outbox")]
pub(crate) use place::{Failed, Past, Witness};
#[cfg(feature = "outbox")]
pub(crate) use priorities::Priorities;
pub use request::Request;
pub use rule_handle::RuleHandle;
pub use run::Run;
#[cfg(feature = "shared")]
pub(crate) use run::caught;
#[cfg(feature = "shared")]
pub(crate) use shared::{Shared, State as Locked};
pub use snapshot::{BreakerSnapshot, EndpointSnapshot, KeySnapshot, LaneSnapshot, RuleSnapshot, Snapshot};
#[cfg(feature = "serde")]
pub use state::{Imported, State};
pub use target::Target;
pub use ticket::Ticket;
pub use typed::{Pool, PooledAttempt, PooledRequest};
#[cfg(feature = "outbox")]
pub(crate) use wall::clock as wall_clock;
