//! The program, as its users call it: what it prints, and its exit status.

#![cfg(feature = "cli")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Exit status, standard output, standard error.
fn program(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_request-balancer"));
    let output = command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("a program that runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("an exit status"), text(output.stdout), text(output.stderr))
}

fn json(arguments: &[&str]) -> Value {
    let (_, printed, _) = program(arguments);
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}:\n{printed}"))
}

/// A file that is there for one test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, text).expect("a folder to write to");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path of text")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Whoever finds it overwrites it.
        let _ = std::fs::remove_file(&self.0);
    }
}

const TELEGRAM: &str = "examples/rules/telegram.toml";

#[test]
fn check_reads_sound_rules_in_plain_words() {
    let (status, printed, _) = program(&["check", TELEGRAM]);
    let expected = "\
examples/rules/telegram.toml:
  all calls together: at most 30 in any 1s
  each key, whatever the rule: at most 1 in any 1s
  windows are 50ms longer, so that network delays may differ by that much
  rule individual: priority 1
  rule group: priority 1; each key at most 20 in any 60s
  rule broadcast: priority 2
";
    assert_eq!((status, printed.as_str()), (0, expected));
}

#[test]
fn check_shows_every_finding_where_it_is() {
    let file = Scratch::new("bad.toml", "overall = \"0/1s\"\n[rules.chat]\npre_key = '1/1s'\n");
    let (status, printed, _) = program(&["check", file.path()]);
    assert_eq!(status, 1);
    assert!(printed.contains("\n1 | overall = \"0/1s\"\n  |           ^^^^^^\n"), "{printed}");
    assert!(printed.contains("\n3 | pre_key = '1/1s'\n  | ^^^^^^^\n"), "{printed}");
    assert!(!printed.contains('\x1b'), "colours where nobody sees them");

    let checked = json(&["check", "--json", file.path(), TELEGRAM]);
    let codes: Vec<_> = checked[0]["findings"].as_array().expect("a list").iter().map(|found| &found["code"]).collect();
    assert_eq!(codes, ["zero", "unknown-field"]);
    assert_eq!((&checked[0]["loads"], &checked[1]["loads"]), (&Value::from(false), &Value::from(true)));
    assert_eq!(checked[1]["reading"].as_array().map(Vec::len), Some(6));
}

#[test]
fn verify_finds_what_a_log_breaks() {
    let log = Scratch::new("starts.csv", "at,rule,key,end\n0,individual,1,0\n0.5,individual,1,0.5\n2,group,7,2\n");
    let (status, printed, _) = program(&["verify", TELEGRAM, log.path()]);
    let expected = "`per_key` 1/1s, key 1: 2 in the 1.05s up to 500ms, 1 allowed\n3 starts, 1 breach\n";
    assert_eq!((status, printed.as_str()), (1, expected));
    let verified = json(&["verify", TELEGRAM, log.path(), "--json"]);
    assert_eq!((&verified["starts"], verified["breaches"].as_array().map(Vec::len)), (&Value::from(3), Some(1)));

    let sound = Scratch::new("sound.csv", "at,rule,key,end\n0,individual,1,0\n1.05,individual,1,1.05\n");
    assert_eq!(program(&["verify", TELEGRAM, sound.path()]).0, 0);
    let broken = Scratch::new("broken.csv", "at,rule,key\n0,individual\n");
    let (status, _, error) = program(&["verify", TELEGRAM, broken.path()]);
    assert_eq!(status, 1);
    assert!(error.contains("line 2: found `0,individual`; allowed: 3 fields"), "{error}");
}

#[test]
fn plan_tells_how_long_a_broadcast_takes() {
    // 29 of 30 in each 1.05 s, a start every 35 ms.
    let (status, printed, _) = program(&["plan", TELEGRAM, "--rule", "broadcast", "--keys", "3000"]);
    assert_eq!(status, 0);
    assert!(printed.starts_with("3000 calls of broadcast, one for each key, are out after 104.965 s\n"), "{printed}");
    assert!(printed.contains("   50 %        52.465 s\n"), "{printed}");
    assert!(printed.contains("a call of group waits "), "{printed}");

    let planned = json(&["plan", TELEGRAM, "--rule", "broadcast", "--keys", "300", "--json"]);
    assert_eq!(planned["tenths"].as_array().map(Vec::len), Some(10));
    assert_eq!(planned["tenths"][9], 10.465);
    let (status, _, error) = program(&["plan", TELEGRAM, "--rule", "news", "--keys", "3"]);
    assert_eq!((status, error.contains("there are individual, group, broadcast")), (1, true));
}

#[test]
fn simulate_shows_a_scenario_under_one_policy_or_several() {
    let scenario = "examples/scenarios/hog-and-mice.toml";
    let (status, printed, _) = program(&["simulate", scenario, "--policy", "request-balancer", "--policy", "fifo"]);
    let expected = "                                  request-balancer           fifo    optimum   bound
hog of 1,000 and 100 single calls, 30/1s
  longest wait of a single call            3.000 s   36.000 s (!)    3.000 s   exact
";
    assert_eq!(status, 0);
    assert!(printed.starts_with(expected), "{printed}");
    let all = json(&["simulate", scenario, "--policy", "all", "--json"]);
    assert_eq!(all.as_array().map(Vec::len), Some(7 * 4));
    assert_eq!((&all[0]["measured"], &all[0]["met"]), (&Value::from(3.0), &Value::from(true)));
}

#[test]
fn a_simulated_log_can_be_verified() {
    let log = Scratch::new("log.csv", "");
    let rules = Scratch::new("rules.toml", "overall = '30/1s'\n[rules]\naccount = '1000/1s'\n");
    let scenario = "examples/scenarios/hog-and-mice.toml";
    assert_eq!(program(&["simulate", scenario, "--csv", log.path()]).0, 0);
    let (status, printed, _) = program(&["verify", rules.path(), log.path()]);
    assert_eq!((status, printed.as_str()), (0, "1100 starts, 0 breaches\n"));
}

#[test]
fn a_wrong_call_is_told_from_a_finding() {
    for wrong in [&["chekc", TELEGRAM][..], &["check"], &["simulate", TELEGRAM, "--policy", "fif"], &[]] {
        assert_eq!(program(wrong).0, 2, "{wrong:?}");
    }
    let (status, printed, _) = program(&["simulate", "examples/scenarios/none.toml"]);
    assert_eq!((status, printed.contains("error[unreadable-file]")), (1, true));
}
