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
mod snapshot;
mod ticket;

pub use attempt::Attempt;
pub use balancer::{Balancer, Builder, RuleHandle, Target};
pub use closing::Ended;
pub use permit::{Acquire, Permit};
pub use request::Request;
pub use run::Run;
pub use snapshot::{KeySnapshot, LaneSnapshot, RuleSnapshot, Snapshot};
pub use ticket::Ticket;
