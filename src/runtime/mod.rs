//! The tokio shell: it waits, the engine decides.

mod aliases;
mod attempt;
mod balancer;
mod clock;
mod closing;
mod driver;
mod errands;
mod keys;
mod live;
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
mod ticket;
mod wall;

pub use attempt::Attempt;
pub use balancer::{Balancer, Builder, RuleHandle, Target};
pub use closing::Ended;
pub use permit::{Acquire, Permit};
pub use request::Request;
pub use run::Run;
pub use snapshot::{KeySnapshot, LaneSnapshot, RuleSnapshot, Snapshot};
#[cfg(feature = "serde")]
pub use state::{Imported, State};
pub use ticket::Ticket;
