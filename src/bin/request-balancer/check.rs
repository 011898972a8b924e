//! `check FILE…`: findings with excerpts, and a reading in plain words.

use std::path::{Path, PathBuf};

use request_balancer::{Finding, Findings, Rules};
use serde_json::{Value, json};

use crate::Outcome;
use crate::excerpt::{Paint, as_json, excerpt};
use crate::words;

pub(crate) fn run(files: &[PathBuf], json: bool) -> Outcome {
    let checked: Vec<_> = files.iter().map(|file| (file, Rules::from_file(file))).collect();
    let findings = |rules: &Result<Rules, Findings>| match rules {
        Ok(rules) => rules.warnings().to_vec(),
        Err(findings) => findings.iter().cloned().collect::<Vec<Finding>>(),
    };
    if json {
        let list = checked.iter().map(|(file, rules)| {
            let findings: Vec<Value> = findings(rules).iter().map(as_json).collect();
            let reading = rules.as_ref().ok().map(words::reading);
            json!({ "file": file.display().to_string(), "loads": rules.is_ok(), "findings": findings, "reading": reading })
        });
        println!("{:#}", list.collect::<Value>());
    } else {
        for (file, rules) in &checked {
            print_findings(file, &findings(rules));
            if let Ok(rules) = rules {
                println!("{}:", file.display());
                words::reading(rules).iter().for_each(|line| println!("  {line}"));
            }
        }
    }
    let fine = checked.iter().all(|(_, rules)| findings(rules).is_empty());
    if fine { Outcome::Fine } else { Outcome::Found }
}

/// The rules of a file; if they do not load the findings are printed.
pub(crate) fn load(file: &Path, json: bool) -> Option<Rules> {
    match Rules::from_file(file) {
        Ok(rules) => Some(rules),
        Err(findings) => {
            print_all(file, &findings, json);
            None
        }
    }
}

/// Why a file does not load.
pub(crate) fn print_all(file: &Path, findings: &Findings, json: bool) {
    let list: Vec<Finding> = findings.iter().cloned().collect();
    if json {
        let findings: Value = list.iter().map(as_json).collect();
        println!("{:#}", json!({ "file": file.display().to_string(), "loads": false, "findings": findings }));
    } else {
        print_findings(file, &list);
    }
}

fn print_findings(file: &Path, findings: &[Finding]) {
    let text = std::fs::read_to_string(file).ok();
    let (name, paint) = (file.display().to_string(), Paint::new());
    for finding in findings {
        println!("{}", excerpt(finding, &name, text.as_deref(), paint));
    }
}
