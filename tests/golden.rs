//! The numbers that theory gives for fairness, priority and exactness, asserted on virtual time.
//!
//! `cargo bench --bench fairness` prints them.

mod harness;

use harness::Measure;
use harness::scenarios;

fn assert_met(measures: &[Measure]) {
    let missed: Vec<_> = measures.iter().filter(|measure| !measure.met()).map(Measure::to_string).collect();
    assert!(missed.is_empty(), "scenario | what | measured | optimum | ratio | bound | met\n{}", missed.join("\n"));
}

#[test]
fn one_saturated_key_fills_every_window_and_overfills_none() {
    assert_met(&scenarios::one_key_saturated());
}

#[test]
fn a_hog_costs_every_other_key_one_turn() {
    assert_met(&scenarios::hog_and_mice());
}

#[test]
fn mean_waits_of_lanes_are_those_of_the_best_priority_server() {
    assert_met(&scenarios::lanes_in_balance());
}

#[test]
fn an_overloaded_top_lane_leaves_the_others_their_shares() {
    assert_met(&scenarios::lanes_overloaded());
}

#[test]
fn newcomers_never_delay_an_old_key_by_more_than_its_round() {
    assert_met(&scenarios::newcomer_flood());
}

#[test]
fn a_broadcast_to_a_busy_chat_starts_within_its_bound() {
    assert_met(&scenarios::busy_chat());
}

#[test]
fn starts_on_one_key_are_the_earliest_that_its_windows_allow() {
    assert_met(&scenarios::earliest_starts());
}

#[test]
fn no_window_is_overfilled_however_late_the_executor_polls() {
    assert_met(&scenarios::stalled_executor());
}
