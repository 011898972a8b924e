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
fn check_tells_the_limits_that_rules_share_by_name() {
    let (status, printed, _) = program(&["check", "examples/rules/openai.toml"]);
    let expected = "  rule chat: priority 1; under `limits.large.per_key` 500/60s smooth; \
                    under `limits.large.per_key` 30000/60s tokens\n";
    assert_eq!(status, 0);
    assert!(printed.contains(expected), "{printed}");
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

/// Three bots, of each a call a second for everybody and one at a time.
const BOTS: &str = "\
overall = '30/1s'
[rules]
chat = {}
news = { priority = 2 }
[pool]
endpoints = ['bot-a', 'bot-b', 'bot-c']
overall = '2/1s'
concurrency = 1
";

#[test]
fn check_says_what_endpoints_may_do_each_and_together() {
    let file = Scratch::new("bots.toml", BOTS);
    let (status, printed, _) = program(&["check", file.path()]);
    let expected = "  pool: 3 endpoints, bot-a, bot-b, bot-c; the least loaded one is used
  each endpoint: at most 2 in any 1s; at most 1 at a time
  all endpoints together: at most 6 in any 1s; at most 3 at a time
";
    assert_eq!(status, 0, "{printed}");
    assert!(printed.ends_with(expected), "{printed}");
    let own = Scratch::new("own.toml", "[pool]\nsticky = true\n[pool.endpoints]\na = { overall = '5/1s' }\nb = {}\n");
    let (_, printed, _) = program(&["check", own.path()]);
    let expected = "  pool: 2 endpoints, a, b; the least loaded one is used; a key stays with one while that is healthy
  endpoint a: at most 5 in any 1s
";
    assert!(printed.ends_with(expected), "{printed}");
    // More of them than all calls may use.
    let wide = Scratch::new("wide.toml", &BOTS.replace("'30/1s'", "'5/1s'"));
    let (status, printed, _) = program(&["check", wide.path()]);
    assert_eq!(status, 1);
    assert!(printed.contains("`2/1s` on each of 3 endpoints, a rate above that of `overall`"), "{printed}");
}

#[test]
fn plan_tells_what_another_endpoint_adds() {
    let file = Scratch::new("planned.toml", BOTS);
    let plan = |more: &[&str]| program(&[&["plan", file.path(), "--rule", "chat", "--keys", "60"][..], more].concat());
    let (status, printed, _) = plan(&[]);
    assert_eq!(status, 0);
    assert!(
        printed.starts_with("60 calls of chat, one for each key, are out after 9.000 s over 3 endpoints\n"),
        "{printed}"
    );
    assert!(printed.ends_with("with one endpoint more they are out after 7.000 s\n"), "{printed}");
    let (_, printed, _) = plan(&["--endpoints", "30"]);
    assert!(
        printed.starts_with("60 calls of chat, one for each key, are out after 1.000 s over 30 endpoints\n"),
        "{printed}"
    );
    // One at a time for 900 ms each is less than two in a second: the last of 20 rounds.
    let (_, printed, _) = plan(&["--takes", "900ms"]);
    assert!(
        printed.starts_with("60 calls of chat, one for each key, are out after 17.100 s over 3 endpoints\n"),
        "{printed}"
    );
    let planned = json(&["plan", file.path(), "--rule", "chat", "--keys", "60", "--endpoints", "1", "--json"]);
    assert_eq!((&planned["endpoints"], &planned["one_more_endpoint"]), (&Value::from(1), &Value::from(14.0)));

    let code = Scratch::new("code.toml", "[pool]\noverall = '2/1s'\n");
    let plan =
        |file: &str, more: &[&str]| program(&[&["plan", file, "--rule", "default", "--keys", "60"][..], more].concat());
    let (status, _, error) = plan(code.path(), &[]);
    assert_eq!((status, error.contains("say with `--endpoints` how many")), (1, true), "{error}");
    assert!(plan(code.path(), &["--endpoints", "2"]).1.contains("are out after 14.000 s over 2 endpoints\n"));
    let none = Scratch::new("none.toml", "overall = '2/1s'\n");
    let (status, _, error) = plan(none.path(), &["--endpoints", "2"]);
    assert_eq!((status, error.contains("the file has no `[pool]`")), (1, true), "{error}");
}

#[test]
fn logs_tell_which_endpoint_was_used() {
    let file = Scratch::new("used.toml", BOTS);
    let log = "at,rule,key,endpoint,end,again\n0,chat,1,bot-a,0.1,\n0.2,chat,2,bot-a,0.3,\n0.4,chat,3,bot-a,0.5,\n\
               0.4,chat,4,bot-b,0.5,9\n0.4,chat,5,bot-c,,\n";
    let history = Scratch::new("used.csv", log);
    let (status, printed, _) = program(&["verify", file.path(), history.path()]);
    let breach = "`pool.endpoints.bot-a.overall` 2/1s: 3 in the 1s up to 400ms, 2 allowed\n5 starts, 1 breach\n";
    assert_eq!((status, printed.as_str()), (1, breach));
    let unknown = Scratch::new("unknown.csv", "at,rule,key,endpoint\n1,chat,1,bot-d\n");
    let (_, printed, _) = program(&["verify", file.path(), unknown.path()]);
    assert!(printed.starts_with("no endpoint `bot-d`: nothing is known of"), "{printed}");

    let explain = ["explain", file.path(), "--rule", "chat", "--key", "7", "--history", history.path(), "--at", "0.6"];
    let (status, printed, _) = program(&explain);
    let expected = "\
rule chat, key 7, asked at 600ms: may start at 1.2s, after 600ms
  `overall` 30/1s: 5 of 30 used, room now
> endpoint bot-a: room at 1.2s
    `pool.endpoints.bot-a.overall` 2/1s: 3 of 2 used, room at 1.2s
    `pool.endpoints.bot-a.concurrency` 1: 0 of 1 used, room now
  endpoint bot-b: room at 9s
    the endpoint held until 9s: started at 400ms and was refused
    `pool.endpoints.bot-b.overall` 2/1s: 1 of 2 used, room now
    `pool.endpoints.bot-b.concurrency` 1: 0 of 1 used, room now
  endpoint bot-c: room when a running attempt ends
    `pool.endpoints.bot-c.overall` 2/1s: 1 of 2 used, room now
    `pool.endpoints.bot-c.concurrency` 1: 1 of 1 used, room when a running attempt ends
";
    assert_eq!((status, printed.as_str()), (1, expected));
    let said = json(&[&explain[..], &["--on", "bot-b", "--json"]].concat());
    assert_eq!((&said["at"], &said["endpoints"][0]["endpoint"]), (&Value::from(9.0), &Value::from("bot-b")));
    assert_eq!(said["endpoints"].as_array().map(Vec::len), Some(1));
    let (status, _, error) = program(&[&explain[..], &["--on", "bot-x"]].concat());
    assert_eq!((status, error.contains("there are bot-a, bot-b, bot-c")), (1, true));

    // Endpoints from code are those of the log.
    let code = Scratch::new("from-code.toml", "[rules]\nchat = {}\n[pool]\nconcurrency = 1\n");
    let overlap = Scratch::new("overlap.csv", "at,rule,key,endpoint,end\n0,chat,1,x,2\n1,chat,2,x,2\n1,chat,3,y,2\n");
    let (_, printed, _) = program(&["verify", code.path(), overlap.path()]);
    assert!(
        printed.starts_with("`pool.endpoints.x.concurrency` 1: 2 at once at 1s, 1 allowed\n3 starts, 1"),
        "{printed}"
    );

    // What is simulated reads the same.
    let simulated = Scratch::new("simulated.csv", "");
    assert_eq!(program(&["simulate", "examples/scenarios/six-tokens.toml", "--csv", simulated.path()]).0, 0);
    let tokens = ["a", "b", "c", "d", "e", "f"].map(|name| format!("'bot-{name}'")).join(", ");
    let rules = Scratch::new("tokens.toml", &format!("[pool]\nconcurrency = 1\nendpoints = [{tokens}]\n"));
    let (status, printed, _) = program(&["verify", rules.path(), simulated.path()]);
    assert_eq!((status, printed.as_str()), (0, "240 starts, 0 breaches\n"));
    let text = std::fs::read_to_string(simulated.path()).expect("a log");
    assert!(
        text.starts_with("at,rule,key,cost,end,again,endpoint\n0.000000000,default,0,1,5.000000000,,bot-a\n"),
        "{text}"
    );
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

const HISTORY: &str = "at,rule,key,end,again\n0,group,42,0.2,\n0.5,individual,7,0.6,\n1.1,group,42,1.2,9\n";

#[test]
fn explain_says_limit_by_limit_what_makes_the_next_start_wait() {
    let history = Scratch::new("history.csv", HISTORY);
    let explain = |more: &[&str]| {
        let mut arguments = vec!["explain", TELEGRAM, "--key", "42", "--history", history.path()];
        arguments.extend(more);
        arguments.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let run = |more: &[&str]| program(&explain(more).iter().map(String::as_str).collect::<Vec<_>>());
    let (status, printed, _) = run(&["--rule", "group"]);
    let expected = "\
rule group, key 42, asked at 1.1s: may start at 9s, after 7.9s
> the key held until 9s: started at 1.1s and was refused
  `overall` 30/1s: 2 of 30 used, room now
  `per_key` 1/1s, key 42: 1 of 1 used, room at 2.15s
  `rules.group.per_key` 20/60s, key 42: 2 of 20 used, room now
";
    assert_eq!((status, printed.as_str()), (1, expected));
    let (status, printed, _) = run(&["--rule", "broadcast", "--at", "9"]);
    assert_eq!(status, 0);
    assert!(printed.starts_with("rule broadcast, key 42, asked at 9s: may start now\n"), "{printed}");
    let paced = "  besides, its lane leaves room for more urgent calls: starts up to 35ms apart, up to 1.05s apart of this key\n";
    assert!(printed.ends_with(paced), "{printed}");

    let (status, printed, _) = run(&["--rule", "individual", "--at", "1.0", "--json"]);
    let said: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!((status, &said["opens"], &said["at"]), (1, &Value::from("at"), &Value::from(1.05)));
    assert_eq!(said["limits"][1]["limit"], "per_key");
    assert_eq!((said["limits"].as_array().map(Vec::len), said["holds"].as_array().map(Vec::len)), (Some(2), Some(0)));

    let (status, _, error) = run(&["--rule", "news"]);
    assert_eq!((status, error.contains("there are individual, group, broadcast")), (1, true));
    let (status, _, error) = run(&["--rule", "group", "--units", "tokens=3"]);
    assert_eq!((status, error.contains("no unit `tokens`")), (1, true));
    for wrong in [&["--rule", "group", "--at", "x"][..], &["--rule", "group", "--cost", "0"], &["--units", "a"]] {
        assert_eq!(run(wrong).0, 2, "{wrong:?}");
    }
}

#[test]
fn a_scenario_is_run_with_one_seed_and_drawn() {
    let log = Scratch::new("seed.csv", "");
    let picture = Scratch::new("picture.svg", "");
    let scenario = "examples/scenarios/lanes-overload.toml";
    let starts = |seed: &str| {
        let files = ["--csv", log.path(), "--svg", picture.path()];
        let (status, _, error) = program(&[&["simulate", scenario, "--seed", seed][..], &files].concat());
        assert_eq!((status, error.as_str()), (0, ""), "nothing on standard error where nobody looks");
        (
            std::fs::read_to_string(log.path()).expect("a log"),
            std::fs::read_to_string(picture.path()).expect("a picture"),
        )
    };
    let (one, drawn) = starts("1");
    assert!(one.starts_with("at,rule,key,cost,end,again\n0.000000000,bulk,0,1,0.000000000,\n"), "{}", &one[..100]);
    assert_eq!(one.lines().count(), 18_001);
    assert_ne!(starts("2").0, one);
    assert_eq!(starts("1"), (one, drawn.clone()));
    for word in ["lane 3: bulk", "starts per second", "time in min", "100 ms", "overall 30/1s", "prefers-color-scheme"]
    {
        assert!(drawn.contains(word), "{word} is not in the picture");
    }
}

#[test]
fn the_picture_of_the_readme_is_what_is_drawn() {
    let picture = Scratch::new("telegram.svg", "");
    let scenario = "examples/scenarios/telegram.toml";
    assert_eq!(program(&["simulate", scenario, "--svg", picture.path()]).0, 0);
    let drawn = std::fs::read_to_string(picture.path()).expect("a picture");
    assert!(drawn == include_str!("../docs/telegram.svg"), "draw it anew: simulate {scenario} --svg …");
    assert!(include_str!("../README.md").contains("(docs/telegram.svg)"));
}

#[test]
fn every_rules_file_and_every_scenario_of_the_examples_is_sound() {
    let files = |folder: &str| {
        let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let mut files: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
        files.sort();
        assert!(files.len() > 5, "{files:?}");
        files
    };
    let rules = files("examples/rules");
    let mut arguments = vec!["check"];
    arguments.extend(rules.iter().map(|path| path.to_str().expect("a path of text")));
    let (status, printed, _) = program(&arguments);
    assert_eq!(status, 0, "{printed}");
    for scenario in files("examples/scenarios") {
        if let Err(findings) = request_balancer::sim::Scenario::from_file(&scenario) {
            panic!("{findings}");
        }
    }
}

#[test]
fn a_wrong_call_is_told_from_a_finding() {
    for wrong in [
        &["chekc", TELEGRAM][..],
        &["check"],
        &["explain", TELEGRAM, "--rule", "group"],
        &["simulate", TELEGRAM, "--policy", "fif"],
        &[],
    ] {
        assert_eq!(program(wrong).0, 2, "{wrong:?}");
    }
    let (status, printed, _) = program(&["simulate", "examples/scenarios/none.toml"]);
    assert_eq!((status, printed.contains("error[unreadable-file]")), (1, true));
}
