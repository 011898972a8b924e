//! `verify RULES STARTS.csv`: breaches in anybody's log of starts.

use std::path::Path;

use request_balancer::verify;
use serde_json::{Value, json};

use crate::check::load;
use crate::{Outcome, log};

pub(crate) fn run(rules: &Path, starts: &Path, json: bool) -> Outcome {
    let Some(rules) = load(rules, json) else { return Outcome::Found };
    let log = match log::read(starts, &rules) {
        Ok(log) => log,
        Err(error) => {
            eprintln!("{error}");
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
