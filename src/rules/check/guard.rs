//! The guard before a ban.

use super::Checker;
use crate::engine::Nanos;
use crate::rules::finding::{Finding, FindingCode};
use crate::rules::quota::Quota;
use crate::rules::wording::quote;

impl Checker<'_> {
    /// The level at which everything stops: a number in a length of time and nothing else.
    pub(super) fn ban_guard(&mut self) -> Option<Quota> {
        let level = self.builder.ban_guard.as_ref()?;
        let before = self.findings.len();
        let plain = Quota::new(level.value.count(), level.value.period());
        if level.value == plain {
            super::quota(&plain, Nanos::ZERO, &mut |finding| {
                self.findings.push(finding.at("ban_guard", level.place));
            });
        } else {
            let allowed = "`N/T` alone, such as `9500/600s`";
            let finding = Finding::new(FindingCode::InvalidQuota, quote(&level.value.to_string()), allowed);
            self.push(finding, "ban_guard", level.place);
        }
        (self.findings.len() == before).then_some(plain)
    }
}
