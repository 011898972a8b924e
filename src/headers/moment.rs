//! Moments and waits in all their spellings; the value decides, not the field's name.

use std::str;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::{SignedDuration, Timestamp, fmt::rfc2822};

use super::dialect::Form;
use super::number::Number;

/// What lies further ahead is not believed.
pub(super) const HORIZON: Duration = Duration::from_secs(366 * 86_400);

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// A moment as it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// So long after the response was sent.
    After(Duration),
    /// Before it was sent.
    Before,
    /// In nanoseconds since 1970. What lies beyond 2262 is beyond belief anyhow, and is cut to that.
    At(i64),
}

/// A moment and how finely it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) moment: Moment,
    pub(super) grain: Duration,
}

/// How far ahead a moment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ahead {
    Over,
    In(Duration),
}

impl Moment {
    pub(super) fn ahead(self, base: i64) -> Ahead {
        match self {
            Self::After(time) => Ahead::In(time),
            Self::Before => Ahead::Over,
            Self::At(at) if at < base => Ahead::Over,
            Self::At(at) => Ahead::In(Duration::from_nanos(at.abs_diff(base))),
        }
    }
}

/// Each moment in `value`: it is one, or it is several with commas between.
pub(super) fn each(value: &[u8], form: Form, mut found: impl FnMut(Told)) {
    if let Some(told) = read(value, form) {
        return found(told);
    }
    // The comma of a date is not one between moments.
    let mut rest = value;
    while !rest.is_empty() {
        let end = comma(rest, 0);
        let (piece, next) = match read(trim(&rest[..end]), form) {
            Some(told) => (Some(told), end),
            None => {
                let end_of_date = comma(rest, end + 1);
                let date = rest.get(..end_of_date).and_then(|date| read(trim(date), form));
                (date, if date.is_some() { end_of_date } else { end })
            }
        };
        if let Some(told) = piece {
            found(told);
        }
        rest = rest.get(next + 1..).unwrap_or_default();
    }
}

/// Reads all of `text` as one moment.
pub(super) fn read(text: &[u8], form: Form) -> Option<Told> {
    if let Some(number) = Number::read(text) {
        return Some(from_number(number, form));
    }
    let text = str::from_utf8(text).ok()?;
    match form {
        Form::Any => match text.as_bytes() {
            // Each reader writes an error message for what is not its own.
            [b'0'..=b'9', _, _, _, b'-', ..] => rfc3339(text),
            [b'0'..=b'9' | b'-' | b'P', ..] => span(text),
            _ => date(text),
        },
        Form::RetryAfter => date(text),
        Form::Seconds | Form::Milliseconds | Form::Minutes => None,
    }
}

pub(super) fn from_number(number: Number, form: Form) -> Told {
    let after = |time: Duration, grain: Duration| {
        let moment = if number.is_negative() { Moment::Before } else { Moment::After(time) };
        Told { moment, grain }
    };
    let seconds = if number.fraction { MILLISECOND } else { SECOND };
    match form {
        Form::Any | Form::RetryAfter if number.is_negative() => after(Duration::ZERO, seconds),
        Form::Any | Form::RetryAfter => {
            let at = |nanos| Moment::At(cut(number.times(nanos)));
            match number.whole {
                // 31 years from now, or 2001: nothing real lies on the wrong side.
                0..=999_999_999 => after(number.seconds(), seconds),
                1_000_000_000..=99_999_999_999 => Told { moment: at(1_000_000_000), grain: seconds },
                100_000_000_000..=99_999_999_999_999 => Told { moment: at(1_000_000), grain: MILLISECOND },
                100_000_000_000_000..=99_999_999_999_999_999 => Told { moment: at(1_000), grain: MILLISECOND },
                100_000_000_000_000_000.. => Told { moment: at(1), grain: MILLISECOND },
            }
        }
        Form::Seconds => after(number.seconds(), seconds),
        Form::Milliseconds => after(duration(number.times(1_000_000)), MILLISECOND),
        Form::Minutes => after(duration(number.times(60_000_000_000)), if number.fraction { SECOND } else { MINUTE }),
    }
}

/// A date in nanoseconds since 1970: one of the three forms of HTTP, or that of mail with its zone.
pub(super) fn http_date(text: &[u8]) -> Option<i64> {
    let text = str::from_utf8(text).ok()?;
    if let Ok(time) = httpdate::parse_http_date(text) {
        return Some(since_1970(time));
    }
    // Nothing else ends so, and what fails here costs an error message.
    let zone = text.rsplit(' ').next().unwrap_or_default();
    let has_zone = zone == "UTC" || zone.starts_with(['+', '-']);
    let zoned = if has_zone { rfc2822::parse(text).ok()? } else { return None };
    Some(cut(zoned.timestamp().as_nanosecond()))
}

/// Nanoseconds since 1970, negative before.
pub(super) fn since_1970(time: SystemTime) -> i64 {
    let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    time.duration_since(UNIX_EPOCH).map_or_else(|before| -nanos(before.duration()), nanos)
}

pub(super) fn trim(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii_start();
    text.trim_ascii_end()
}

fn span(text: &str) -> Option<Told> {
    let span: SignedDuration = text.parse().ok()?;
    let moment = if span.is_negative() { Moment::Before } else { Moment::After(span.unsigned_abs()) };
    Some(Told { moment, grain: MILLISECOND })
}

fn rfc3339(text: &str) -> Option<Told> {
    let at: Timestamp = text.parse().ok()?;
    let grain = match (text.contains('.'), text.split('T').nth(1).is_some_and(|time| time.matches(':').count() == 1)) {
        (true, _) => MILLISECOND,
        (false, true) if text.ends_with('Z') => MINUTE,
        (false, _) => SECOND,
    };
    Some(Told { moment: Moment::At(cut(at.as_nanosecond())), grain })
}

fn date(text: &str) -> Option<Told> {
    http_date(text.as_bytes()).map(|at| Told { moment: Moment::At(at), grain: SECOND })
}

/// Where the next comma is from `from` on, or the end.
fn comma(text: &[u8], from: usize) -> usize {
    let behind = text.get(from..).unwrap_or_default();
    behind.iter().position(|byte| *byte == b',').map_or(text.len(), |at| from + at)
}

fn cut(nanos: i128) -> i64 {
    i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

/// Not negative; what is too long is cut far beyond the horizon.
fn duration(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(text: &str) -> Option<Moment> {
        read(text.as_bytes(), Form::Any).map(|told| told.moment)
    }

    fn all(text: &str, form: Form) -> Vec<Moment> {
        let mut all = Vec::new();
        each(text.as_bytes(), form, |told| all.push(told.moment));
        all
    }

    const fn secs(secs: u64) -> Moment {
        Moment::After(Duration::from_secs(secs))
    }

    #[test]
    fn numbers_are_told_apart_by_their_size() {
        let at = Moment::At(1_764_460_807_000_000_000);
        assert_eq!(any("999999999"), Some(secs(999_999_999)));
        for text in ["1764460807", "1764460807.000", "1764460807000", "1764460807000000", "1764460807000000000"] {
            assert_eq!(any(text), Some(at), "{text}");
        }
        assert_eq!(any("-1"), Some(Moment::Before));
        assert_eq!(
            read(b"42500", Form::Milliseconds).map(|told| told.moment),
            Some(Moment::After(Duration::from_millis(42_500)))
        );
        assert_eq!(read(b"1764460807", Form::Seconds).map(|told| told.moment), Some(secs(1_764_460_807)));
        assert_eq!(read(b"19", Form::Minutes).map(|told| told.moment), Some(secs(1_140)));
    }

    #[test]
    fn words_are_durations_times_or_dates_as_a_whole() {
        assert_eq!(any("6m0s"), Some(secs(360)));
        assert_eq!(any("12ms"), Some(Moment::After(Duration::from_millis(12))));
        assert_eq!(any("23h47m36.648s"), Some(Moment::After(Duration::from_millis(85_656_648))));
        assert_eq!(any("-5s"), Some(Moment::Before));
        let at = |text| match any(text) {
            Some(Moment::At(at)) => at / 1_000_000_000 - 1_764_460_800,
            told => panic!("{text}: {told:?}"),
        };
        assert_eq!(at("2025-11-30T00:01Z"), 60);
        assert_eq!(at("2025-11-30T03:00:30+03:00"), 30);
        assert_eq!(at("Sun, 30 Nov 2025 00:00:42 GMT"), 42);
        assert_eq!(at("Sun, 30 Nov 2025 03:02:00 +0300"), 120);
        assert_eq!(at("Sun, 30 Nov 2025 00:02:00 UTC"), 120);
        for text in [
            "soon",
            "inf",
            "nan",
            "1e400",
            "+1",
            "5 ",
            "2025-11-30 00:00:25",
            "2025-11-30T00:00:25",
            "1d x",
            "P",
            "12:30",
            "Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)",
            "Fri, 29 Sep 100000 16:26:57 GMT",
            "",
        ] {
            assert_eq!(any(text), None, "{text}");
        }
        assert_eq!(read("6m0s".as_bytes(), Form::RetryAfter), None);
    }

    #[test]
    fn the_comma_of_a_date_separates_nothing() {
        let date = Moment::At(1_764_460_920_000_000_000);
        let form = Form::RetryAfter;
        assert_eq!(all("30, Sun, 30 Nov 2025 00:02:00 GMT", form), [secs(30), date]);
        assert_eq!(all("Sun, 30 Nov 2025 00:02:00 GMT, 30", form), [date, secs(30)]);
        assert_eq!(all("x, 30,, 60,", form), [secs(30), secs(60)]);
        assert_eq!(all("", form), []);
        assert_eq!(all(",", form), []);
    }
}
