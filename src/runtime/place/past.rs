//! Requests that outlive the process: what is behind them when they enter, and who writes down what comes of them.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use super::Place;
use crate::engine::{Nanos, Scope, Spent};
use crate::runtime::shared::Shared;

/// What is behind a request when it enters.
pub(crate) struct Past {
    /// How often it was started.
    pub(crate) starts: u32,
    /// What of its policy it has spent.
    pub(crate) spent: Spent,
    pub(crate) witness: Arc<dyn Witness>,
}

/// Is told how attempts fail; not under the lock, and before the request is started again by anybody who polls it.
pub(crate) trait Witness: Send + Sync {
    fn failed(&self, failed: Failed);
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    /// How often the request was started.
    pub(crate) starts: u32,
    pub(crate) spent: Spent,
    /// For how long it steps out, or its scope is held.
    pub(crate) wait: Nanos,
    /// What is held; `None`: it backs off and holds nobody.
    pub(crate) scope: Option<Scope>,
}

impl<H: Borrow<Arc<Shared>>> Place<H> {
    /// The attempt failed, and another one follows.
    pub(super) fn tell_witness(&self, wait: Nanos, scope: Option<Scope>) {
        if let Some(past) = self.wishes.special.as_ref().and_then(|special| special.past.as_ref()) {
            past.witness.failed(Failed { starts: self.starts, spent: self.wishes.spent(), wait, scope });
        }
    }
}

impl fmt::Debug for Past {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Past").field("starts", &self.starts).field("spent", &self.spent).finish_non_exhaustive()
    }
}
