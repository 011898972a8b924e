//! The machine that decides what starts next: pure, single-threaded, and told the time.
//!
//! It knows no clock, no runtime, no lock and no randomness. Its owner calls it with the instant of each event and
//! afterwards looks at two things: whom to wake ([`Scheduler::take_wakes`]) and when to call
//! [`Scheduler::dispatch`] next ([`Scheduler::next_wake`]). Instants should not go backwards; one that does counts as
//! the latest seen.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod again;
mod answer;
mod breaker;
mod cost;
mod door;
mod ending;
mod evict;
mod explain;
mod extras;
mod gate;
mod guard;
mod health;
mod hold;
mod lane;
mod learn;
mod leave;
mod limit;
mod line;
mod list;
mod live;
mod observe;
mod overdue;
mod owed;
mod pause;
mod plan;
mod pool;
mod queue;
mod quick;
mod recount;
mod request;
mod retry;
mod retry_budget;
mod revoke;
mod scheduler;
mod settle;
mod slab;
mod snapshot;
mod spots;
mod state;
mod store;
mod streak;
mod sweeps;
mod time;
mod timers;
mod turn;
mod zone;

pub use answer::{Claim, Enter, Entry, Evicted, KeyId, NextStart, RequestId, Target, Turned, Why};
pub use breaker::{Admission, Breaker, BreakerPlan, BreakerState, Opening, RatioPlan, Report, Ticket};
pub use explain::{Explained, Hindrance, LimitAnswer, Room, Standing};
pub use guard::Notice;
pub use health::Health;
pub use hold::{Held, HoldCause};
pub use limit::Past;
pub(crate) use observe::alike;
pub use observe::{Difference, ServerReset, ServerWindow, Side};
pub use plan::{
    Anchor, BanGuard, Charge, Kept, LanePlan, Learn, LimitKind, LimitRef, LimitSpec, Narrows, ObserveRef, Origin,
    Overflow, PaceRef, Plan, RuleId, RulePlan,
};
pub(crate) use pool::Mark;
pub use pool::{
    Choose, Elsewhere, EndpointAnswer, EndpointId, EndpointPlan, EndpointRoom, EndpointSnapshot, Failover, PoolPlan,
};
pub use retry::{Decision, FailureKind, GiveUp, RetryPolicy, Scope, Spent, WaitOrder};
pub use retry_budget::RetryBudget;
pub use scheduler::Scheduler;
pub use snapshot::{KeySnapshot, LaneSnapshot, RuleSnapshot, Snapshot};
pub use state::{LimitMemory, Memory};
#[cfg(feature = "shared")]
pub(crate) use store::{ALL, LISTED, WINDOWS, is_narrowed};
pub use store::{Answers, Batch, Line, Reach, Said, Serial, Site, Stand, Take, Told, Wait, Word};
pub use streak::SlowRow;
pub use time::{Instant, Nanos};
pub use zone::Zone;
