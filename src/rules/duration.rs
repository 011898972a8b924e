//! Lengths of time in the rules: humantime's words, exact in nanoseconds.

use std::time::Duration;

use super::finding::{Finding, FindingCode};
use super::wording::{self, nearest, quote};
use crate::engine::Nanos;

const UNITS: &[&str] = &["ns", "us", "ms", "s", "m", "h", "day", "week", "month", "year", "sec", "min", "hour"];

const ALLOWED: &str = "a length of time such as `500ms`, `60s`, `1h 30m`";

/// Reads `60s`, `1h 30m`.
pub(super) fn parse(text: &str) -> Result<Nanos, Finding> {
    let invalid = || Finding::new(FindingCode::InvalidDuration, quote(text), ALLOWED);
    let mut sum = Duration::ZERO;
    let mut parts = 0;
    for part in components(text) {
        let unit = part.trim().trim_start_matches(|c: char| !c.is_alphabetic());
        if unit == "M" {
            // To humantime it is a month; nobody who writes a rate limit means one.
            return Err(Finding::new(
                FindingCode::InvalidDuration,
                format!("{}, where `M` stands for a month", quote(text)),
                "`m` for minutes, `month` for months",
            )
            .did_you_mean(Some("m")));
        }
        // One component at a time: humantime's own sum overflows at its upper end.
        let span = match humantime::parse_duration(part) {
            Ok(span) => span,
            Err(humantime::DurationError::NumberOverflow) if !part.contains('.') => {
                return Err(wording::too_long(quote(text)));
            }
            Err(humantime::DurationError::UnknownUnit { unit, .. }) => {
                let near = nearest(&unit, UNITS.iter().copied()).map(str::to_owned);
                let forgotten = unit.is_empty().then(|| format!("{}s", text.trim()));
                return Err(invalid().did_you_mean(forgotten.or(near)));
            }
            Err(_) => return Err(invalid()),
        };
        sum = sum.checked_add(span).ok_or_else(|| wording::too_long(quote(text)))?;
        parts += 1;
    }
    if parts == 0 {
        return Err(invalid());
    }
    match Nanos::from(sum) {
        Nanos::MAX => Err(wording::too_long(quote(text))),
        span => Ok(span),
    }
}

/// Writes `span` in the largest unit that says it exactly, but up to two minutes in seconds.
pub(super) fn format(span: Nanos) -> String {
    let nanos = span.get();
    if !nanos.is_multiple_of(1_000) {
        return format!("{nanos}ns");
    }
    if !nanos.is_multiple_of(1_000_000) {
        return format!("{}us", nanos / 1_000);
    }
    if !nanos.is_multiple_of(1_000_000_000) {
        return format!("{}ms", nanos / 1_000_000);
    }
    let secs = nanos / 1_000_000_000;
    if secs <= 120 || !secs.is_multiple_of(60) {
        format!("{secs}s")
    } else if !secs.is_multiple_of(3_600) {
        format!("{}m", secs / 60)
    } else if !secs.is_multiple_of(86_400) {
        format!("{}h", secs / 3_600)
    } else {
        format!("{}day", secs / 86_400)
    }
}

/// Cuts `1h 30m` before each digit that follows a letter.
fn components(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim();
    std::iter::from_fn(move || {
        let mut letter = false;
        let end = rest.char_indices().find_map(|(at, c)| {
            let cut = letter && c.is_ascii_digit();
            letter |= c.is_alphabetic();
            cut.then_some(at)
        });
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_exactly() {
        for (text, nanos) in [
            ("0s", 0),
            ("1ns", 1),
            ("500us", 500_000),
            ("500ms", 500_000_000),
            ("1.5s", 1_500_000_000),
            ("60s", 60_000_000_000),
            ("1h 30m", 5_400_000_000_000),
            ("1h30m", 5_400_000_000_000),
            (" 1 day ", 86_400_000_000_000),
            ("18446744073709551614ns", u64::MAX - 1),
        ] {
            assert_eq!(parse(text), Ok(Nanos::new(nanos)), "{text}");
        }
    }

    #[test]
    fn refuses_in_words() {
        for (text, code, nearest) in [
            ("", FindingCode::InvalidDuration, None),
            ("   ", FindingCode::InvalidDuration, None),
            ("s", FindingCode::InvalidDuration, None),
            ("5", FindingCode::InvalidDuration, Some("5s")),
            ("-5s", FindingCode::InvalidDuration, None),
            ("5 m sec", FindingCode::InvalidDuration, None),
            ("0.5ns", FindingCode::InvalidDuration, None),
            ("5M", FindingCode::InvalidDuration, Some("m")),
            ("1h 5M", FindingCode::InvalidDuration, Some("m")),
            ("5 minuts", FindingCode::InvalidDuration, Some("min")),
            ("5S", FindingCode::InvalidDuration, Some("s")),
            ("585y", FindingCode::DurationTooLong, None),
            ("18446744073709551615ns", FindingCode::DurationTooLong, None),
            ("99999999999999999999s", FindingCode::DurationTooLong, None),
            ("18446744073709551615s 1000000000ns", FindingCode::DurationTooLong, None),
        ] {
            let finding = parse(text).expect_err(text);
            assert_eq!((finding.code(), finding.nearest()), (code, nearest), "{text}");
        }
    }

    #[test]
    fn writes_the_largest_exact_unit() {
        for (text, written) in [
            ("0s", "0s"),
            ("60s", "60s"),
            ("1m", "60s"),
            ("5m", "5m"),
            ("90m", "90m"),
            ("2h", "2h"),
            ("1 day", "1day"),
            ("1s 500ms", "1500ms"),
            ("1500ns", "1500ns"),
        ] {
            let span = parse(text).expect(text);
            assert_eq!(format(span), written);
            assert_eq!(parse(written), Ok(span));
        }
    }
}
