//! A window in the making: what was read of it field by field, until all fields are known.

use std::time::Duration;

use super::dialect::{Form, Part, ServerScope};
use super::family::Role;
use super::moment::{self, Ahead, HORIZON, Moment, Told};
use super::name::Name;
use super::number::Number;
use super::observation::{NoteKind, Observation, Reset, Window};
use super::structured::{self, Item};

/// What was read of one window.
#[derive(Debug)]
pub(super) struct Slot<'d, 'h> {
    /// The prefix of its family or the name of its dialect's window.
    pub(super) group: &'d str,
    /// What tells it from others of its group.
    pub(super) word: Name,
    unit: &'d str,
    scope: Option<ServerScope>,
    per: Option<Duration>,
    limit: Option<i64>,
    remaining: Option<i64>,
    used: Option<i64>,
    reset: Latest,
    reset_after: Latest,
    next: Latest,
    length: Latest,
    /// Several windows in one.
    limits: Option<&'h [u8]>,
    counts: Option<&'h [u8]>,
}

impl<'d, 'h> Slot<'d, 'h> {
    pub(super) fn new(
        group: &'d str,
        word: Name,
        unit: &'d str,
        scope: Option<ServerScope>,
        per: Option<Duration>,
    ) -> Self {
        let (limit, remaining, used, limits, counts) = (None, None, None, None, None);
        let [reset, reset_after, next, length] = [Latest::default(); 4];
        Self { group, word, unit, scope, per, limit, remaining, used, reset, reset_after, next, length, limits, counts }
    }

    /// Takes a generic field in. Whether it was understood.
    pub(super) fn take_role(&mut self, role: Role, value: &'h [u8], form: Form) -> bool {
        match role {
            Role::Limit => self.take_limit(value),
            Role::Remaining => self.take_remaining(value),
            Role::Used => self.take_used(value),
            Role::Reset => self.reset.take(value, form),
            Role::ResetAfter => self.reset_after.take(value, Form::Any),
            Role::Next => self.next.take(value, form),
            // Not of a window.
            Role::Wait | Role::List | Role::Policy => true,
        }
    }

    /// Takes a dialect's field in. Whether it was understood.
    pub(super) fn take_part(&mut self, part: Part, value: &'h [u8]) -> bool {
        match part {
            Part::Limit => self.take_limit(value),
            Part::Remaining => self.take_remaining(value),
            Part::Used => self.take_used(value),
            Part::Reset(form) => self.reset.take(value, form),
            Part::Length(form) => self.length.take(value, form),
            Part::UsedOfLimit => match split(value, b'/') {
                [Some(used), Some(limit), None] => {
                    (self.used, self.limit) = (Some(used), Some(limit));
                    true
                }
                _ => false,
            },
            Part::SpentLeftLimit => match split(value, b'/') {
                [Some(_), Some(left), Some(limit)] => {
                    (self.remaining, self.limit) = (Some(left), Some(limit));
                    true
                }
                _ => false,
            },
            Part::Limits => {
                self.limits = Some(value);
                pairs(value).next().is_some()
            }
            Part::Counts => {
                self.counts = Some(value);
                pairs(value).next().is_some()
            }
        }
    }

    #[cfg(feature = "json")]
    pub(super) fn take_count(&mut self, count: super::json::Count, number: Number) {
        use super::json::Count;
        match count {
            Count::Limit => self.limit = number.integer(),
            Count::Remaining => self.remaining = Some(number.floor()),
            // Where several are told, the fullest.
            Count::UsedPercent => {
                let left = 100_i64.saturating_sub(number.floor()).max(0);
                self.remaining = Some(self.remaining.map_or(left, |known| known.min(left)));
            }
        }
    }

    /// Puts the window into `observation`, or the windows if it is several.
    pub(super) fn finish(&mut self, base: i64, policies: &[&[u8]], observation: &mut Observation) {
        let Some(limits) = self.limits else {
            self.per = self.per.or_else(|| self.length.within(base)).or_else(|| self.policy(policies));
            let window = self.window(base, observation);
            if let Some(window) = window {
                observation.push(window);
            }
            return;
        };
        for (limit, secs) in pairs(limits) {
            self.limit = Some(limit);
            self.per = u64::try_from(secs).ok().map(Duration::from_secs);
            self.used = pairs(self.counts.unwrap_or_default()).find(|(_, of)| *of == secs).map(|(used, _)| used);
            if let Some(window) = self.window(base, observation) {
                observation.push(window);
            }
        }
    }

    fn window(&self, base: i64, observation: &mut Observation) -> Option<Window> {
        if self.limit.is_some_and(|limit| limit < 0) {
            observation.note(self.group, NoteKind::NotApplicable);
            return None;
        }
        let limit = self.limit.or_else(|| Some(self.used?.saturating_add(self.remaining?)));
        let remaining = self.remaining.or_else(|| Some(limit?.saturating_sub(self.used?)));
        // Without a limit nobody knows whether it means too many or none at all.
        let remaining = remaining.filter(|remaining| *remaining >= 0 || limit.is_some()).map(count);
        let limit = limit.map(count);
        let reset = [&self.reset_after, &self.reset, &self.next].into_iter().find_map(|latest| latest.resolve(base));
        let reset = match reset {
            Some(Reset::In { after, .. }) if after > HORIZON => {
                observation.note(self.group, NoteKind::TooFar);
                None
            }
            reset => reset,
        };
        if limit.is_none() && remaining.is_none() && reset.is_none() {
            return None;
        }
        Some(Window {
            name: if self.word.is_empty() { Name::new(self.group) } else { self.word },
            unit: Name::new(self.unit),
            limit,
            remaining: remaining.map(|remaining| limit.map_or(remaining, |limit| remaining.min(limit))),
            reset,
            per: self.per,
            scope: self.scope,
        })
    }

    /// The length that the lists of quotas give to one of this limit.
    fn policy(&self, policies: &[&[u8]]) -> Option<Duration> {
        let limit = self.limit.filter(|_| self.group == "ratelimit")?;
        let mut length = None;
        for policy in policies {
            structured::list(policy, |member| {
                if let (Item::Integer(quota), Some(secs)) = (member.item, member.parameter("w").and_then(Item::count))
                    && quota == limit
                {
                    length = length.or_else(|| Some(Duration::from_secs(secs)));
                }
            });
        }
        length
    }

    fn take_limit(&mut self, value: &[u8]) -> bool {
        let Some(limit) = counts(value).find_map(Number::integer) else { return false };
        self.limit = self.limit.or(Some(limit));
        if self.per.is_none() && value.contains(&b';') {
            // The length stands with the limit itself, or with the quota of the same size behind it.
            structured::list(value, |member| {
                if let (Item::Integer(quota), Some(secs)) = (member.item, member.parameter("w").and_then(Item::count))
                    && quota == limit
                {
                    self.per = self.per.or_else(|| Some(Duration::from_secs(secs)));
                }
            });
        }
        true
    }

    fn take_remaining(&mut self, value: &[u8]) -> bool {
        let least = counts(value).map(Number::floor).min();
        self.remaining = least.map(|least| self.remaining.map_or(least, |known| known.min(least))).or(self.remaining);
        least.is_some()
    }

    fn take_used(&mut self, value: &[u8]) -> bool {
        let most = counts(value).map(Number::floor).max();
        self.used = self.used.max(most);
        most.is_some()
    }
}

/// The latest of the moments in some fields; what is told in two ways is compared when the response's date is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latest {
    after: Option<Told>,
    at: Option<Told>,
}

impl Latest {
    /// Whether a moment was understood.
    pub(super) fn take(&mut self, value: &[u8], form: Form) -> bool {
        let mut any = false;
        moment::each(value, form, |told| {
            any = true;
            let known = match told.moment {
                Moment::After(_) | Moment::Before => &mut self.after,
                Moment::At(_) => &mut self.at,
            };
            // Each kind has an order of its own.
            if known.is_none_or(|known| known.moment.ahead(0) <= told.moment.ahead(0)) {
                *known = Some(told);
            }
        });
        any
    }

    fn resolve(&self, base: i64) -> Option<Reset> {
        let ahead = |told: Told| (told.moment.ahead(base), told.grain);
        let (ahead, grain) = self.after.map(ahead).max(self.at.map(ahead))?;
        Some(match ahead {
            Ahead::Over => Reset::Over,
            Ahead::In(after) => Reset::In { after, grain },
        })
    }

    fn within(&self, base: i64) -> Option<Duration> {
        self.resolve(base).map(Reset::after).filter(|length| !length.is_zero() && *length <= HORIZON)
    }
}

/// The numbers in a value, commas between, whatever their parameters.
fn counts(value: &[u8]) -> impl Iterator<Item = Number> {
    value.split(|byte| *byte == b',').filter_map(|piece| {
        let number = piece.split(|byte| *byte == b';').next().unwrap_or_default();
        Number::read(moment::trim(number))
    })
}

/// Up to three numbers with a separator between. What is no number, and what is too much, is `None`.
fn split(value: &[u8], separator: u8) -> [Option<i64>; 3] {
    let mut numbers = [None; 3];
    for (place, piece) in value.split(|byte| *byte == separator).enumerate() {
        match numbers.get_mut(place) {
            Some(number) => *number = Number::read(moment::trim(piece)).map(Number::floor),
            None => return [None; 3],
        }
    }
    numbers
}

/// Numbers with the seconds of their windows: `20:1,100:120`. What is none is left out.
fn pairs(value: &[u8]) -> impl Iterator<Item = (i64, i64)> {
    value.split(|byte| *byte == b',').filter_map(|piece| match split(piece, b':') {
        [Some(count), Some(secs), None] if secs > 0 => Some((count, secs)),
        _ => None,
    })
}

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
