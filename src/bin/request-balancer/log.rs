//! Logs of starts as CSV.

use std::path::Path;
use std::time::Duration;

use request_balancer::{Rules, Start};

/// The columns that every log may have, beside one for each declared unit.
const COLUMNS: [&str; 6] = ["at", "rule", "key", "cost", "end", "again"];

/// A column that logs of rules with a pool may have.
const ENDPOINT: &str = "endpoint";

/// The starts that a file tells of.
pub(crate) fn read(file: &Path, rules: &Rules) -> Result<Vec<Start>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
    let units: Vec<&str> = rules.units().collect();
    text.and_then(|text| parse(&text, &units)).map_err(|error| format!("{}: {error}", file.display()))
}

/// A first line that names the columns, then a line for each start: with its endpoint, if any has one.
pub(crate) fn written(starts: &[Start], units: &[&str]) -> String {
    let pooled = starts.iter().any(|start| start.endpoint.is_some());
    let instant = |at: &Option<Duration>| at.map(|at| format!("{}.{:09}", at.as_secs(), at.subsec_nanos()));
    let lines = starts.iter().map(|start| {
        let Start { at, rule, key, cost, end, again, .. } = start;
        let [at, end, again] = [&Some(*at), end, again].map(|at| instant(at).unwrap_or_default());
        let costs = units.iter().map(|unit| {
            let taken = start.units.iter().filter(|(name, _)| name == unit).map(|&(_, cost)| u64::from(cost));
            format!(",{}", taken.sum::<u64>())
        });
        let on = start.endpoint.as_deref().unwrap_or_default();
        let on = if pooled { format!(",{on}") } else { String::new() };
        format!("{at},{rule},{key},{cost},{end},{again}{on}{}\n", costs.collect::<String>())
    });
    let head: Vec<&str> = COLUMNS.iter().chain(pooled.then_some(&ENDPOINT)).chain(units).copied().collect();
    std::iter::once(head.join(",") + "\n").chain(lines).collect()
}

fn parse(text: &str, units: &[&str]) -> Result<Vec<Start>, String> {
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let Some((_, head)) = lines.next() else { return Err(expected("no first line", units)) };
    let names: Vec<&str> = head.split(',').map(str::trim).collect();
    if let Some(unknown) =
        names.iter().find(|name| !COLUMNS.contains(name) && **name != ENDPOINT && !units.contains(name))
    {
        return Err(expected(&format!("a column `{unknown}`"), units));
    }
    let column = |wanted: &str| names.iter().position(|name| *name == wanted);
    let (Some(at), Some(rule), Some(key)) = (column("at"), column("rule"), column("key")) else {
        return Err(expected(&format!("`{head}`"), units));
    };
    let mut starts = Vec::new();
    for (number, line) in lines {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let wrong = |what: &str| format!("line {number}: found `{line}`; allowed: {what}");
        if fields.len() != names.len() {
            return Err(wrong(&format!("{} fields, as the first line says", names.len())));
        }
        let field = |wanted: &str| column(wanted).map(|column| fields[column]).filter(|text| !text.is_empty());
        let whole = |name: &str| {
            let number = field(name).map(|text| text.parse::<u32>()).transpose();
            number.map_err(|_| wrong(&format!("a `{name}` that is a whole number, or nothing")))
        };
        let instant = |name: &str| {
            let parsed = |text| seconds(text).ok_or_else(|| wrong(&format!("`{name}` in seconds, or nothing")));
            field(name).map(parsed).transpose()
        };
        let at = seconds(fields[at]).ok_or_else(|| wrong("`at` in seconds, such as `12.5`"))?;
        let mut start = Start::new(at, fields[rule], fields[key]).cost(whole("cost")?.unwrap_or(1));
        for unit in units {
            if let Some(cost) = whole(unit)? {
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
    Ok(starts)
}

fn expected(found: &str, units: &[&str]) -> String {
    let units: String = units.iter().map(|unit| format!(", `{unit}`")).collect();
    format!(
        "found {found}; allowed: a first line that names the columns `at`, `rule`, `key`, and if they are there `cost`, \
         `end`, `again`, `{ENDPOINT}`{units}"
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

    #[test]
    fn columns_may_be_in_any_order_and_some_may_be_missing() {
        let at = Duration::from_millis;
        let log = "key,at,rule,end,cost\n42,1.5,group,1.75,\nshop,0.000000001,read,,3\n\n";
        let expected = [
            Start::new(at(1_500), "group", 42).end(at(1_750)),
            Start::new(Duration::from_nanos(1), "read", "shop").cost(3),
        ];
        assert_eq!(parse(log, &[]), Ok(expected.to_vec()));
        let pooled = [Start::new(at(1_000), "group", 42).on("bot-a")];
        assert_eq!(parse("at,rule,key,endpoint\n1,group,42,bot-a", &[]), Ok(pooled.to_vec()));
        assert_eq!(parse("at,rule,key", &[]), Ok(Vec::new()));
        for bad in [
            "",
            "at,rule",
            "at,rule,key,who",
            "at,rule,key\n1,2",
            "at,rule,key\n-1,a,b",
            "at,rule,key\n1.,a,b",
            "at,rule,key,again\n1,a,b,x",
            "at,rule,key,tokens\n1,a,b,1.5",
        ] {
            assert!(parse(bad, &["tokens"]).is_err_and(|error| error.contains("allowed: ")), "{bad}");
        }
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let at = Duration::from_millis;
        let log = [
            Start::new(at(1_500), "chat", 1).cost(2).units("tokens", 900).end(at(1_720)).refused(at(6_720)),
            Start::new(at(1_501), "chat", 2).units("tokens", 0),
        ];
        assert_eq!(parse(&written(&log, &["tokens"]), &["tokens"]), Ok(log.to_vec()));
        let pooled = log.map(|start| if start.key == "1" { start.on("bot-a") } else { start });
        assert_eq!(parse(&written(&pooled, &["tokens"]), &["tokens"]), Ok(pooled.to_vec()));
    }
}
