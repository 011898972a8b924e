//! What goes to the server and comes from it, as words and numbers.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{LimitKind, Scope, Told};
use crate::key::Key;
use crate::shared::store::{Ask, AskedLimit, Known, LimitReply, News, Reply, StoreError};
use crate::shared::tally::{self, ceil};

/// Between the parts of what is held.
const APART: char = '\u{1f}';

const SCOPES: &[(&str, Scope)] = &[
    ("overall", Scope::Overall),
    ("rule", Scope::Rule),
    ("key", Scope::Key),
    ("queue", Scope::Queue),
    ("endpoint", Scope::Endpoint),
];

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
    let AskedLimit { kind, held, told, known, .. } = limit;
    let (word, a, b) = match *kind {
        LimitKind::Window { count, period, .. } if period.is_zero() => ("c", count.into(), 0),
        LimitKind::Window { count, .. } if count > tally::LISTED => ("t", u64::from(count), tally::length(*kind)),
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
}

/// The script's answer.
pub(super) fn reply(ask: &Ask, (now, taken, said): &(i64, Vec<i64>, Vec<i64>)) -> Result<Reply, StoreError> {
    if taken.len() != ask.requests.len() || said.len() != ask.limits.len() * 4 {
        let found = format!("{} requests and {} numbers", taken.len(), said.len());
        return Err(StoreError::Garbled(found));
    }
    let number = |number: i64| u64::try_from(number).unwrap_or(0);
    if let Some(wait) = said.iter().step_by(4).find(|wait| **wait < -1) {
        return Err(StoreError::Garbled(format!("a wait of {wait} us")));
    }
    let limits = said.chunks_exact(4).map(|said| LimitReply {
        wait: u64::try_from(said[0]).ok().map(Duration::from_micros),
        known: Known { epoch: number(said[1]), newest: number(said[2]) },
        lost: said[3] != 0,
    });
    Ok(Reply { now: number(*now), taken: taken.iter().map(|&taken| taken != 0).collect(), limits: limits.collect() })
}

/// What is held, and for how many microseconds.
pub(super) fn hold(news: &News) -> Option<(String, u64)> {
    let News::Hold { scope, rule, key, endpoint, lasts } = news else { return None };
    let (word, _) = SCOPES.iter().find(|(_, known)| known == scope)?;
    let key = key.as_ref().map(Key::to_text).unwrap_or_default();
    let name = |name: &Option<Arc<str>>| name.as_deref().unwrap_or_default().to_owned();
    let held = [(*word).to_owned(), name(rule), name(endpoint), key].join(&APART.to_string());
    Some((held, u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX)))
}

/// The same the other way round.
pub(super) fn held(text: &str, micros: u64) -> Option<News> {
    let mut parts = text.splitn(4, APART);
    let (word, rule, endpoint, key) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let (_, scope) = SCOPES.iter().find(|(known, _)| *known == word)?;
    let name = |name: &str| (!name.is_empty()).then(|| Arc::from(name));
    let key = if key.is_empty() { None } else { Some(Key::from_text(key)?) };
    let lasts = Duration::from_micros(micros);
    Some(News::Hold { scope: *scope, rule: name(rule), key, endpoint: name(endpoint), lasts })
}

/// What was told, unless this process told it.
pub(super) fn heard(text: &str, process: u64) -> Option<News> {
    if let Some(name) = text.strip_prefix("freed ") {
        return Some(News::Freed { name: name.into() });
    }
    if let Some(rest) = text.strip_prefix("lost ") {
        let (epoch, name) = rest.split_once(' ')?;
        return Some(News::Forgot { name: name.into(), epoch: epoch.parse().ok()? });
    }
    let (from, rest) = text.split_once(' ')?;
    let (micros, what) = rest.strip_prefix("hold ")?.split_once(' ')?;
    if from.parse() == Ok(process) { None } else { held(what, micros.parse().ok()?) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard() {
        let lasts = Duration::from_micros(1_500_000);
        for (scope, rule, key, endpoint) in [
            (Scope::Overall, None, None, None),
            (Scope::Rule, Some("a b"), None, None),
            (Scope::Queue, Some("send"), Some(Key::from("5 \u{1f}6")), None),
            (Scope::Key, None, Some(Key::from(("shop", 7))), None),
            (Scope::Endpoint, None, None, Some("bot-a")),
        ] {
            let news = News::Hold { scope, rule: rule.map(Into::into), key, endpoint: endpoint.map(Into::into), lasts };
            let (held, micros) = hold(&news).unwrap();
            assert_eq!(heard(&format!("7 hold {micros} {held}"), 8).as_ref(), Some(&news));
            assert_eq!(heard(&format!("7 hold {micros} {held}"), 7), None);
        }
        assert_eq!(heard("freed {rb}:v1:key:c:\"a b\"", 1), Some(News::Freed { name: "{rb}:v1:key:c:\"a b\"".into() }));
        let forgot = News::Forgot { name: "{rb}:v1:overall:c".into(), epoch: 7 };
        assert_eq!(heard("lost 7 {rb}:v1:overall:c", 1), Some(forgot));
        for garbled in ["", "7", "7 hold", "7 hold x y", "x hold 5 overall"] {
            assert_eq!(heard(garbled, 1), None, "{garbled}");
        }
    }
}
