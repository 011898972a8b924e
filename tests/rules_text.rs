//! Rules files as text: what loads, what it means, and that it can be written back.

use request_balancer::Rules;

#[test]
fn the_telegram_file_loads_without_findings() {
    let rules = Rules::from_file(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/rules/telegram.toml")).expect("valid");
    assert_eq!(rules.warnings(), []);
    assert_eq!(rules.names().collect::<Vec<_>>(), ["individual", "group", "broadcast"]);
    assert_eq!(
        rules.to_string(),
        "overall = \"30/1s\"\nper_key = \"1/1s\"\nmargin = \"50ms\"\n\n[rules]\nindividual = {}\ngroup = \"20/60s\"\n\
         broadcast = { priority = 2 }\n"
    );
}
