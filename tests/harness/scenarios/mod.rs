//! What is measured: each scenario is a rules file, some calls, and the numbers that theory says are the best.

mod exact;
mod lanes;
mod turns;

pub(crate) use exact::{earliest_starts, one_key_saturated, stalled_executor};
pub(crate) use lanes::{busy_chat, lanes_in_balance, lanes_overloaded};
pub(crate) use turns::{hog_and_mice, newcomer_flood};
