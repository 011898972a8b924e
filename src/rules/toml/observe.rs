//! What a rule says of `observe`.

use ::toml::Spanned;
use ::toml::de::DeValue;

use super::join;
use super::value::Reader;
use crate::rules::observe::Observe;

const OBSERVE: &[&str] = &["dialect", "windows", "learn"];

impl Reader<'_> {
    pub(super) fn observe(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Observe {
        let mut observe = Observe::default();
        let Some(table) = self.table(value, path, "a table") else { return observe };
        for (key, value) in Self::fields(table) {
            let name = key.get_ref().as_ref();
            let path = &join(path, name);
            match name {
                "dialect" => observe.dialect = self.text(value, path, "the name of a dialect in quotes"),
                "learn" => observe.learn = self.quota(value, path),
                "windows" => {
                    let allowed = "at least one window, such as `core = \"per_key\"`";
                    observe.windows = self.named(value, path, allowed, |reader, value, path, _| {
                        reader.text(value, path, "`per_key`, `overall`, the name of a limit, or `none`, in quotes")
                    });
                }
                _ => self.unknown(key, path, OBSERVE),
            }
        }
        observe
    }
}
