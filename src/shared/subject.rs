//! What news is about, as text: the same in all processes, so that the store can tell what replaces what.

use std::sync::Arc;

use super::store::{HeldPart, News};
use crate::engine::Scope;
use crate::key::Key;

/// Between the parts.
const APART: char = '\u{1f}';
/// What stands where the scope of a hold does.
const BREAKER: &str = "breaker";

const SCOPES: &[(&str, Scope)] = &[
    ("overall", Scope::Overall),
    ("rule", Scope::Rule),
    ("key", Scope::Key),
    ("queue", Scope::Queue),
    ("endpoint", Scope::Endpoint),
];

impl News {
    /// What it is about: later news of the same replaces it. `None`: it stands by itself, and is of use only in the moment.
    #[must_use]
    pub fn subject(&self) -> Option<String> {
        match self {
            Self::Hold { held, .. } | Self::Released { held } => of_hold(held),
            Self::BreakerOpened { endpoint, .. } | Self::BreakerClosed { endpoint } => Some(of_breaker(endpoint)),
            Self::Ruled { .. } | Self::Forgot { .. } | Self::Freed { .. } => None,
        }
    }
}

fn of_hold(held: &HeldPart) -> Option<String> {
    let (word, _) = SCOPES.iter().find(|(_, known)| *known == held.scope)?;
    let key = held.key.as_ref().map(Key::to_text).unwrap_or_default();
    let name = |name: &Option<Arc<str>>| name.as_deref().unwrap_or_default().to_owned();
    Some([(*word).to_owned(), name(&held.rule), name(&held.endpoint), key].join(&APART.to_string()))
}

fn of_breaker(endpoint: &str) -> String {
    format!("{BREAKER}{APART}{endpoint}")
}

/// What a text is about.
#[cfg(feature = "redis")]
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Held(HeldPart),
    Breaker(Arc<str>),
}

#[cfg(feature = "redis")]
impl Subject {
    pub(super) fn read(text: &str) -> Option<Self> {
        if let Some(endpoint) = text.strip_prefix(BREAKER).and_then(|rest| rest.strip_prefix(APART)) {
            return Some(Self::Breaker(endpoint.into()));
        }
        let mut parts = text.splitn(4, APART);
        let (word, rule, endpoint, key) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let (_, scope) = SCOPES.iter().find(|(known, _)| *known == word)?;
        let name = |name: &str| (!name.is_empty()).then(|| Arc::from(name));
        let key = if key.is_empty() { None } else { Some(Key::from_text(key)?) };
        Some(Self::Held(HeldPart { scope: *scope, rule: name(rule), key, endpoint: name(endpoint) }))
    }
}
