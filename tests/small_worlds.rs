//! Every list of operations that is possible in small worlds, against the slow model of the random histories.
//!
//! After each operation it must be true of every limit that it is not exceeded, of every request that it does not wait
//! for nothing or start before its turn or before it was foretold, of every lane that not too many went past it, and of
//! the machine's numbers that they are those of the books; after the last one everything comes to its end and nothing is
//! left. `LIST=6` goes through all lists of up to six operations.

mod model;
mod small;

use small::worlds::{self, World};

/// Longest lists, unless it is said.
const LIST: usize = 4;

#[track_caller]
fn nothing_goes_wrong_in(world: &World) {
    let longest = std::env::var("LIST").map_or(LIST, |text| text.parse().expect("LIST is a number"));
    let count = small::explore::explore(world, longest);
    println!(
        "{}: {} lists of up to {longest} operations, {} starts, after {} lists somebody waited",
        world.name, count.lists, count.starts, count.waited
    );
    assert!(count.starts > 0 && count.waited > 0, "{count:?}");
}

#[test]
fn windows_of_two_lanes() {
    nothing_goes_wrong_in(&worlds::windows());
}

#[test]
fn keys_and_everything_held() {
    nothing_goes_wrong_in(&worlds::holds());
}

#[test]
fn grants_that_are_taken_up_late() {
    nothing_goes_wrong_in(&worlds::late_polls());
}

#[test]
fn attempts_that_are_capped() {
    nothing_goes_wrong_in(&worlds::caps());
}

#[test]
fn windows_that_count_from_the_response() {
    nothing_goes_wrong_in(&worlds::responses());
}

#[test]
fn requests_of_different_costs() {
    nothing_goes_wrong_in(&worlds::costs());
}

#[test]
fn siblings_of_different_weights() {
    nothing_goes_wrong_in(&worlds::siblings());
}

#[test]
fn a_lower_lane_that_is_paced() {
    nothing_goes_wrong_in(&worlds::pace());
}

#[test]
fn queues_that_are_ordered_or_short() {
    nothing_goes_wrong_in(&worlds::queues());
}
