//! The program, run as its users run it, and files for it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Exit status, standard output, standard error.
pub(crate) fn program(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_request-balancer"));
    let output = command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("a program that runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("an exit status"), text(output.stdout), text(output.stderr))
}

/// What it prints for programs.
pub(crate) fn json(arguments: &[&str]) -> Value {
    let (_, printed, _) = program(arguments);
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}:\n{printed}"))
}

/// A file that is there for one test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, text).expect("a folder to write to");
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a path of text")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Whoever finds it overwrites it.
        let _ = std::fs::remove_file(&self.0);
    }
}
