//! `ban_guard`: how many invalid attempts are too many for a server that shuts out whoever makes more.

use super::builder::RulesBuilder;
use super::model::{Model, Rules};
use super::quota::Quota;
use crate::engine::BanGuard;

impl RulesBuilder {
    /// Starts nothing while so many attempts of the last period ended [invalid](crate::Verdict::Invalid): `level` below
    /// what the server tolerates, as `N/T`. Default: none.
    ///
    /// ```
    /// use request_balancer::{Quota, Rules};
    ///
    /// let built = Rules::builder().ban_guard("9500/600s".parse::<Quota>()?).build()?;
    /// let read: Rules = "ban_guard = '9500/10m'".parse()?;
    /// assert_eq!(built, read);
    /// assert_eq!(built.ban_guard().map(ToString::to_string).as_deref(), Some("9500/10m"));
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    pub fn ban_guard(mut self, level: Quota) -> Self {
        self.ban_guard = Some(level.into());
        self
    }
}

impl Rules {
    /// How many invalid attempts of the last period stop all starts. `None`: any number may come.
    #[must_use]
    pub fn ban_guard(&self) -> Option<&Quota> {
        self.model().ban_guard.as_ref()
    }
}

impl Model {
    pub(super) fn guard(&self) -> Option<BanGuard> {
        self.ban_guard.as_ref().map(|level| BanGuard { level: level.count(), period: level.nanos() })
    }
}
