//! Dialects of a rules file: those of APIs that the crate does not know.

use super::model::Rules;
use crate::headers::Dialect;

impl Rules {
    /// The dialect of this name: one of `[dialects.x]`, else one that comes with the crate.
    ///
    /// ```
    /// use request_balancer::Rules;
    ///
    /// let rules: Rules = "
    ///     [dialects.shop]
    ///     scope = 'global'
    ///     windows.day = { limit = 'X-Shop-Limit', remaining = 'X-Shop-Left', per = '1day' }
    ///     waits.X-Shop-Wait = 'milliseconds'
    /// "
    /// .parse()?;
    /// assert_eq!(rules.dialect("shop").map(|dialect| dialect.name()), Some("shop"));
    /// assert_eq!(rules.dialect("discord").map(|dialect| dialect.name()), Some("discord"));
    /// assert_eq!(rules.dialect("shops"), None);
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    #[must_use]
    pub fn dialect(&self, name: &str) -> Option<&Dialect> {
        self.dialects().find(|dialect| dialect.name() == name).or_else(|| Dialect::named(name))
    }

    /// The dialects that these rules add, in order.
    pub fn dialects(&self) -> impl ExactSizeIterator<Item = &Dialect> {
        self.model().dialects.iter()
    }
}
