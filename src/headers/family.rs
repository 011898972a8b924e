//! The names of generic fields: a prefix, what is told, and the unit or the period of which it is told.

use std::time::Duration;

use super::dialect::{Family, REQUESTS};

/// What a generic field tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Limit,
    Remaining,
    Used,
    Reset,
    ResetAfter,
    Next,
    Wait,
    /// The structured list of states, in the field that is called like the prefix.
    List,
    /// The structured list of quotas.
    Policy,
}

/// What the name of a generic field says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) role: Role,
    /// Empty where the name has neither a unit nor a period.
    pub(super) word: &'static str,
    pub(super) unit: &'static str,
    pub(super) per: Option<Duration>,
}

const ROLES: &[(&str, Role)] = &[
    ("limit", Role::Limit),
    ("remaining", Role::Remaining),
    ("reset", Role::Reset),
    ("used", Role::Used),
    ("observed", Role::Used),
    ("reset-after", Role::ResetAfter),
    ("next", Role::Next),
    ("retry", Role::Wait),
    ("retry-after", Role::Wait),
];

const UNITS: &[&str] = &[REQUESTS, "tokens", "input-tokens", "output-tokens", "complexity"];

const PERIODS: &[(&str, u64)] = &[("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400)];

/// What the field of this name tells, if it is of the family.
pub(super) fn named(family: &Family, header: &[u8]) -> Option<Named> {
    // Most fields are of no family: the first letter says so.
    let letter = |text: &[u8]| text.first().map(u8::to_ascii_lowercase);
    if letter(header) != letter(family.prefix.as_bytes()) {
        return None;
    }
    let rest = after(header, family.prefix)?;
    let plain = |role| Some(Named { role, word: "", unit: REQUESTS, per: None });
    if rest.is_empty() {
        return plain(if family.list { Role::List } else { Role::Limit });
    }
    let rest = rest.strip_prefix(b"-")?;
    if let Some((_, role)) = ROLES.iter().find(|(name, _)| rest.eq_ignore_ascii_case(name.as_bytes())) {
        return plain(*role);
    }
    if family.list && rest.eq_ignore_ascii_case(b"policy") {
        return plain(Role::Policy);
    }
    ROLES.iter().find_map(|(name, role)| {
        let word = after(rest, name)
            .and_then(|word| word.strip_prefix(b"-"))
            .or_else(|| before(rest, name).and_then(|word| word.strip_suffix(b"-")))?;
        of_word(word).map(|(word, unit, per)| Named { role: *role, word, unit, per })
    })
}

/// A unit or a period.
fn of_word(word: &[u8]) -> Option<(&'static str, &'static str, Option<Duration>)> {
    let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let unit = UNITS.iter().find(|unit| is(unit)).map(|unit| (*unit, *unit, None));
    unit.or_else(|| {
        let (name, secs) = PERIODS.iter().find(|(name, _)| is(name))?;
        Some((*name, REQUESTS, Some(Duration::from_secs(*secs))))
    })
}

fn after<'t>(text: &'t [u8], prefix: &str) -> Option<&'t [u8]> {
    let (begin, rest) = text.split_at_checked(prefix.len())?;
    begin.eq_ignore_ascii_case(prefix.as_bytes()).then_some(rest)
}

fn before<'t>(text: &'t [u8], suffix: &str) -> Option<&'t [u8]> {
    let (rest, end) = text.split_at_checked(text.len().checked_sub(suffix.len())?)?;
    end.eq_ignore_ascii_case(suffix.as_bytes()).then_some(rest)
}
