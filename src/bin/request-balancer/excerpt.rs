//! A finding with the line that it is about.

use std::borrow::Cow;
use std::io::IsTerminal;

use request_balancer::{Finding, Severity};
use serde_json::{Value, json};

/// Colours, where somebody sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// For what is written there: none if it is not a terminal, or `NO_COLOR` is set.
    pub(crate) fn on(output: &impl IsTerminal) -> Self {
        Self { on: output.is_terminal() && std::env::var_os("NO_COLOR").is_none() }
    }

    fn with(self, colour: u8, text: &str) -> String {
        if self.on { format!("\x1b[1;{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The finding, where it is, the line, and a caret under its place.
pub(crate) fn excerpt(finding: &Finding, file: &str, text: Option<&str>, paint: Paint) -> String {
    let colour = match finding.severity() {
        Severity::Error => 31,
        Severity::Warning => 33,
    };
    let head = paint.with(colour, &format!("{}[{}]", finding.severity(), finding.code()));
    let path = if finding.path().is_empty() { String::new() } else { format!(" {}", finding.path()) };
    let mut shown = vec![format!("{head}{path}: found {}", finding.found())];
    let place = finding.line().zip(finding.column());
    let line = place.and_then(|(line, _)| text?.lines().nth(line as usize - 1));
    let margin = place.map_or(1, |(line, _)| line.to_string().len());
    let at = place.map_or_else(String::new, |(line, column)| format!(":{line}:{column}"));
    shown.push(format!("{:margin$}--> {file}{at}", ""));
    if let (Some((number, column)), Some(line)) = (place, line) {
        let (line, column) = around(line, column as usize);
        let line = &*line;
        // A tab stays one in the line of the caret, so that both are as wide.
        let before = line.chars().take(column - 1);
        let indent: String = before.map(|letter| if letter == '\t' { '\t' } else { ' ' }).collect();
        let carets = paint.with(colour, &"^".repeat(length(line, column - 1)));
        shown.push(format!("{:margin$} |\n{number} | {line}\n{:margin$} | {indent}{carets}", "", ""));
    }
    shown.push(format!("{:margin$} = allowed: {}", "", finding.allowed()));
    shown.extend(finding.nearest().map(|nearest| format!("{:margin$} = did you mean `{nearest}`?", "")));
    shown.join("\n") + "\n"
}

/// The part of a line that the letter at a column stands in, and at which column of it.
fn around(line: &str, column: usize) -> (Cow<'_, str>, usize) {
    const BEFORE: usize = 60;
    const SHOWN: usize = 140;
    let mut rest = line.chars().skip(SHOWN);
    if column <= SHOWN && rest.next().is_none() {
        return (line.into(), column);
    }
    let from = column.saturating_sub(BEFORE + 1);
    let mut letters = line.chars().skip(from);
    let shown: String = letters.by_ref().take(SHOWN).collect();
    let [left, right] = [from > 0, letters.next().is_some()].map(|cut| if cut { "…" } else { "" });
    (format!("{left}{shown}{right}").into(), column - from + left.chars().count())
}

/// How many letters the word or quoted text at a column has.
fn length(line: &str, column: usize) -> usize {
    let mut letters = line.chars().skip(column);
    let Some(first) = letters.next() else { return 1 };
    if first == '"' || first == '\'' {
        return letters.position(|letter| letter == first).map_or(1, |end| end + 2);
    }
    let in_word = |letter: &char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.');
    if in_word(&first) { 1 + letters.take_while(in_word).count() } else { 1 }
}

pub(crate) fn as_json(finding: &Finding) -> Value {
    json!({
        "severity": finding.severity().to_string(),
        "code": finding.code().as_str(),
        "line": finding.line(),
        "column": finding.column(),
        "path": finding.path(),
        "found": finding.found(),
        "allowed": finding.allowed(),
        "nearest": finding.nearest(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Paint, excerpt};
    use request_balancer::Rules;

    #[test]
    fn a_caret_is_under_the_whole_word() {
        let text = "overall = \"30/1s\"\n[rules.chat]\n\tpre_key = '1/1s'\n";
        let findings = text.parse::<Rules>().unwrap_err();
        let finding = findings.iter().next().expect("a finding");
        let expected = "error[unknown-field] rules.chat.pre_key: found `pre_key`\n \
                        --> a.toml:3:2\n  |\n3 | \tpre_key = '1/1s'\n  | \t^^^^^^^\n  = allowed: ";
        let shown = excerpt(finding, "a.toml", Some(text), Paint { on: false });
        assert!(shown.starts_with(expected), "{shown}");
        assert!(shown.ends_with("\n  = did you mean `per_key`?\n"), "{shown}");
    }

    #[test]
    fn of_a_long_line_only_the_part_around_the_caret_is_shown() {
        let text = format!("limits = {{ {}wrong = 1 {} }}", "a.per_key = '1/1s', ".repeat(50), " ".repeat(10_000));
        let findings = text.parse::<Rules>().unwrap_err();
        for finding in findings.iter() {
            let shown = excerpt(finding, "a.toml", Some(&text), Paint { on: false });
            let lines: Vec<&str> = shown.lines().collect();
            assert!(lines[3].starts_with("1 | ") && lines[3].chars().count() < 150, "{shown}");
            let column = lines[4].find('^').expect("a caret");
            let pointed: String = lines[3].chars().skip(column).take(5).collect();
            let from = finding.column().expect("a column") as usize - 1;
            assert_eq!(pointed, text.chars().skip(from).take(5).collect::<String>(), "{shown}");
        }
    }
}
