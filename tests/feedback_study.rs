//! What feedback is worth against a random server: fixed and sliding windows, others eating from the same budget, fields
//! missing, answers out of order, eight requests at once. `scripts/bench feedback` prints the table.

mod feedback;

use feedback::{Fault, Kind, Outcome, Policy, Setting, study};

/// Runs of each setting.
const RUNS: u64 = 40;

fn outcome(setting: Setting, policy: Policy) -> Outcome {
    study(setting, policy, 0..RUNS)
}

#[test]
fn nothing_is_refused_inside_a_window_that_was_told_and_nearly_every_slot_is_used() {
    for missing in [0, 10] {
        for wide in [1, 3] {
            let setting = Setting { kind: Kind::Fixed, others: 0, missing, wide, faults: &[] };
            let outcome = outcome(setting, Policy::Overlay);
            assert_eq!(outcome.refused, 0, "{setting:?}: {outcome:?}");
            assert!(outcome.share() >= 97.0, "{setting:?}: {}", outcome.share());
        }
    }
}

#[test]
fn what_others_take_unseen_is_all_that_is_refused() {
    for missing in [0, 10] {
        for wide in [1, 3] {
            let setting = Setting { kind: Kind::Fixed, others: 20, missing, wide, faults: &[] };
            let overlay = outcome(setting, Policy::Overlay);
            assert_eq!(overlay.foreseeable, 0, "{setting:?}: {overlay:?}");
            assert!(overlay.share() >= 97.0, "{setting:?}: {}", overlay.share());
        }
    }
}

#[test]
fn a_server_that_gives_back_one_at_a_time_refuses_little_and_nearly_every_slot_is_used() {
    for others in [0, 20] {
        for missing in [0, 10] {
            for wide in [1, 3] {
                let setting = Setting { kind: Kind::Sliding, others, missing, wide, faults: &[] };
                let [literal, overlay] = [Policy::Literal, Policy::Overlay].map(|policy| outcome(setting, policy));
                assert_eq!(overlay.foreseeable, 0, "{setting:?}: {overlay:?}");
                assert!(3 * overlay.refused < literal.refused, "{setting:?}: {overlay:?}, {literal:?}");
                assert!(overlay.share() >= 97.0, "{setting:?}: {}", overlay.share());
            }
        }
    }
}

#[test]
fn it_is_refused_less_than_a_literal_reader_and_less_than_a_deaf_client() {
    for others in [0, 20] {
        for missing in [0, 10] {
            let setting = Setting { kind: Kind::Fixed, others, missing, wide: 3, faults: &[] };
            let [deaf, literal, overlay] =
                [Policy::Deaf, Policy::Literal, Policy::Overlay].map(|policy| outcome(setting, policy).refused);
            assert!(overlay < literal && literal < deaf, "{setting:?}: {overlay}, {literal}, {deaf}");
        }
    }
}

#[test]
fn what_servers_leave_out_or_round_down_costs_little_more() {
    for kind in [Kind::Fixed, Kind::Sliding] {
        for faults in Fault::ALL.chunks(1).chain([Fault::ALL]) {
            let setting = Setting { kind, others: 20, missing: 10, wide: 3, faults };
            let [deaf, literal, overlay] =
                [Policy::Deaf, Policy::Literal, Policy::Overlay].map(|policy| outcome(setting, policy));
            assert_eq!(overlay.foreseeable, 0, "{setting:?}: {overlay:?}");
            assert!(overlay.refused < literal.refused, "{setting:?}: {overlay:?}, {literal:?}");
            assert!(overlay.refused < deaf.refused, "{setting:?}: {overlay:?}, {deaf:?}");
        }
    }
}
