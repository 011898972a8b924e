//! Rules: text in, findings or a checked [`Rules`] out.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::sync::Arc;

use crate::engine::Plan;

/// A checked set of rules: what loads cannot fail later.
#[derive(Clone, Debug)]
pub struct Rules {
    plan: Arc<Plan>,
}

impl Rules {
    /// The rules compiled for the engine.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan)
    }
}
