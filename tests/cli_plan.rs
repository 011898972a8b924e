//! What `plan` says of broadcasts that do not go out smoothly, and of who waits meanwhile.

#![cfg(feature = "cli")]

mod program;

use serde_json::json as expected;

use self::program::{Scratch, json, program};

/// What `plan` prints of a broadcast of a rule, and its exit status.
fn planned(name: &str, rules: &str, rule: &str, keys: &str, more: &[&str]) -> (i32, String) {
    let file = Scratch::new(name, rules);
    let (status, printed, error) =
        program(&[&["plan", file.path(), "--rule", rule, "--keys", keys][..], more].concat());
    assert_eq!(error, "");
    (status, printed)
}

#[test]
fn what_never_starts_is_not_out() {
    let plan = |rules: &str, keys: &str| planned("turned-away.toml", rules, "send", keys, &[]);
    let (status, printed) = plan("overall = '30/1s'\n[rules]\nsend = { max_wait = '2s' }\n", "300");
    let expected = "300 calls of send, one for each key, are not all out: 90 start up to 2.000 s, 210 never
   10 %        0.000 ms
   20 %         1.000 s
   30 %         2.000 s
   40 %           never
";
    assert_eq!(status, 1);
    assert!(printed.starts_with(expected) && printed.ends_with("  100 %           never\n"), "{printed}");
    let (status, printed) = plan("queue = 50\noverall = '30/1s'\n[rules]\nsend = {}\n", "1000");
    assert_eq!(
        (status, printed.contains(" are not all out: 50 start up to 1.000 s, 950 never\n")),
        (1, true),
        "{printed}"
    );
    let paused = Scratch::new("paused.toml", "[rules]\nsend = {}\noff = { paused = true }\n[lanes.1]\nname = 'all'\n");
    let said = json(&["plan", paused.path(), "--rule", "off", "--keys", "3", "--json"]);
    let never = expected!({
        "rule": "off", "keys": 3, "started": 0, "endpoints": 0, "tenths": [null, null, null, null, null, null, null, null, null, null],
        "one_more_endpoint": null, "waits": [],
    });
    assert_eq!(said, never);
    let (status, printed) = plan("[rules]\nsend = { paused = true }\n", "5");
    assert!(printed.starts_with("5 calls of send, one for each key, are never out: none"), "{printed}");
    assert_eq!(status, 1);
}

#[test]
fn who_is_asked_about_waits_for_the_broadcast_and_not_for_himself() {
    // A call of an hour that is as full as can be: 300 calls of others leave a slot every twelve seconds.
    let rules = "[rules]\nmail = { overall = '1/1m' }\noff = { paused = true }\nnews = { priority = 2 }\n";
    let (status, printed) = planned("slow.toml", &format!("overall = '300/1h'\n{rules}"), "news", "600", &[]);
    assert_eq!(status, 0);
    let lines: Vec<&str> = printed.lines().collect();
    let [.., mail, off] = &lines[..] else { panic!("{printed}") };
    let waits = mail.strip_prefix("a call of mail waits ").expect("waits");
    let most = waits.rsplit_once("at most ").expect("the longest").1;
    assert!(
        most.ends_with(" ms") || most.split(' ').next().and_then(|s| s.parse::<f64>().ok()).is_some_and(|s| s <= 12.1),
        "{printed}"
    );
    assert_eq!(*off, "off is paused: none of its calls starts");
    // Nobody is in his way: he never waits, though he may call but once a minute.
    let (_, printed) = planned("own.toml", rules, "news", "600", &[]);
    assert!(
        printed.contains("a call of mail waits 0.000 ms meanwhile; 99 % up to 0.000 ms, at most 0.000 ms\n"),
        "{printed}"
    );
    // A line without room turns him away.
    let (_, printed) = planned("full.toml", &format!("queue = 300\noverall = '300/1h'\n{rules}"), "news", "600", &[]);
    assert!(printed.contains(" calls of mail meanwhile "), "{printed}");
}

#[test]
fn calls_of_a_broadcast_cost_what_is_said() {
    let rules = "units = ['tokens']\noverall = ['500/min', '90000/60s tokens']\n[keys.3]\ndefault = '1/1h'\n";
    let (status, printed) = planned("tokens.toml", rules, "default", "100", &[]);
    assert!(printed.starts_with("100 calls of default, one for each key, are out after 0.000 ms\n"), "{printed}");
    assert!(printed.ends_with("not counted: tokens; say what a call costs, as in `--units tokens=900`\n"), "{printed}");
    assert_eq!(status, 0);
    // Nine at a time; and the key named in the file is not who is written to.
    let (_, printed) = planned("tokens.toml", rules, "default", "100", &["--units", "tokens=10000"]);
    assert!(printed.starts_with("100 calls of default, one for each key, are out after 660.000 s\n"), "{printed}");
    assert!(!printed.contains("not counted"), "{printed}");
    let (_, printed) = planned("tokens.toml", rules, "default", "100", &["--cost", "50", "--units", "tokens=1"]);
    assert!(printed.starts_with("100 calls of default, one for each key, are out after 540.000 s\n"), "{printed}");
}
