//! Whether dialects read what they say they read.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::Checker;
use crate::engine::Nanos;
use crate::headers::{Dialect, Pick, What, WindowSpec, Word};
use crate::rules::builder::{At, OwnDialect};
use crate::rules::finding::{Finding, FindingCode, Place};
use crate::rules::toml::{join, part_name};
use crate::rules::{unit, wording};

const HEADER: &str = "the name of a header field, such as `X-Limit`";
const PATTERN: &str = "the name of a header field, such as `X-Limit`, with up to one `*` at its beginning or end";
const PATH: &str = "names with dots between, such as `error.code`";

impl Checker<'_> {
    /// The dialects, in an order of words that does not depend on how they were said.
    pub(super) fn dialects(&mut self) -> Vec<Dialect> {
        let builder = self.builder;
        self.unique(builder.dialects.iter().map(|(name, _)| name), "dialects", "dialect");
        builder.dialects.iter().map(|(name, own)| self.dialect(name, own)).collect()
    }

    fn dialect(&mut self, name: &At<String>, OwnDialect { dialect, places }: &OwnDialect) -> Dialect {
        let path = join("dialects", &name.value);
        let place = |path: &str| places.get(path).copied().or(name.place);
        self.name(name, &path, "a name of visible characters");
        if Dialect::named(&name.value).is_some() {
            let found = format!("{}, which comes with the crate", wording::quote(&name.value));
            self.push(Finding::new(FindingCode::InvalidName, found, "another name"), &path, name.place);
        }
        if let Some(like) = dialect.like
            && Dialect::named(like.name()) != Some(like)
        {
            let path = join(&path, "like");
            self.push(wording::unknown_dialect(like.name()), &path, place(&path));
        }
        if says_nothing(dialect) && !self.found_inside(&path) {
            let allowed = "at least one of `windows`, `waits`, `words`, `body`, `scope`, `refused`, `reset`, `bodies`, \
                `named_by`";
            self.push(wording::empty("a dialect that says nothing", allowed), &path, name.place);
        }
        let statuses = join(&path, "refused");
        for (number, status) in dialect.refused.iter().enumerate() {
            if !(100..=599).contains(status) {
                let place = place(&join(&statuses, &number.to_string()));
                self.push(wording::no_status(u32::from(*status)), &statuses, place);
            }
        }
        if let Some(header) = &dialect.named_by {
            self.header(header, HEADER, &join(&path, "named_by"), &place);
        }
        let windows = join(&path, "windows");
        self.once(dialect.windows.iter().map(|window| &*window.name), &windows, "window", &place);
        for window in dialect.windows.iter() {
            self.window(window, &join(&windows, &window.name), &place);
        }
        let waits = join(&path, "waits");
        self.once(dialect.waits.iter().map(|wait| &*wait.header), &waits, "field", &place);
        for wait in dialect.waits.iter() {
            self.header(&wait.header, HEADER, &join(&waits, &wait.header), &place);
        }
        let words = join(&path, "words");
        self.once(dialect.words.iter().map(|words| &*words.header), &words, "field", &place);
        for said in dialect.words.iter() {
            self.header(&said.header, HEADER, &join(&words, &said.header), &place);
        }
        self.body(dialect, &join(&path, "body"), &place);
        in_order(dialect)
    }

    fn window(&mut self, window: &WindowSpec, path: &str, place: &impl Fn(&str) -> Option<Place>) {
        let name = At { value: window.name.to_string(), place: place(path) };
        self.name(&name, path, "a name of visible characters");
        if !unit::is_name(&window.unit) {
            let path = join(path, "unit");
            let finding = Finding::new(FindingCode::InvalidName, wording::quote(&window.unit), unit::ALLOWED);
            self.push(finding, &path, place(&path));
        }
        if let Some(per) = window.per.map(Nanos::from) {
            let path = join(path, "per");
            if per.is_zero() {
                self.push(wording::zero("a length of zero", "a length of time above zero"), &path, place(&path));
            }
            self.span(Some(&At { value: per, place: place(&path) }), &path);
        }
        if window.fields.is_empty() && !self.found_inside(path) {
            let allowed = "at least one header field, such as `remaining = \"X-Left\"`";
            self.push(wording::empty("a window of which nothing is read", allowed), path, place(path));
        }
        self.once(window.fields.iter().map(|field| part_name(field.part)), path, "field", place);
        for field in window.fields.iter() {
            self.header(&field.header, PATTERN, &join(path, part_name(field.part)), place);
        }
    }

    fn body(&mut self, dialect: &Dialect, path: &str, place: &impl Fn(&str) -> Option<Place>) {
        for list in ["waits", "words"] {
            let path = join(path, list);
            let paths = || dialect.body.iter().filter(|pick| list_of(pick) == list).map(|pick| &*pick.path);
            self.once(paths(), &path, "path", place);
            for found in paths().filter(|path| path.split('.').any(str::is_empty)) {
                let path = join(&path, found);
                let finding = Finding::new(FindingCode::InvalidName, wording::quote(found), PATH);
                self.push(finding, &path, place(&path));
            }
        }
    }

    fn header(&mut self, header: &str, allowed: &str, path: &str, place: &impl Fn(&str) -> Option<Place>) {
        let name = header.strip_prefix('*').or_else(|| header.strip_suffix('*'));
        let name = name.filter(|_| allowed == PATTERN).unwrap_or(header);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) {
            let finding = Finding::new(FindingCode::InvalidName, wording::quote(header), allowed);
            self.push(finding, path, place(path));
        }
    }

    /// Names that come twice, which a file cannot say.
    fn once<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        path: &str,
        what: &str,
        place: &impl Fn(&str) -> Option<Place>,
    ) {
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(name) {
                let path = join(path, name);
                self.push(wording::duplicate_name(name, what), &path, place(&path));
            }
        }
    }
}

fn says_nothing(dialect: &Dialect) -> bool {
    dialect.windows.is_empty()
        && dialect.waits.is_empty()
        && dialect.words.is_empty()
        && dialect.body.is_empty()
        && dialect.refused.is_empty()
        && dialect.scope.is_none()
        && dialect.named_by.is_none()
        && !dialect.full_refill
        && !dialect.any_status
}

/// Where in the file a value of the body is said.
fn list_of(pick: &Pick) -> &'static str {
    match pick.what {
        What::Wait { .. } | What::WaitBehind { .. } | What::Count { .. } => "waits",
        What::Words(_) => "words",
    }
}

/// The same dialect, its words in the order in which a file has them.
fn in_order(dialect: &Dialect) -> Dialect {
    let mut dialect = dialect.clone();
    for words in dialect.words.to_mut() {
        sort(&mut words.words);
    }
    let body = dialect.body.to_mut();
    body.sort_by_key(list_of);
    for pick in body {
        match &mut pick.what {
            What::Words(words) => sort(words),
            What::Wait { .. } | What::WaitBehind { .. } | What::Count { .. } => {}
        }
    }
    dialect
}

fn sort(words: &mut Cow<'static, [Word]>) {
    words.to_mut().sort_by(|a, b| (&a.value, a.meaning).cmp(&(&b.value, b.meaning)));
    words.to_mut().dedup();
}
