//! What holds from outside aim at.

use std::sync::Arc;

use crate::engine::Scope;
use crate::key::Key;

/// What [`Balancer::hold`](crate::Balancer::hold) and [`Balancer::release`](crate::Balancer::release) aim at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(pub(super) Aim);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    Overall,
    Rule(String),
    Key(Key),
    Queue(String, Key),
}

impl Target {
    /// What is held, and whose it is.
    pub(super) fn parts(&self) -> (Scope, Option<Arc<str>>, Option<Key>) {
        match &self.0 {
            Aim::Overall => (Scope::Overall, None, None),
            Aim::Rule(rule) => (Scope::Rule, Some(rule.as_str().into()), None),
            Aim::Key(key) => (Scope::Key, None, Some(key.clone())),
            Aim::Queue(rule, key) => (Scope::Queue, Some(rule.as_str().into()), Some(key.clone())),
        }
    }

    /// Everything that is under the rules' `overall`.
    #[must_use]
    pub const fn overall() -> Self {
        Self(Aim::Overall)
    }

    /// A rule, whatever the key.
    #[must_use]
    pub fn rule(name: impl Into<String>) -> Self {
        Self(Aim::Rule(name.into()))
    }

    /// A key, whatever the rule.
    #[must_use]
    pub fn key(key: impl Into<Key>) -> Self {
        Self(Aim::Key(key.into()))
    }

    /// The queue of a rule and a key.
    #[must_use]
    pub fn queue(rule: impl Into<String>, key: impl Into<Key>) -> Self {
        Self(Aim::Queue(rule.into(), key.into()))
    }
}
