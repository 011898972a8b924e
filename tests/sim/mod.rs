//! Scenarios small enough to be worked out by hand.

use request_balancer::sim::{Policy, Scenario};

/// What a policy gives for `[[show]]` tables, in words.
pub(crate) fn shown(policy: Policy, scenario: &str, shows: &[&str]) -> Vec<String> {
    let shows: String = shows.iter().map(|show| format!("[[show]]\nmetric = {show}\n")).collect();
    let text = format!("title = 't'\n{scenario}\n{shows}");
    match text.parse::<Scenario>() {
        Ok(scenario) => {
            let shown = scenario.run(policy).into_iter();
            shown.map(|line| line.measured.map_or_else(|| "none".to_owned(), |value| value.to_string())).collect()
        }
        Err(findings) => panic!("{findings}\nin\n{text}"),
    }
}
