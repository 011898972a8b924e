//! `[shared]`.

use ::toml::Spanned;
use ::toml::de::DeValue;

use super::join;
use super::value::Reader;
use crate::rules::shared::{OUTAGES, SharedRules};

const SHARED: &[&str] = &["url", "prefix", "lease", "on_outage", "processes", "version"];

impl Reader<'_> {
    pub(super) fn shared(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Option<SharedRules> {
        let table = self.table(value, path, "a table")?;
        let mut shared = SharedRules::default();
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "url" => {
                    shared.url = self.text(value, path, "an address in quotes, such as `\"redis://127.0.0.1:6379\"`")
                }
                "prefix" => shared.prefix = self.text(value, path, "a name in quotes"),
                "lease" => shared.lease = self.duration(value, path),
                "on_outage" => shared.on_outage = self.word(value, path, OUTAGES).unwrap_or_default(),
                "processes" => shared.processes = self.number(value, path),
                "version" => shared.version = self.long_number(value, path),
                _ => self.unknown(key, path, SHARED),
            }
        }
        Some(shared)
    }
}
