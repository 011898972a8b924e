//! What limits are called in a store: the same in all processes, and different for different limits.

use std::fmt::Write;
use std::sync::Arc;

use crate::engine::{Charge, LISTED, LimitKind, LimitSpec, Nanos, Origin};

/// The version of what is kept under a name. Processes that keep something else use another one.
const FORMAT: &str = "v1";

/// The name of a limit. All names with one prefix are in one slot of a cluster.
///
/// The numbers that the state depends on are part of it, the count is not: raising it gives nobody a fresh window.
pub(super) fn of_limit(prefix: &str, spec: &LimitSpec, unit: Option<&str>, key: Option<&str>) -> Arc<str> {
    let mut name = format!("{{{prefix}}}:{FORMAT}:");
    match &spec.origin {
        Origin::Overall => name.push_str("overall"),
        Origin::PerKey => name.push_str("key"),
        Origin::RuleOverall(rule) => part(&mut name, "rule", rule),
        Origin::RulePerKey(rule) => part(&mut name, "rule-key", rule),
        Origin::NamedOverall(limit) => part(&mut name, "limit", limit),
        Origin::NamedPerKey(limit) => part(&mut name, "limit-key", limit),
        Origin::Lane(lane) => part(&mut name, "lane", lane),
        Origin::EndpointOverall(endpoint) => part(&mut name, "endpoint", endpoint),
        Origin::EndpointPerKey(endpoint) => part(&mut name, "endpoint-key", endpoint),
    }
    let micros = |span: Nanos| span.get().div_ceil(1_000);
    let _ = match spec.kind {
        LimitKind::Window { period, .. } if period.is_zero() => write!(name, ":c"),
        LimitKind::Window { count, period, .. } if count > LISTED => write!(name, ":t{}", micros(period)),
        LimitKind::Window { period, .. } => write!(name, ":w{}", micros(period)),
        LimitKind::Spaced { interval, .. } => write!(name, ":s{}", micros(interval)),
        LimitKind::Bucket { interval, .. } => write!(name, ":b{}", micros(interval)),
        LimitKind::Calendar { .. } => write!(name, ":d"),
    };
    match spec.charge {
        Charge::Attempt | Charge::Requests => {}
        Charge::Unit(_) => part(&mut name, "", unit.unwrap_or_default()),
    }
    if let Some(key) = key {
        name.push(':');
        name.push_str(key);
    }
    name.into()
}

/// Of what is no limit.
#[cfg(feature = "redis")]
pub(super) fn of(prefix: &str, what: &str) -> String {
    format!("{{{prefix}}}:{FORMAT}:{what}")
}

/// A name that users chose, without what names are put together with.
fn part(name: &mut String, what: &str, chosen: &str) {
    if what.is_empty() {
        name.push(':');
    } else {
        let _ = write!(name, "{what}:");
    }
    for c in chosen.chars() {
        match c {
            ':' | '%' => {
                let _ = write!(name, "%{:02x}", u32::from(c));
            }
            c => name.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Anchor, Kept};

    fn window(origin: Origin, count: u32, millis: u64) -> LimitSpec {
        let kind =
            LimitKind::Window { count, period: Nanos::from_millis(millis), anchor: Anchor::Start, grain: Nanos::ZERO };
        LimitSpec { origin, kind, charge: Charge::Requests, kept: Kept::InStore { alone: None } }
    }

    #[test]
    fn limits_that_differ_have_names_that_differ() {
        let name = |spec: &LimitSpec, key| of_limit("rb", spec, None, key).to_string();
        assert_eq!(name(&window(Origin::Overall, 30, 1_000), None), "{rb}:v1:overall:w1000000");
        assert_eq!(name(&window(Origin::PerKey, 1, 1_000), Some("42")), "{rb}:v1:key:w1000000:42");
        assert_eq!(name(&window(Origin::Overall, 1_001, 1_000), None), "{rb}:v1:overall:t1000000");
        let odd = window(Origin::RuleOverall("a:w1".into()), 1, 1);
        assert_eq!(name(&odd, None), "{rb}:v1:rule:a%3aw1:w1000");
        let tokens = LimitSpec { charge: Charge::Unit(0), ..window(Origin::Overall, 30, 1_000) };
        assert_eq!(&*of_limit("rb", &tokens, Some("tokens"), None), "{rb}:v1:overall:w1000000:tokens");
        let cap = window(Origin::PerKey, 30, 0);
        assert_eq!(name(&cap, Some("\"a\"")), "{rb}:v1:key:c:\"a\"");
    }

    /// The slot of a name in a cluster, as its servers have it: CRC-16 (XMODEM) of what is between the first `{` and the
    /// first `}` after it, if that is anything.
    fn slot(name: &str) -> u16 {
        let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
        let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(name);
        let crc = hashed.bytes().fold(0_u16, |crc, byte| {
            (0..8).fold(
                crc ^ (u16::from(byte) << 8),
                |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
            )
        });
        crc % 16_384
    }

    #[test]
    fn all_names_of_a_prefix_are_in_one_slot() {
        assert_eq!(slot("123456789"), 0x31c3);
        let origins = [
            Origin::Overall,
            Origin::PerKey,
            Origin::RuleOverall("{a}".into()),
            Origin::RulePerKey("}{".into()),
            Origin::NamedOverall("account".into()),
            Origin::NamedPerKey("{}".into()),
            Origin::Lane("2".into()),
            Origin::EndpointOverall("{bot}-a".into()),
        ];
        for prefix in ["rb", "bot", "a:b", "приставка"] {
            let expected = slot(prefix);
            for origin in &origins {
                for count in [1, 2_000] {
                    for key in [None, Some("{42}"), Some("\"}{\"")] {
                        let name = of_limit(prefix, &window(origin.clone(), count, 1_000), Some("{u}"), key);
                        assert_eq!(slot(&name), expected, "{name}");
                    }
                }
            }
            #[cfg(feature = "redis")]
            for what in ["clock", "said", "rules", "news"] {
                assert_eq!(slot(&of(prefix, what)), expected, "{what}");
            }
        }
    }
}
