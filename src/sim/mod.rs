//! What a rules file does before it is used: calls that come, wait and start in virtual time (feature `sim`).

mod measure;
mod meter;
mod metric;
mod policy;
mod random;
mod read;
mod scenario;
mod server;
mod setup;
mod traffic;
mod world;

pub use measure::{Bound, Measure, Value};
pub use policy::{Policy, UnknownPolicy};
pub use scenario::Scenario;
pub use world::Progress;
