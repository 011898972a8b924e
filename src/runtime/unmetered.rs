//! The stand-in for `meters.rs` without the feature `metrics`.

use std::time::Duration;

use super::event::Event;
use super::shared::Shared;
use crate::engine::{Plan, RuleId};
use crate::error::Refused;

#[derive(Debug)]
pub(crate) struct Meters;

impl Meters {
    pub(crate) fn all(_: &Plan) -> Box<[std::sync::Arc<Self>]> {
        Box::default()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Meter;

#[expect(clippy::unused_self, reason = "as in meters.rs")]
impl Meter {
    pub(super) const fn waits(&mut self, _: &Shared, _: RuleId) {}

    pub(super) const fn starts(&mut self, _: &Shared, _: RuleId, _: Duration) {}

    pub(super) const fn leaves(&mut self) {}

    pub(super) const fn retries(&mut self, _: &Shared, _: RuleId, _: &'static str) {}

    pub(super) const fn refused(&self, _: &Shared, _: RuleId, _: &Refused) {}
}

pub(super) const fn count(_: &Event) {}
