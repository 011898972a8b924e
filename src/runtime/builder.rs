//! A balancer in the making.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::afar::Afield;
use super::balancer::Balancer;
use super::shared::Shared;
use crate::rules::Rules;

/// A balancer in the making.
#[must_use = "a builder does nothing before it builds"]
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) rules: Rules,
    pub(super) seed: Option<u64>,
    /// Whether endpoints came from code.
    pub(super) coded: bool,
    /// What keeps limits for many processes.
    pub(crate) afar: Option<Arc<dyn Afield>>,
}

impl Builder {
    /// From what the jitter of backoffs is drawn. Default: a number that differs from balancer to balancer.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The balancer. One that shares limits goes to its store at once if it is made on a runtime, or with its first request.
    #[must_use]
    pub fn build(self) -> Balancer {
        let seed = self.seed.unwrap_or_else(|| RandomState::new().hash_one("seed"));
        let afar = self.afar.map(|afield| afield.afar(&self.rules));
        let shared = Arc::new(Shared::new(self.rules, seed));
        if self.coded {
            shared.note_coded();
        }
        if let Some(afar) = afar {
            shared.attach(afar);
            shared.man_desk_here();
        }
        Balancer { shared }
    }
}
