//! What servers say about their own limits: from a response to an [`Observation`], in the [`Dialect`] of the API.
//!
//! ```text
//! names and values --collect--> slots, lists, waits, words --finish--> windows, wait, verdict
//! body --walk------------------------^
//! ```
//!
//! Dialects are data and always there, so that rules files read the same in every build; [`read`] takes the feature
//! `headers`, JSON the feature `json`.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod builtin;
mod cut;
mod dialect;
mod json;

#[cfg(feature = "headers")]
mod collect;
#[cfg(feature = "headers")]
mod family;
#[cfg(feature = "headers")]
mod moment;
#[cfg(feature = "headers")]
mod name;
#[cfg(feature = "headers")]
mod number;
#[cfg(feature = "headers")]
mod observation;
#[cfg(feature = "headers")]
mod read;
#[cfg(feature = "headers")]
mod slot;
#[cfg(feature = "headers")]
mod states;
#[cfg(feature = "headers")]
mod structured;
#[cfg(feature = "json")]
mod walk;

pub(crate) use cut::short;
pub(crate) use dialect::REQUESTS;
pub use dialect::{Dialect, Field, Form, Meaning, Part, ServerScope, WaitField, WindowSpec, Word, Words};
pub use json::Pick;
pub(crate) use json::What;
#[cfg(feature = "headers")]
pub use name::Name;
#[cfg(feature = "headers")]
pub use observation::{Note, NoteKind, Observation, Reset, Window};
#[cfg(feature = "headers")]
pub use read::read;
#[cfg(feature = "http")]
pub use read::read_response;
