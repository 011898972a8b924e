//! The tokio shell: it waits, the engine decides.

mod aliases;
mod attempt;
mod balancer;
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
mod permit;
mod place;
mod request;
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
mod wall;
mod watch;

pub use attempt::Attempt;
pub use balancer::{Balancer, Builder, RuleHandle};
pub use closing::Ended;
pub use event::{Event, Events};
pub use explain::{Explanation, LimitReport, Reason, Standing};
pub use permit::{Acquire, Permit};
pub use request::Request;
pub use run::Run;
pub use snapshot::{KeySnapshot, LaneSnapshot, RuleSnapshot, Snapshot};
#[cfg(feature = "serde")]
pub use state::{Imported, State};
pub use target::Target;
pub use ticket::Ticket;
