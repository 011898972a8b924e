//! The limits of a file level by level: whose words they are and whom they bind.

use super::model::{CheckedCaps, CheckedRule, Rules};
use super::quota::Quota;
use super::toml::join;

/// The limits that stand under one name in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level<'r> {
    pub(crate) whose: Whose<'r>,
    caps: &'r CheckedCaps,
}

/// Whose limits they are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose<'r> {
    /// The file's own.
    File,
    /// `[limits.NAME]`.
    Named(&'r str),
    /// `[rules.NAME]`.
    Rule(&'r CheckedRule),
    /// `[lanes.N]`, of the rules with this priority.
    Lane(u32),
}

impl Rules {
    /// All limits, from the widest to the narrowest.
    pub(crate) fn levels(&self) -> impl Iterator<Item = Level<'_>> {
        let model = self.model();
        let file = std::iter::once(Level { whose: Whose::File, caps: &model.caps });
        let named = model.limits.iter().map(|limit| Level { whose: Whose::Named(&limit.name), caps: &limit.caps });
        let lanes = model.lanes.iter().map(|lane| Level { whose: Whose::Lane(lane.priority), caps: &lane.caps });
        let rules = model.rules.iter().map(|rule| Level { whose: Whose::Rule(rule), caps: &rule.caps });
        file.chain(named).chain(lanes).chain(rules)
    }
}

impl<'r> Level<'r> {
    pub(crate) fn overall(&self) -> &'r [Quota] {
        &self.caps.overall
    }

    pub(crate) fn per_key(&self) -> &'r [Quota] {
        &self.caps.per_key
    }

    pub(crate) const fn concurrency(&self) -> Option<u32> {
        self.caps.concurrency
    }

    pub(crate) const fn key_concurrency(&self) -> Option<u32> {
        self.caps.key_concurrency
    }

    /// The path of one of its fields in the file.
    pub(crate) fn path(&self, field: &str) -> String {
        let table = match self.whose {
            Whose::File => return field.to_owned(),
            Whose::Named(name) => join("limits", name),
            Whose::Rule(rule) => join("rules", rule.name()),
            Whose::Lane(priority) => join("lanes", &priority.to_string()),
        };
        join(&table, field)
    }

    /// The path of a key's own quotas under a rule.
    pub(crate) fn path_of_key(key: &str, rule: &CheckedRule) -> String {
        join(&join("keys", key), rule.name())
    }

    /// The path of one of an endpoint's fields.
    pub(crate) fn path_of_endpoint(endpoint: &str, field: &str) -> String {
        join(&join("pool.endpoints", endpoint), field)
    }

    /// Whether several lanes may draw on its limits.
    pub(crate) const fn is_of_several(&self) -> bool {
        match self.whose {
            Whose::File | Whose::Named(_) => true,
            Whose::Rule(_) | Whose::Lane(_) => false,
        }
    }

    /// Whether its limits over all keys bind a rule.
    pub(crate) fn binds_overall(&self, rule: &CheckedRule) -> bool {
        self.binds(rule, "overall")
    }

    /// Whether its limits of each key bind a rule.
    pub(crate) fn binds_per_key(&self, rule: &CheckedRule) -> bool {
        self.binds(rule, "per_key")
    }

    fn binds(&self, rule: &CheckedRule, of_file: &str) -> bool {
        match self.whose {
            Whose::File => rule.is_under(of_file),
            Whose::Named(name) => rule.is_under(name),
            Whose::Rule(own) => own.name() == rule.name(),
            Whose::Lane(priority) => rule.priority() == priority,
        }
    }
}
