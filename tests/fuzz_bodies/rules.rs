//! Text in, rules out, and the same text back.

use std::str::FromStr;

use request_balancer::Rules;

/// Pieces of rules files, so that random bytes get past the first line.
const WORDS: [&str; 107] = [
    "pool",
    "endpoints",
    "choose",
    "failover",
    "breaker",
    "failures",
    "ratio",
    "sticky",
    "overall",
    "per_key",
    "concurrency",
    "key_concurrency",
    "margin",
    "count_from",
    "units",
    "default_rule",
    "priority",
    "weight",
    "ordered",
    "under",
    "queue",
    "overflow",
    "max_wait",
    "attempt_timeout",
    "paused",
    "retry",
    "observe",
    "windows",
    "learn",
    "share",
    "pace",
    "name",
    "attempts",
    "backoff",
    "jitter",
    "ceiling",
    "hold",
    "order",
    "count",
    "per",
    "kind",
    "burst",
    "unit",
    "a",
    "b",
    " = ",
    " = ",
    " = ",
    " = ",
    "\n",
    "\n",
    "\n",
    "\n[rules]\n",
    "\n[rules.a]\n",
    "\n[rules.b]\n",
    "\n[limits.account]\n",
    "\n[lanes.1]\n",
    "\n[lanes.2]\n",
    "\n[retry]\n",
    "\n[keys.\"shop-1\"]\n",
    "\n[pool]\n",
    "{ ",
    " }",
    "[",
    "]",
    ", ",
    "\"20/60s\"",
    "\"1/1s\"",
    "\"30/1s smooth\"",
    "\"5/1s burst 10\"",
    "\"100/1s tokens\"",
    "\"9/day UTC\"",
    "\"1/M\"",
    "\"50ms\"",
    "\"10m\"",
    "\"1/20\"",
    "\"response\"",
    "\"start\"",
    "\"drop-oldest\"",
    "\"tokens\"",
    "\"overall\"",
    "\"account\"",
    "\"key\"",
    "\"patient\"",
    "0",
    "1",
    "2",
    "0.5",
    "10_000",
    "true",
    "false",
    "\n[dialects.a]\n",
    "\n[dialects.b]\n",
    "\n[dialects.a.windows.b]\n",
    "\n[dialects.a.waits]\n",
    "\n[dialects.a.words.b]\n",
    "\n[dialects.a.body]\n",
    "like",
    "scope",
    "refused",
    "reset",
    "remaining",
    "waits",
    "words",
    "\"any\"",
    "\"global\"",
    "\"seconds\"",
];

/// Any text is rules or findings, never a panic; rules written out read the same.
pub(crate) fn rules_text(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        read_and_write(text);
    }
}

/// The same with words instead of letters.
pub(crate) fn rules_words(bytes: &[u8]) {
    let text: String = bytes.iter().map(|&byte| WORDS[usize::from(byte) % WORDS.len()]).collect();
    read_and_write(&text);
}

fn read_and_write(text: &str) {
    match Rules::from_str(text) {
        Err(findings) => assert!(!findings.to_string().is_empty()),
        Ok(rules) => {
            let written = rules.to_string();
            match Rules::from_str(&written) {
                Ok(again) => assert_eq!(again, rules, "read:\n{text}\nwritten:\n{written}"),
                Err(findings) => panic!("{findings}\nread:\n{text}\nwritten:\n{written}"),
            }
        }
    }
}
