//! The stand-in for `meters.rs` without the feature `metrics`.

use super::event::Event;
use super::shared::Shared;
use crate::engine::{Nanos, RuleId};
use crate::error::Refused;

#[derive(Debug, Default)]
pub(crate) struct Meter(());

#[expect(clippy::unused_self, reason = "as in meters.rs")]
impl Meter {
    pub(super) const fn waits_outside(&mut self, _: &Shared, _: RuleId) {}

    pub(super) const fn waits(&mut self, _: &Shared, _: RuleId) {}

    pub(super) const fn starts(&mut self, _: &Shared, _: RuleId, _: Nanos) {}

    pub(super) const fn leaves_line(&mut self) {}

    pub(super) const fn ends(&mut self) {}

    pub(super) const fn retries(&self, _: &Shared, _: RuleId, _: &'static str) {}

    pub(super) const fn refused(&self, _: &Shared, _: RuleId, _: &Refused) {}
}

pub(super) const fn count(_: &Event) {}
