//! A trace of calls: lines of `seconds,key` or `seconds,key,cost`.

use std::sync::Arc;

use super::{Document, Field};
use crate::engine::Nanos;
use crate::rules::wording;
use crate::sim::setup::Traced;

const LINE: &str = "lines of `seconds,key` or `seconds,key,cost`, such as `1.250,42,1`, keys and costs being whole \
                    numbers; a first line with the names of columns; lines that begin with `#`";

impl Document<'_, '_> {
    pub(super) fn trace(&mut self, value: Field<'_, '_>, path: &str) -> Option<Arc<[Traced]>> {
        let name = self.reader.text(value, path, "the name of a CSV file in quotes")?.value;
        let text = match std::fs::read_to_string(self.folder.join(&name)) {
            Ok(text) => text,
            Err(error) => {
                self.unreadable(format!("`{name}`: {error}"), "a readable CSV file", path, value);
                return None;
            }
        };
        match parse(&text) {
            Ok(lines) => Some(lines.into()),
            Err((number, line)) => {
                let found = format!("{} in line {number} of `{name}`", wording::quote(&line));
                self.unreadable(found, LINE, path, value);
                None
            }
        }
    }
}

/// The lines in order of time, or the first that is none.
fn parse(text: &str) -> Result<Vec<Traced>, (usize, String)> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let is_head = number == 1 && line.starts_with(|first: char| first.is_alphabetic());
        if line.is_empty() || line.starts_with('#') || is_head {
            continue;
        }
        lines.push(traced(line).ok_or_else(|| (number, line.to_owned()))?);
    }
    lines.sort_by_key(|line| line.at);
    Ok(lines)
}

fn traced(line: &str) -> Option<Traced> {
    let mut fields = line.split(',').map(str::trim);
    let (at, key) = (seconds(fields.next()?)?, fields.next()?.parse().ok()?);
    // The highest number is what an own key would begin at.
    let key = Some(key).filter(|&key| key < u32::MAX)?;
    let cost = fields.next().map_or(Some(1), |cost| cost.parse().ok().filter(|&cost| cost > 0))?;
    fields.next().is_none().then_some(Traced { at, key, cost })
}

/// Seconds with up to nine decimals.
fn seconds(text: &str) -> Option<Nanos> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    let nanos = part.parse::<u64>().ok()? * 10_u64.pow(9 - part.len() as u32);
    Some(Nanos::new(whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::engine::Nanos;
    use crate::sim::setup::Traced;

    #[test]
    fn a_trace_is_sorted_and_its_first_bad_line_is_told() {
        let line = |millis, key, cost| Traced { at: Nanos::from_millis(millis), key, cost };
        let trace = "seconds,key,cost\n# a comment\n2, 7\n1.250,42,3\n\n";
        assert_eq!(parse(trace), Ok(vec![line(1_250, 42, 3), line(2_000, 7, 1)]));
        assert_eq!(parse("1,2\n1,x"), Err((2, "1,x".to_owned())));
        for bad in ["1", "1,2,0", "1,2,3,4", "-1,2", "1.,2", "1.1234567890,2", "1,4294967295"] {
            assert_eq!(parse(bad), Err((1, bad.to_owned())));
        }
    }
}
