//! Logs of starts as CSV.

use std::path::Path;
use std::time::Duration;

use csv::{ReaderBuilder, StringRecord};
use request_balancer::{Rules, Start};

/// The columns that logs may have, beside one for each declared unit.
const COLUMNS: [&str; 7] = ["at", "rule", "key", "cost", "end", "again", ENDPOINT];

/// A column that logs of rules with a pool may have.
const ENDPOINT: &str = "endpoint";

/// A log, and what it says nothing of.
#[derive(Debug, PartialEq)]
pub(crate) struct Log {
    pub(crate) starts: Vec<Start>,
    /// Declared units without a column.
    pub(crate) without_units: Vec<String>,
    pub(crate) without_endpoints: bool,
}

impl Log {
    /// The limits that it says nothing of, in words.
    pub(crate) fn silent_of(&self, rules: &Rules) -> Vec<String> {
        let units = self.without_units.iter().map(|unit| format!("limits of {unit}: the log has no column for them"));
        let pool = self.without_endpoints && rules.has_pool();
        units.chain(pool.then(|| format!("limits of endpoints: the log has no column `{ENDPOINT}`"))).collect()
    }
}

/// The starts that a file tells of.
pub(crate) fn read(file: &Path, rules: &Rules) -> Result<Log, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
    let units: Vec<&str> = rules.units().collect();
    text.and_then(|text| parse(&text, &units)).map_err(|error| format!("{}: {error}", file.display()))
}

/// A first line that names the columns, then a line for each start: with its endpoint, if any has one.
pub(crate) fn written(starts: &[Start], units: &[&str]) -> Result<String, String> {
    let pooled = starts.iter().any(|start| start.endpoint.is_some());
    let instant = |at: Option<Duration>| at.map(|at| format!("{}.{:09}", at.as_secs(), at.subsec_nanos()));
    let mut writer = csv::Writer::from_writer(Vec::new());
    let named = COLUMNS.iter().filter(|name| pooled || **name != ENDPOINT).map(ToString::to_string);
    let head: Vec<String> = named.chain(units.iter().map(|unit| column_of(unit))).collect();
    writer.write_record(head).map_err(|error| error.to_string())?;
    for start in starts {
        let Start { at, rule, key, cost, end, again, endpoint, .. } = start;
        let [at, end, again] = [Some(*at), *end, *again].map(|at| instant(at).unwrap_or_default());
        let mut fields = vec![at, rule.clone(), key.clone(), cost.to_string(), end, again];
        fields.extend(pooled.then(|| endpoint.clone().unwrap_or_default()));
        fields.extend(units.iter().map(|unit| {
            let taken = start.units.iter().filter(|(name, _)| name == unit).map(|&(_, cost)| u64::from(cost));
            taken.sum::<u64>().to_string()
        }));
        writer.write_record(fields).map_err(|error| error.to_string())?;
    }
    let bytes = writer.into_inner().map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

/// The column of a unit: its name, unless that is another column's.
fn column_of(unit: &str) -> String {
    if COLUMNS.contains(&unit) { format!("units.{unit}") } else { unit.to_owned() }
}

fn parse(text: &str, units: &[&str]) -> Result<Log, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut lines = reader.records().filter(|line| line.as_ref().map_or(true, |line| !is_blank(line)));
    let Some(head) = lines.next() else { return Err(expected("no first line", units)) };
    let head = head.map_err(|error| error.to_string())?;
    let names: Vec<&str> = head.iter().map(str::trim).collect();
    let columns: Vec<String> = units.iter().map(|unit| column_of(unit)).collect();
    for (position, name) in names.iter().enumerate() {
        if !COLUMNS.contains(name) && !columns.iter().any(|column| column == name) {
            return Err(expected(&format!("a column `{name}`"), units));
        }
        if names[..position].contains(name) {
            return Err(expected(&format!("two columns `{name}`"), units));
        }
    }
    let column = |wanted: &str| names.iter().position(|name| *name == wanted);
    let (Some(at), Some(rule), Some(key)) = (column("at"), column("rule"), column("key")) else {
        return Err(expected(&format!("`{}`", names.join(",")), units));
    };
    let mut starts = Vec::new();
    for line in lines {
        let line = line.map_err(|error| error.to_string())?;
        let fields: Vec<&str> = line.iter().collect();
        let wrong = |what: &str| {
            let number = number_of(&line, text);
            format!("line {number}: found `{}`; allowed: {what}", fields.join(","))
        };
        if fields.len() != names.len() {
            return Err(wrong(&format!("{} fields, as the first line says", names.len())));
        }
        let field = |wanted: &str| column(wanted).map(|column| fields[column].trim()).filter(|text| !text.is_empty());
        let whole = |name: &str| {
            let number = field(name).map(|text| text.parse::<u32>()).transpose();
            number.map_err(|_| wrong(&format!("a `{name}` that is a whole number, or nothing")))
        };
        let instant = |name: &str| {
            let parsed = |text| seconds(text).ok_or_else(|| wrong(&format!("`{name}` in seconds, or nothing")));
            field(name).map(parsed).transpose()
        };
        let at = seconds(fields[at].trim()).ok_or_else(|| wrong("`at` in seconds, such as `12.5`"))?;
        let mut start = Start::new(at, fields[rule].trim(), fields[key].trim()).cost(whole("cost")?.unwrap_or(1));
        for (unit, column) in units.iter().zip(&columns) {
            if let Some(cost) = whole(column)? {
                start = start.units(*unit, cost);
            }
        }
        if let Some(endpoint) = field(ENDPOINT) {
            start = start.on(endpoint);
        }
        if let Some(end) = instant("end")? {
            start = start.end(end);
        }
        if let Some(again) = instant("again")? {
            start = start.refused(again);
        }
        starts.push(start);
    }
    let without = units.iter().zip(&columns).filter(|(_, name)| column(name).is_none());
    let without_units = without.map(|(unit, _)| (*unit).to_owned()).collect();
    Ok(Log { starts, without_units, without_endpoints: column(ENDPOINT).is_none() })
}

/// In which line of the text it begins, behind the empty ones before it.
fn number_of(line: &StringRecord, text: &str) -> usize {
    let begin = line.position().and_then(|position| usize::try_from(position.byte()).ok()).unwrap_or_default();
    let rest = text.get(begin..).unwrap_or_default();
    let empty = rest.len() - rest.trim_start_matches(['\r', '\n']).len();
    1 + text.bytes().take(begin + empty).filter(|&byte| byte == b'\n').count()
}

fn is_blank(line: &StringRecord) -> bool {
    line.len() == 1 && line[0].trim().is_empty()
}

fn expected(found: &str, units: &[&str]) -> String {
    let units: String = units.iter().map(|unit| format!(", `{}`", column_of(unit))).collect();
    format!(
        "found {found}; allowed: a first line that names once each the columns `at`, `rule`, `key`, and if they are there \
         `cost`, `end`, `again`, `{ENDPOINT}`{units}"
    )
}

/// Seconds with up to nine decimals, to the nanosecond.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    let nanos = part.parse::<u32>().ok()? * 10_u32.pow(9 - part.len() as u32);
    Some(Duration::new(whole.parse().ok()?, nanos))
}

#[cfg(test)]
mod tests {
    use super::{parse, written};
    use request_balancer::Start;
    use std::time::Duration;

    fn starts(log: &str, units: &[&str]) -> Result<Vec<Start>, String> {
        parse(log, units).map(|log| log.starts)
    }

    #[test]
    fn columns_may_be_in_any_order_and_some_may_be_missing() {
        let at = Duration::from_millis;
        let log = "key,at,rule,end,cost\n42, 1.5,group,1.75,\n\nshop,0.000000001, read,,3\n \n";
        let expected = [
            Start::new(at(1_500), "group", 42).end(at(1_750)),
            Start::new(Duration::from_nanos(1), "read", "shop").cost(3),
        ];
        assert_eq!(starts(log, &[]), Ok(expected.to_vec()));
        let pooled = [Start::new(at(1_000), "group", 42).on("bot-a")];
        assert_eq!(starts("at,rule,key,endpoint\n1,group,42,bot-a", &[]), Ok(pooled.to_vec()));
        assert_eq!(starts("at,rule,key", &[]), Ok(Vec::new()));
        // As tables are saved with a mark of their encoding and the line ends of another system.
        assert_eq!(starts("\u{feff}at,rule,key,endpoint\r\n1,group,42,bot-a\r\n", &[]), Ok(pooled.to_vec()));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (bad, found) in [
            ("", "found no first line"),
            ("at,rule", "found `at,rule`"),
            ("at,rule,key,who", "found a column `who`"),
            ("at,at,rule,key\n1,2,a,b", "found two columns `at`"),
            ("at,rule,key\n\n1,2", "line 3: found `1,2`"),
            ("at,rule,key\n\"1\n2\",a,b", "line 2: found `1\n2,a,b`"),
            ("at,rule,key\n-1,a,b", "line 2: found `-1,a,b`"),
            ("at,rule,key\n1.,a,b", "line 2: found `1.,a,b`"),
            ("at,rule,key,again\n1,a,b,x", "line 2: found `1,a,b,x`"),
            ("at,rule,key,tokens\n1,a,b,1.5", "line 2: found `1,a,b,1.5`"),
        ] {
            let error = parse(bad, &["tokens"]).expect_err(bad);
            assert!(error.starts_with(found) && error.contains("; allowed: "), "{bad}: {error}");
        }
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let at = Duration::from_millis;
        let log = [
            Start::new(at(1_500), "chat", 1).cost(2).units("tokens", 900).end(at(1_720)).refused(at(6_720)),
            Start::new(at(1_501), "chat", 2).units("tokens", 0),
        ];
        let read = |log: &[Start], units: &[&str]| starts(&written(log, units).expect("text"), units);
        assert_eq!(read(&log, &["tokens"]), Ok(log.to_vec()));
        let pooled = log.clone().map(|start| start.on("bot-a"));
        assert_eq!(read(&pooled, &["tokens"]), Ok(pooled.to_vec()));
        // Names are anybody's.
        let odd = [Start::new(at(0), "b,c", "say \"hi\"").on("eu,west"), Start::new(at(1), "é\nü", "a;b").on("x")];
        assert_eq!(read(&odd, &[]), Ok(odd.to_vec()));
    }

    #[test]
    fn a_unit_named_as_a_column_has_one_of_its_own() {
        let units = ["cost", "tokens", "key"];
        let log = [Start::new(Duration::ZERO, "a", "b").cost(2).units("cost", 7).units("tokens", 8).units("key", 9)];
        let text = written(&log, &units).expect("text");
        assert!(text.starts_with("at,rule,key,cost,end,again,units.cost,tokens,units.key\n"), "{text}");
        assert_eq!(starts(&text, &units), Ok(log.to_vec()));
        let plain = parse("at,rule,key,cost\n0,a,b,2", &units).expect("a log");
        assert_eq!(plain.starts, [Start::new(Duration::ZERO, "a", "b").cost(2)]);
        assert_eq!((plain.without_units, plain.without_endpoints), (units.map(str::to_owned).to_vec(), true));
    }
}
