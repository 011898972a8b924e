//! What commands come to: what they print, and the exit status.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

/// What a command has to say.
pub(crate) struct Answer {
    /// For standard output.
    pub(crate) text: String,
    pub(crate) outcome: Outcome,
}

/// Whether there is something that somebody should look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Fine,
    Found,
}

/// The program was called in a wrong way, or for files that it can't use.
pub(crate) struct Wrong {
    /// For standard error.
    text: String,
    /// The same for programs.
    json: Value,
}

impl Answer {
    pub(crate) fn json(value: &Value, outcome: Outcome) -> Self {
        Self { text: format!("{value:#}\n"), outcome }
    }
}

impl Outcome {
    pub(crate) const fn found_if(found: bool) -> Self {
        if found { Self::Found } else { Self::Fine }
    }
}

impl Wrong {
    pub(crate) fn new(text: String, json: Value) -> Self {
        Self { text, json }
    }

    /// A name that a file does not have, with those that it has.
    pub(crate) fn unknown<'a>(what: &str, name: &str, file: &str, known: impl Iterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.collect();
        let there = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let near = known.iter().map(|known| (strsim::jaro_winkler(name, known), known));
        let near = near.filter(|&(score, _)| score >= 0.8).max_by(|(one, _), (other, _)| one.total_cmp(other));
        let near = near.map_or_else(String::new, |(_, near)| format!("; did you mean `{near}`?"));
        format!("no {what} `{name}` in {file}: there are {there}{near}").into()
    }
}

impl From<String> for Wrong {
    fn from(text: String) -> Self {
        let json = json!({ "error": text });
        Self { text: text + "\n", json }
    }
}

/// Prints what a command came to, and says how the program ends: 0 fine, 1 found, 2 wrong.
pub(crate) fn end(answer: Result<Answer, Wrong>, json: bool) -> ExitCode {
    let (text, status) = match answer {
        Ok(Answer { text, outcome: Outcome::Fine }) => (text, 0),
        Ok(Answer { text, outcome: Outcome::Found }) => (text, 1),
        Err(wrong) => {
            complain(&wrong.text);
            (if json { format!("{:#}\n", wrong.json) } else { String::new() }, 2)
        }
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::from(status),
        // Whoever reads has read enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::from(status),
        Err(error) => {
            complain(&format!("standard output: {error}\n"));
            ExitCode::from(2)
        }
    }
}

pub(crate) fn complain(text: &str) {
    // Where standard error is closed nobody wants to hear of it.
    let _ = io::stderr().write_all(text.as_bytes());
}
