//! Keys with numbers of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::check;
use super::finding::Findings;
use super::model::Rules;
use super::quota::Quota;
use crate::engine::{LimitSpec, RuleId};

/// By key, then by rule.
pub(super) type KeyQuotas = BTreeMap<Arc<str>, BTreeMap<Arc<str>, Vec<Quota>>>;

/// The same for the engine.
pub(super) type OwnNumbers = BTreeMap<Arc<str>, Vec<(RuleId, Arc<[LimitSpec]>)>>;

impl Rules {
    /// The keys that have numbers of their own under some rule, in alphabetic order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.model().keys.keys().map(|key| &**key)
    }

    /// The quotas that a key has under a rule in place of the rule's own `per_key`. `None`: the rule's.
    ///
    /// A key is known by its text: `shop-1`, `42`.
    #[must_use]
    pub fn key_quotas(&self, key: &str, rule: &str) -> Option<&[Quota]> {
        self.model().keys.get(key)?.get(rule).map(Vec::as_slice)
    }

    /// A key's own numbers for [`Scheduler::set_own`](crate::engine::Scheduler::set_own), rule by rule. Empty for most.
    ///
    /// ```
    /// use request_balancer::Rules;
    /// use request_balancer::engine::{LimitKind, RuleId};
    ///
    /// let rules: Rules = "
    ///     [rules]
    ///     write = '5/1s'
    ///     read = '10/1s'
    ///     [keys.'shop-1']
    ///     read = '40/1s'
    /// "
    /// .parse()?;
    /// let own = rules.own_numbers("shop-1");
    /// assert_eq!(own[0].0, RuleId(1));
    /// assert!(matches!(own[0].1[0].kind, LimitKind::Window { count: 40, .. }));
    /// assert!(rules.own_numbers("shop-2").is_empty());
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    #[must_use]
    pub fn own_numbers(&self, key: &str) -> Vec<(RuleId, Arc<[LimitSpec]>)> {
        self.own().get(key).cloned().unwrap_or_default()
    }

    /// Compiles quotas that a key gets under a rule while the program runs, in place of the rule's own `per_key`. The
    /// margin, the units and the rest are those of these rules, and the rule's `key_concurrency` stays.
    ///
    /// # Errors
    ///
    /// What the same quotas would be refused for in the file, an unknown rule, and the time zone of a calendar quota
    /// that no quota of these rules has: the engine knows no other.
    ///
    /// ```
    /// use request_balancer::{FindingCode, Quota, Rules};
    ///
    /// let rules: Rules = "[rules]\nread = '10/1s'".parse()?;
    /// let (_, specs) = rules.compile_own("read", &[Quota::per_second(40)])?;
    /// assert_eq!(specs.len(), 1);
    /// let findings = rules.compile_own("raed", &[Quota::per_second(0)]).unwrap_err();
    /// let codes: Vec<_> = findings.iter().map(|finding| finding.code()).collect();
    /// assert_eq!(codes, [FindingCode::UnknownRule, FindingCode::Zero]);
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    pub fn compile_own(&self, rule: &str, quotas: &[Quota]) -> Result<(RuleId, Arc<[LimitSpec]>), Findings> {
        check::own(self.model(), rule, quotas)
    }
}
