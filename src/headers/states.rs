//! The `RateLimit` field of the IETF drafts: a list of states beside a list of quotas, or a dictionary.

use std::time::Duration;

use super::dialect::REQUESTS;
use super::moment::HORIZON;
use super::name::Name;
use super::observation::{NoteKind, Observation, Reset, Window};
use super::structured::{self, Item, Member, Told};

const FIELD: &str = "ratelimit";
const SECOND: Duration = Duration::from_secs(1);

/// Puts the windows that `states` tell of into `observation`.
pub(super) fn read(states: &[&[u8]], policies: &[&[u8]], observation: &mut Observation) {
    for state in states {
        let read = if is_dictionary(state) {
            dictionary(state, policies, observation)
        } else {
            list(state, policies, observation)
        };
        if read.is_none() {
            observation.note(FIELD, NoteKind::Unreadable);
        }
    }
}

/// A member of a dictionary has its value right behind its key.
fn is_dictionary(value: &[u8]) -> bool {
    value.iter().find(|byte| !(byte.is_ascii_alphanumeric() || b"_-.*".contains(byte))) == Some(&b'=')
}

fn dictionary(value: &[u8], policies: &[&[u8]], observation: &mut Observation) -> Option<()> {
    let (mut limit, mut remaining, mut reset) = (None, None, None);
    structured::dictionary(value, |key, item| match key {
        b"limit" => limit = item.count(),
        b"remaining" => remaining = item.count(),
        b"reset" => reset = item.count(),
        _ => {}
    })?;
    let mut per = None;
    for policy in policies {
        structured::list(policy, |member| {
            if member.item.count().is_some() && member.item.count() == limit {
                per = per.or_else(|| length(&member));
            }
        });
    }
    push(Name::new(FIELD), Name::new(REQUESTS), (limit, remaining, reset), per, observation)
}

fn list(value: &[u8], policies: &[&[u8]], observation: &mut Observation) -> Option<()> {
    let mut all = Some(());
    structured::list(value, |member| {
        let name = match member.item {
            Item::Text(name) => name,
            Item::Integer(_) | Item::Other => return all = None,
        };
        let (remaining, reset) = match (member.count("r"), member.count("t")) {
            (Told::Wrong, _) | (_, Told::Wrong) => return all = None,
            (remaining, reset) => (value_of(remaining), value_of(reset)),
        };
        let (limit, unit, per) = quota(name, policies);
        if push(Name::lower(name), unit, (limit, remaining, reset), per, observation).is_none() {
            all = None;
        }
    })?;
    all
}

/// Limit, unit and length of the quota of this name.
fn quota(name: &[u8], policies: &[&[u8]]) -> (Option<u64>, Name, Option<Duration>) {
    let (mut limit, mut unit, mut per) = (None, Name::new(REQUESTS), None);
    for policy in policies {
        structured::list(policy, |member| {
            if member.item == Item::Text(name) {
                limit = limit.or_else(|| value_of(member.count("q")));
                per = per.or_else(|| length(&member));
                if let Some(Item::Text(quota_unit)) = member.parameter("qu") {
                    unit = Name::lower(quota_unit);
                }
            }
        });
    }
    (limit, unit, per)
}

fn push(
    name: Name,
    unit: Name,
    (limit, remaining, reset): (Option<u64>, Option<u64>, Option<u64>),
    per: Option<Duration>,
    observation: &mut Observation,
) -> Option<()> {
    let reset = reset.map(Duration::from_secs);
    if reset.is_some_and(|reset| reset > HORIZON) {
        observation.note(FIELD, NoteKind::TooFar);
    }
    let reset = reset.filter(|reset| *reset <= HORIZON).map(|after| Reset::In { after, grain: SECOND });
    if remaining.is_none() && reset.is_none() && limit.is_none() {
        return None;
    }
    let remaining = remaining.map(|remaining| limit.map_or(remaining, |limit| remaining.min(limit)));
    observation.push(Window { name, unit, limit, remaining, reset, per, scope: None });
    Some(())
}

fn length(member: &Member<'_>) -> Option<Duration> {
    value_of(member.count("w")).map(Duration::from_secs)
}

fn value_of(told: Told<u64>) -> Option<u64> {
    match told {
        Told::Value(value) => Some(value),
        Told::Absent | Told::Wrong => None,
    }
}
