//! `check FILE…`: findings with excerpts, and a reading in plain words.

use std::path::{Path, PathBuf};

use request_balancer::{Finding, FindingCode, Findings, Rules};
use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, Wrong};
use crate::excerpt::{Paint, as_json, excerpt};
use crate::words;

pub(crate) fn run(files: &[PathBuf], json: bool) -> Result<Answer, Wrong> {
    let checked: Vec<_> = files.iter().map(|file| (file, Rules::from_file(file))).collect();
    for (file, rules) in &checked {
        if let Err(findings) = rules
            && findings.iter().any(|finding| finding.code() == FindingCode::UnreadableFile)
        {
            return Err(unusable(file, findings));
        }
    }
    let findings = |rules: &Result<Rules, Findings>| match rules {
        Ok(rules) => rules.warnings().to_vec(),
        Err(findings) => findings.iter().cloned().collect::<Vec<Finding>>(),
    };
    let outcome = Outcome::found_if(checked.iter().any(|(_, rules)| !findings(rules).is_empty()));
    if json {
        let list = checked.iter().map(|(file, rules)| {
            let reading = rules.as_ref().ok().map(words::reading);
            with_findings(file, &findings(rules), rules.is_ok(), reading)
        });
        return Ok(Answer::json(&list.collect(), outcome));
    }
    let paint = Paint::on(&std::io::stdout());
    let mut text = String::new();
    for (file, rules) in &checked {
        text.push_str(&excerpts(file, &findings(rules), paint));
        if let Ok(rules) = rules {
            let lines = words::reading(rules).into_iter().map(|line| format!("  {line}\n"));
            text.extend(std::iter::once(format!("{}:\n", file.display())).chain(lines));
        }
    }
    Ok(Answer { text, outcome })
}

/// The rules of a file that a command needs.
pub(crate) fn load(file: &Path) -> Result<Rules, Wrong> {
    Rules::from_file(file).map_err(|findings| unusable(file, &findings))
}

/// Why a command can't use a file.
pub(crate) fn unusable(file: &Path, findings: &Findings) -> Wrong {
    let list: Vec<Finding> = findings.iter().cloned().collect();
    Wrong::new(excerpts(file, &list, Paint::on(&std::io::stderr())), with_findings(file, &list, false, None))
}

fn with_findings(file: &Path, findings: &[Finding], loads: bool, reading: Option<Vec<String>>) -> Value {
    let findings: Value = findings.iter().map(as_json).collect();
    json!({ "file": file.display().to_string(), "loads": loads, "findings": findings, "reading": reading })
}

fn excerpts(file: &Path, findings: &[Finding], paint: Paint) -> String {
    let text = std::fs::read_to_string(file).ok();
    let name = file.display().to_string();
    findings.iter().map(|finding| excerpt(finding, &name, text.as_deref(), paint) + "\n").collect()
}
