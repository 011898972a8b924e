//! Any response is read, and what is read is sound.

use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use request_balancer::Rules;
use request_balancer::headers::{self, Dialect, Observation};

/// Beyond it no wait and no reset is believed.
const HORIZON: Duration = Duration::from_secs(366 * 86_400);

/// Field names that dialects know, so that values get somewhere.
const NAMES: &[&str] = &[
    "retry-after",
    "date",
    "age",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-limit",
    "X-RateLimit-Remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-used",
    "x-ratelimit-remaining-tokens",
    "x-rate-limit",
    "anthropic-ratelimit-requests-reset",
    "retry-after-ms",
    "x-app-rate-limit",
    "x-app-rate-limit-count",
    "x-shopify-shop-api-call-limit",
    "units",
    "x-ms-ratelimit-remaining-x",
    "x-business-use-case-usage",
    "x-ratelimit-scope",
];

const STATUSES: &[u16] = &[200, 429, 503, 403, 400, 418, 0, u16::MAX];

/// Dialects that somebody added: every part and every form.
const ADDED: &str = r#"
[dialects.shop]
like = "auto"
scope = "global"
reset = "full"
bodies = "any"
refused = [200, 420]
windows.day = { limit = "x-ratelimit-limit", used = "x-ratelimit-used", per = "1day", scope = "key" }
windows.units = { unit = "points", spent_left_limit = "units" }
windows.any = { remaining = "x-ratelimit-remaining*", reset = { header = "x-ratelimit-reset*", form = "minutes" } }
windows.both = { used_of_limit = "x-shopify-shop-api-call-limit", length = "x-rate-limit" }
windows.pairs = { limits = "x-app-rate-limit", counts = "x-app-rate-limit-count" }
waits.age = "seconds"
waits.ratelimit = "milliseconds"
words.x-ratelimit-scope = { "1*" = ["refused", "key"], "*0" = ["not-refused"], "*" = ["final", "route"] }
body.waits = { retry_after = "retry-after", "error.code" = "any" }
body.words."error.code" = { "1" = ["refused", "global"] }
"#;

/// Those of the crate, and the added one behind them.
fn dialect(number: u8) -> &'static Dialect {
    static RULES: LazyLock<Rules> = LazyLock::new(|| ADDED.parse().expect("rules"));
    let number = usize::from(number) % (Dialect::all().len() + 1);
    Dialect::all().nth(number).or_else(|| RULES.dialect("shop")).expect("one of them")
}

/// Pieces that values are made of.
const PIECES: &[&str] = &[
    "1",
    "0",
    "-",
    ".",
    ",",
    ";",
    "=",
    ":",
    "/",
    " ",
    "\"",
    "r",
    "t=",
    "w=60",
    "q=10",
    "99999999999999999999",
    "1764460830",
    "1764460830000",
    "6m0s",
    "12ms",
    "-1",
    "2025-11-30T00:01Z",
    "Sun, 30 Nov 2025 00:02:00 GMT",
    "GMT",
    "\"a\";r=5;t=3",
    "limit=10, reset=1",
    "32/40",
    "20:1,100:120",
    "{",
    "}",
    "\"retry_after\":",
    "[",
    "]",
    "inf",
    "e9",
    "{\"error\":{\"code\":",
    "null",
    "Z",
    "+03:00",
    "UTC",
];

/// The first bytes choose status, dialect and moment; the rest are names, values and a body as they are.
pub(crate) fn headers_bytes(bytes: &[u8]) {
    let [status, dialect, moment, rest @ ..] = bytes else { return };
    let mut parts = rest.split(|byte| *byte == b'\n');
    let body = parts.next();
    let fields: Vec<_> = parts
        .map(|line| match line {
            [name, value @ ..] if *name < 128 => (NAMES[usize::from(*name) % NAMES.len()].as_bytes(), value),
            line => line.split_at(line.len() / 2),
        })
        .collect();
    read(*status, *dialect, *moment, &fields, body);
}

/// The same with pieces of values instead of letters.
pub(crate) fn headers_pieces(bytes: &[u8]) {
    let [status, dialect, moment, rest @ ..] = bytes else { return };
    let values: Vec<(usize, String)> = rest
        .split(|byte| *byte >= 240)
        .filter_map(|part| {
            let (name, pieces) = part.split_first()?;
            Some((usize::from(*name), pieces.iter().map(|piece| PIECES[usize::from(*piece) % PIECES.len()]).collect()))
        })
        .collect();
    let fields: Vec<_> =
        values.iter().map(|(name, value)| (NAMES[name % NAMES.len()].as_bytes(), value.as_bytes())).collect();
    read(*status, *dialect, *moment, &fields, values.first().map(|(_, value)| value.as_bytes()));
}

fn read(status: u8, dialect: u8, moment: u8, fields: &[(&[u8], &[u8])], body: Option<&[u8]>) {
    let status = match status {
        0..128 => STATUSES[usize::from(status) % STATUSES.len()],
        128.. => 5 * u16::from(status - 128) + 1,
    };
    let dialect = self::dialect(dialect);
    let now = match moment % 4 {
        0 => UNIX_EPOCH,
        1 => UNIX_EPOCH - Duration::from_secs(u32::MAX.into()),
        2 => UNIX_EPOCH + Duration::from_secs(1 << 40),
        _ => UNIX_EPOCH + Duration::from_secs(1_764_460_800),
    };
    let observation = headers::read(status, fields.iter().copied(), body, now, dialect);
    check(&observation, dialect);
    assert_eq!(observation, headers::read(status, fields.iter().copied(), body, now, dialect));
}

fn check(observation: &Observation, dialect: &Dialect) {
    assert!(observation.wait().is_none_or(|wait| wait <= HORIZON), "{observation:?} in {}", dialect.name());
    assert!(observation.windows().len() <= 8);
    for window in observation.windows() {
        assert!(window.reset_after().is_none_or(|reset| reset <= HORIZON), "{window:?}");
        if let (Some(limit), Some(remaining)) = (window.limit, window.remaining) {
            assert!(remaining <= limit, "{window:?}");
        }
        assert!(window.limit.is_some() || window.remaining.is_some() || window.reset.is_some(), "{window:?}");
    }
    if let Some(binding) = observation.binding() {
        assert!(observation.windows().contains(binding));
        assert!(binding.is_exhausted() || *binding.unit == *"requests", "{binding:?}");
    }
    // Whatever it is, it can be shown.
    assert!(!format!("{observation:?}").is_empty());
    assert!(observation.notes().iter().all(|note| !note.to_string().is_empty()));
}
