//! What goes to the server and comes from it, as words and numbers.

use std::time::Duration;

use crate::engine::{LISTED, LimitKind, Said, Serial, Stand, Told, is_narrowed};
use crate::shared::store::{Ask, AskedLimit, Heard, Known, LimitReply, News, Reply, StoreError};
use crate::shared::subject::Subject;
use crate::shared::tally::{self, ceil};

/// A question as the script reads it.
pub(super) fn words(ask: &Ask, channel: &str) -> Vec<String> {
    let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX).to_string();
    let mut words =
        vec![ask.process.to_string(), ask.number.to_string(), micros(ask.lag), micros(ask.lease), channel.to_owned()];
    for limit in &ask.limits {
        limit_words(limit, &mut words);
    }
    words.push(ask.requests.len().to_string());
    for takes in &ask.requests {
        words.push(takes.len().to_string());
        for take in takes {
            words.extend([take.line.to_string(), take.cost.to_string(), take.reserve.to_string()]);
        }
    }
    words
}

fn limit_words(limit: &AskedLimit, words: &mut Vec<String>) {
    let AskedLimit { kind, held, told, said, known, .. } = limit;
    let (word, a, b) = match *kind {
        LimitKind::Window { count, period, .. } if period.is_zero() => ("c", count.into(), 0),
        LimitKind::Window { count, .. } if count > LISTED => ("t", u64::from(count), tally::length(*kind)),
        LimitKind::Window { count, .. } => ("w", count.into(), tally::length(*kind)),
        LimitKind::Spaced { interval, largest } => ("s", ceil(interval), largest.into()),
        LimitKind::Bucket { interval, burst } => ("b", ceil(interval), burst.into()),
        // Rules never share one.
        LimitKind::Calendar { count, .. } => ("w", count.into(), 0),
    };
    words.push(word.to_owned());
    words.extend([a, b, u64::from(*held), known.epoch, known.newest].map(|number| number.to_string()));
    match told {
        Told::Nothing => words.push("0".to_owned()),
        Told::Starts(starts) => {
            words.push(starts.len().to_string());
            for (ago, cost) in starts {
                words.extend([ceil(*ago).to_string(), cost.to_string()]);
            }
        }
        Told::Owed(owed) => words.extend(["1".to_owned(), ceil(*owed).to_string()]),
    }
    words.push(said.len().to_string());
    for Said { window, left, answered, is_now, reset } in said {
        // No count began at zero.
        let Serial { epoch, number } = answered.unwrap_or_default();
        let numbers = [*window, u64::from(*left), epoch, number, (*is_now).into(), ceil(*reset)];
        words.extend(numbers.map(|number| number.to_string()));
    }
}

/// The script's answer.
pub(super) fn reply(ask: &Ask, (now, taken, said): &(i64, Vec<i64>, Vec<i64>)) -> Result<Reply, StoreError> {
    let mut numbers = said.iter().copied();
    let limits: Option<Result<_, _>> = ask.limits.iter().map(|limit| limit_reply(limit.kind, &mut numbers)).collect();
    match limits {
        Some(limits) if taken.len() == ask.requests.len() && numbers.next().is_none() => {
            let taken = taken.iter().map(|&taken| taken != 0).collect();
            Ok(Reply { now: natural(*now), taken, limits: limits? })
        }
        Some(_) | None => Err(StoreError::Garbled(format!("{} requests and {} numbers", taken.len(), said.len()))),
    }
}

/// What the next numbers say of a limit. `None`: there are too few.
fn limit_reply(kind: LimitKind, numbers: &mut impl Iterator<Item = i64>) -> Option<Result<LimitReply, StoreError>> {
    let mut next = || numbers.next();
    let (wait, closed_to, epoch, newest, lost) = (next()?, next()?, next()?, next()?, next()?);
    let stand = if is_narrowed(kind) {
        let (last, room, windows) = (Serial { epoch: natural(next()?), number: natural(next()?) }, next()?, next()?);
        let windows = (0..windows).map(|_| Some((natural(next()?), small(next()?)))).collect::<Option<_>>()?;
        Some(Stand { last, room: small(room), windows })
    } else {
        None
    };
    if wait < -1 {
        return Some(Err(StoreError::Garbled(format!("a wait of {wait} us"))));
    }
    Some(Ok(LimitReply {
        wait: u64::try_from(wait).ok().map(Duration::from_micros),
        closed_to: small(closed_to),
        known: Known { epoch: natural(epoch), newest: natural(newest) },
        lost: lost != 0,
        stand,
    }))
}

fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn small(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

/// News as the script reads them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Telling {
    pub(super) subject: String,
    pub(super) word: &'static str,
    /// For how many microseconds it is so.
    pub(super) lasts: u64,
    /// Of a breaker that opened: for how many microseconds it rests the next time.
    pub(super) rest: u64,
}

impl Telling {
    /// `None`: it is told with an answer, or not at all.
    pub(super) fn of(news: &News) -> Option<Self> {
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let (word, lasts, rest) = match news {
            News::Hold { lasts, .. } => ("hold", micros(*lasts), 0),
            News::Released { .. } => ("release", 0, 0),
            News::BreakerOpened { lasts, rest, alone, .. } => {
                (if *alone { "spend" } else { "open" }, micros(*lasts), micros(*rest))
            }
            News::BreakerClosed { .. } => ("close", 0, 0),
            News::Ruled { .. } | News::Forgot { .. } | News::Freed { .. } => return None,
        };
        Some(Self { subject: news.subject()?, word, lasts, rest })
    }
}

/// What was said of a subject, unless this process said it. Of what lasts until an instant it is `now`.
pub(super) fn said(subject: &str, said: &str, process: u64, now: u64) -> Option<Heard> {
    let mut words = said.split(' ');
    let (from, at, word, till, rest) = (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
    let lasts = till.parse::<u64>().ok()?.checked_sub(now).filter(|&left| left > 0)?;
    if from.parse() == Ok(process) { None } else { read(subject, (at, word, lasts, rest)) }
}

fn read(subject: &str, (at, word, lasts, rest): (&str, &str, u64, &str)) -> Option<Heard> {
    let (lasts, rest) = (Duration::from_micros(lasts), Duration::from_micros(rest.parse().ok()?));
    let news = match (word, Subject::read(subject)?) {
        ("hold", Subject::Held(held)) => News::Hold { held, lasts },
        ("release", Subject::Held(held)) => News::Released { held },
        ("open" | "spend", Subject::Breaker(endpoint)) => {
            News::BreakerOpened { endpoint, lasts, rest, alone: word == "spend" }
        }
        ("close", Subject::Breaker(endpoint)) => News::BreakerClosed { endpoint },
        _ => return None,
    };
    Some(Heard { at: at.parse().ok()?, news })
}

/// What was told, unless this process told it.
pub(super) fn heard(text: &str, process: u64) -> Option<Heard> {
    let at_once = |news: News| Some(Heard { at: 0, news });
    if let Some(name) = text.strip_prefix("freed ") {
        return at_once(News::Freed { name: name.into() });
    }
    if let Some(rest) = text.strip_prefix("lost ") {
        let (epoch, name) = rest.split_once(' ')?;
        return at_once(News::Forgot { name: name.into(), epoch: epoch.parse().ok()? });
    }
    let (_, told) = text.split_once(' ').filter(|(from, _)| from.parse() != Ok(process))?;
    if let Some(version) = told.strip_prefix("rules ") {
        return at_once(News::Ruled { version: version.parse().ok()? });
    }
    let mut words = told.splitn(5, ' ');
    let (at, word, lasts, rest) = (words.next()?, words.next()?, words.next()?, words.next()?);
    read(words.next()?, (at, word, lasts.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::Scope;
    use crate::key::Key;
    use crate::shared::store::HeldPart;

    /// As the script tells it, and as it keeps it.
    fn texts(from: u64, Telling { subject, word, lasts, rest }: &Telling) -> (String, String) {
        let kept = format!("{from} 9 {word} {} {rest}", lasts.max(&1) + 1_000);
        (format!("{from} 9 {word} {lasts} {rest} {subject}"), kept)
    }

    #[test]
    fn what_is_told_is_heard() {
        let lasts = Duration::from_micros(1_500_000);
        let mut all = Vec::new();
        for (scope, rule, key, endpoint) in [
            (Scope::Overall, None, None, None),
            (Scope::Rule, Some("a b"), None, None),
            (Scope::Queue, Some("all rules 9"), Some(Key::from("5 \u{1f}6")), None),
            (Scope::Key, None, Some(Key::from(("shop", 7))), None),
            (Scope::Endpoint, None, None, Some("bot-a")),
        ] {
            let held = HeldPart { scope, rule: rule.map(Into::into), key, endpoint: endpoint.map(Into::into) };
            all.extend([News::Hold { held: held.clone(), lasts }, News::Released { held }]);
        }
        for endpoint in ["bot-a", "a b\u{1f}"] {
            let endpoint: Arc<str> = endpoint.into();
            all.push(News::BreakerClosed { endpoint: Arc::clone(&endpoint) });
            for alone in [false, true] {
                all.push(News::BreakerOpened { endpoint: Arc::clone(&endpoint), lasts, rest: lasts * 2, alone });
            }
        }
        for news in all {
            let telling = Telling::of(&news).unwrap();
            let (told, kept) = texts(7, &telling);
            let expected = Some(Heard { at: 9, news });
            assert_eq!(heard(&told, 8), expected);
            assert_eq!(heard(&told, 7), None);
            assert_eq!(said(&telling.subject, &kept, 8, 1_000), expected);
            assert_eq!(said(&telling.subject, &kept, 7, 1_000), None);
            // It is over.
            assert_eq!(said(&telling.subject, &kept, 8, 2_000_000), None);
        }
        let freed = News::Freed { name: "{rb}:v1:key:c:\"a b\"".into() };
        assert_eq!(heard("freed {rb}:v1:key:c:\"a b\"", 1), Some(Heard { at: 0, news: freed }));
        let forgot = News::Forgot { name: "{rb}:v1:overall:c".into(), epoch: 7 };
        assert_eq!(heard("lost 7 {rb}:v1:overall:c", 1), Some(Heard { at: 0, news: forgot }));
        assert_eq!(heard("7 rules 9", 1), Some(Heard { at: 0, news: News::Ruled { version: 9 } }));
        assert_eq!(heard("1 rules 9", 1), None);
        for garbled in ["", "7", "7 9 hold", "7 9 hold x 0 overall", "7 9 hold 5 0 breaker\u{1f}a", "x hold 5 overall"]
        {
            assert_eq!(heard(garbled, 1), None, "{garbled}");
        }
    }
}
