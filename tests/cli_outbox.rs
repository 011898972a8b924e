//! What the program shows of an outbox's file, and does to it.
#![cfg(feature = "cli")]

mod program;

use program::{Scratch, json, program};
use serde_json::Value;

/// A copy of an outbox's file.
fn outbox(name: &str) -> Scratch {
    let file = Scratch::new(name, "");
    std::fs::copy("tests/fixtures/outbox-v1.redb", file.path()).expect("a folder to write to");
    file
}

#[test]
fn outbox_shows_what_is_stored_and_what_is_dead() {
    let file = outbox("shown.redb");
    let (status, printed, _) = program(&["outbox", file.path(), "list"]);
    assert_eq!(status, 0);
    assert!(printed.contains("2 send (shop, 7): 2 attempts, maybe delivered; \"backs off\"\n"), "{printed}");
    assert!(printed.contains("4 send 43: 1 attempt; \"held\"\n"), "{printed}");
    assert!(printed.ends_with("4 messages, 1 dead\n"), "{printed}");
    let listed = json(&["outbox", file.path(), "list", "--most", "1", "--json"]);
    assert_eq!((&listed["messages"], &listed["dead"]), (&4.into(), &1.into()));
    assert_eq!(listed["shown"].as_array().map(Vec::len), Some(1));

    let (status, printed, _) = program(&["outbox", file.path(), "dead"]);
    assert_eq!(status, 1);
    assert!(printed.starts_with("3 send a chat: 2 attempts until "), "{printed}");
    assert!(printed.ends_with(": dead was not read; \"dead\"\n1 dead message\n"), "{printed}");

    let (status, printed, _) = program(&["outbox", file.path(), "export"]);
    let exported: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((status, exported.len()), (0, 5));
    assert_eq!(exported[4]["reason"], "dead was not read");
    assert_eq!(exported[4]["key"], "\"a chat\"");
}

#[test]
fn outbox_puts_the_dead_back_in_line_or_forgets_them() {
    let file = outbox("redriven.redb");
    let (status, printed, said) = program(&["outbox", file.path(), "redrive", "3", "99"]);
    assert_eq!(
        (status, printed.as_str(), said.as_str()),
        (1, "1 message back in line\n", "there is no dead message 99\n")
    );
    let (status, printed, _) = program(&["outbox", file.path(), "dead"]);
    assert_eq!((status, printed.as_str()), (0, "0 dead messages\n"));
    let (_, printed, _) = program(&["outbox", file.path(), "list"]);
    assert!(printed.ends_with("5 messages, 0 dead\n"), "{printed}");

    let file = outbox("purged.redb");
    let (status, printed, _) = program(&["outbox", file.path(), "purge", "--all"]);
    assert_eq!((status, printed.as_str()), (0, "1 message forgotten\n"));
    let (_, printed, _) = program(&["outbox", file.path(), "list"]);
    assert!(printed.ends_with("4 messages, 0 dead\n"), "{printed}");
    assert_eq!(program(&["outbox", file.path(), "purge"]).0, 2, "of which ones nobody said");
}

#[test]
fn outbox_says_why_a_file_cannot_be_opened() {
    let (status, _, said) = program(&["outbox", "no-such.redb", "list"]);
    assert_eq!((status, said.as_str()), (2, "there is no outbox no-such.redb\n"));
    for (name, text) in [("short.redb", "no outbox"), ("long.redb", &"no outbox ".repeat(10_000))] {
        let file = Scratch::new(name, text);
        let (status, _, said) = program(&["outbox", file.path(), "dead"]);
        assert_eq!(status, 2);
        assert!(said.contains("not an outbox, or a damaged one"), "{said}");
    }
}

/// Written over, the outbox itself would be gone.
#[test]
fn outbox_exports_to_no_file_that_is_there() {
    let file = outbox("itself.redb");
    let before = std::fs::read(file.path()).expect("a copy");
    let (status, _, said) = program(&["outbox", file.path(), "export", "--to", file.path()]);
    assert_eq!(status, 2);
    assert!(said.contains("can't write: "), "{said}");
    assert_eq!(std::fs::read(file.path()).expect("a copy").len(), before.len());
    let (_, printed, _) = program(&["outbox", file.path(), "list"]);
    assert!(printed.ends_with("4 messages, 1 dead\n"), "{printed}");
}
