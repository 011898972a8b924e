//! `verify RULES STARTS.csv`: breaches in anybody's log of starts.

use std::path::Path;
use std::time::Duration;

use request_balancer::{Start, verify};
use serde_json::{Value, json};

use crate::Outcome;
use crate::check::load;

pub(crate) fn run(rules: &Path, starts: &Path, json: bool) -> Outcome {
    let Some(rules) = load(rules, json) else { return Outcome::Found };
    let log = std::fs::read_to_string(starts).map_err(|error| error.to_string()).and_then(|text| parse(&text));
    let log = match log {
        Ok(log) => log,
        Err(error) => {
            eprintln!("{}: {error}", starts.display());
            return Outcome::Found;
        }
    };
    let breaches = verify(&rules, &log);
    if json {
        let list: Vec<Value> = breaches.iter().map(|breach| breach.to_string().into()).collect();
        println!("{:#}", json!({ "starts": log.len(), "breaches": list }));
    } else {
        breaches.iter().for_each(|breach| println!("{breach}"));
        let plural = if breaches.len() == 1 { "breach" } else { "breaches" };
        println!("{} starts, {} {plural}", log.len(), breaches.len());
    }
    if breaches.is_empty() { Outcome::Fine } else { Outcome::Found }
}

/// A first line that names the columns, then a line for each start.
fn parse(text: &str) -> Result<Vec<Start>, String> {
    const COLUMNS: [&str; 6] = ["at", "rule", "key", "cost", "endpoint", "end"];
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let Some((_, head)) = lines.next() else { return Err(expected("no first line")) };
    let names: Vec<&str> = head.split(',').map(str::trim).collect();
    if let Some(unknown) = names.iter().find(|name| !COLUMNS.contains(name)) {
        return Err(expected(&format!("a column `{unknown}`")));
    }
    let column = |wanted: &str| names.iter().position(|name| *name == wanted);
    let (Some(at), Some(rule), Some(key)) = (column("at"), column("rule"), column("key")) else {
        return Err(expected(&format!("`{head}`")));
    };
    let (cost, endpoint, end) = (column("cost"), column("endpoint"), column("end"));
    let mut starts = Vec::new();
    for (number, line) in lines {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let wrong = |what: &str| format!("line {number}: found `{line}`; allowed: {what}");
        if fields.len() != names.len() {
            return Err(wrong(&format!("{} fields, as the first line says", names.len())));
        }
        let mut start = Start::new(
            seconds(fields[at]).ok_or_else(|| wrong("`at` in seconds, such as `12.5`"))?,
            fields[rule],
            fields[key],
        );
        if let Some(text) = cost.map(|cost| fields[cost]).filter(|text| !text.is_empty()) {
            start = start.cost(text.parse().map_err(|_| wrong("a `cost` that is a whole number, or nothing"))?);
        }
        if let Some(text) = endpoint.map(|endpoint| fields[endpoint]).filter(|text| !text.is_empty()) {
            start = start.on(text);
        }
        if let Some(text) = end.map(|end| fields[end]).filter(|text| !text.is_empty()) {
            start = start.end(seconds(text).ok_or_else(|| wrong("an `end` in seconds, or nothing"))?);
        }
        starts.push(start);
    }
    Ok(starts)
}

fn expected(found: &str) -> String {
    format!(
        "found {found}; allowed: a first line that names the columns `at`, `rule`, `key`, and if they are there `cost`, \
         `endpoint`, `end`"
    )
}

/// Seconds with up to nine decimals, to the nanosecond.
fn seconds(text: &str) -> Option<Duration> {
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
    use super::parse;
    use request_balancer::Start;
    use std::time::Duration;

    #[test]
    fn columns_may_be_in_any_order_and_costs_and_ends_may_be_missing() {
        let at = Duration::from_millis;
        let log = "key,at,rule,end,cost\n42,1.5,group,1.75,\nshop,0.000000001,read,,3\n\n";
        let expected = [
            Start::new(at(1_500), "group", 42).end(at(1_750)),
            Start::new(Duration::from_nanos(1), "read", "shop").cost(3),
        ];
        assert_eq!(parse(log), Ok(expected.to_vec()));
        assert_eq!(parse("at,rule,key"), Ok(Vec::new()));
        for bad in ["", "at,rule", "at,rule,key,who", "at,rule,key\n1,2", "at,rule,key\n-1,a,b", "at,rule,key\n1.,a,b"]
        {
            assert!(parse(bad).is_err_and(|error| error.contains("allowed: ")), "{bad}");
        }
    }
}
