//! Dialects: what the fields of an API's responses are called and what they mean, as data.

use std::borrow::Cow;
use std::mem;
use std::time::Duration;

use super::json::{JsonHeader, Pick};

/// What an API calls the fields in which it reports its own counters, and what their values mean.
///
/// A dialect reads its own fields besides those of the one it is [`like`](Self::like). [`named`](Self::named) gives one
/// of those that come with the crate; a rules file adds others under `[dialects.x]`, and code makes them from constants:
///
/// ```
/// use request_balancer::headers::{Dialect, Field, Part, ServerScope, WindowSpec};
///
/// static FIELDS: [Field; 2] = [Field::new("X-Shop-Day", Part::Limit), Field::new("X-Shop-Left", Part::Remaining)];
/// static DAY: [WindowSpec; 1] = [WindowSpec::new("day").fields(&FIELDS)];
/// static SHOP: Dialect = Dialect::new("shop").like(Dialect::auto()).scope(ServerScope::Global).windows(&DAY);
///
/// assert_eq!(SHOP.name(), "shop");
/// assert_eq!(Dialect::named("discord").map(Dialect::name), Some("discord"));
/// assert_eq!(Dialect::named("shop"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Dialect {
    pub(crate) name: Cow<'static, str>,
    pub(crate) like: Option<&'static Self>,
    /// Those of the nearest dialect that has any.
    pub(crate) families: Cow<'static, [Family]>,
    /// That of the nearest dialect that has any.
    pub(crate) named_by: Option<Cow<'static, str>>,
    pub(crate) windows: Cow<'static, [WindowSpec]>,
    pub(crate) waits: Cow<'static, [WaitField]>,
    pub(crate) words: Cow<'static, [Words]>,
    pub(crate) body: Cow<'static, [Pick]>,
    pub(crate) json_headers: &'static [JsonHeader],
    /// Those of the nearest dialect that has any.
    pub(crate) refused: Cow<'static, [u16]>,
    pub(crate) scope: Option<ServerScope>,
    pub(crate) full_refill: bool,
    pub(crate) any_status: bool,
}

impl Dialect {
    /// A dialect that reads nothing yet. Its name is for the rules file and for messages.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            like: None,
            families: Cow::Borrowed(&[]),
            named_by: None,
            windows: Cow::Borrowed(&[]),
            waits: Cow::Borrowed(&[]),
            words: Cow::Borrowed(&[]),
            body: Cow::Borrowed(&[]),
            json_headers: &[],
            refused: Cow::Borrowed(&[]),
            scope: None,
            full_refill: false,
            any_status: false,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the fields of `base` too. Default: only its own.
    pub const fn like(mut self, base: &'static Self) -> Self {
        self.like = Some(base);
        self
    }

    /// The field whose value says which of several windows `RateLimit-…`, `X-RateLimit-…` and their like are about this
    /// time: it is the name of that window. Default: that of the dialect that it is like; without one, they are always
    /// about the same.
    ///
    /// ```
    /// use request_balancer::headers::Dialect;
    ///
    /// static SHOP: Dialect = Dialect::new("shop").like(Dialect::auto()).named_by("X-Shop-Counter");
    /// # #[cfg(feature = "headers")]
    /// # {
    /// use request_balancer::headers::read;
    /// use std::time::SystemTime;
    ///
    /// let fields = [("X-Shop-Counter", "search"), ("X-RateLimit-Remaining", "4")];
    /// assert_eq!(read(200, fields, None, SystemTime::now(), &SHOP).windows()[0].name, "search");
    /// # }
    /// ```
    pub const fn named_by(mut self, header: &'static str) -> Self {
        // As below.
        mem::forget(self.named_by.replace(Cow::Borrowed(header)));
        self
    }

    /// Windows told by fields of their own. Default: none.
    pub const fn windows(mut self, windows: &'static [WindowSpec]) -> Self {
        set(&mut self.windows, windows);
        self
    }

    /// Fields that say how long to wait before the next request. Default: none.
    pub const fn waits(mut self, waits: &'static [WaitField]) -> Self {
        set(&mut self.waits, waits);
        self
    }

    /// Fields whose words say something about a refusal. Default: none.
    pub const fn words(mut self, words: &'static [Words]) -> Self {
        set(&mut self.words, words);
        self
    }

    /// What is looked for in bodies of JSON, which takes the feature `json`. Default: nothing.
    pub const fn body(mut self, picks: &'static [Pick]) -> Self {
        set(&mut self.body, picks);
        self
    }

    /// The statuses that are refusals, whatever else the response says. Default: those of the dialect that it is like;
    /// without one, none.
    pub const fn refused(mut self, statuses: &'static [u16]) -> Self {
        set(&mut self.refused, statuses);
        self
    }

    /// The scope of a refusal that does not tell its own. Default: not known.
    pub const fn scope(mut self, scope: ServerScope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// The reset is the moment at which the whole quota is there again, not that of the next free request: where a
    /// refusal says how long to wait, that counts. Default: no.
    pub const fn full_refill(mut self) -> Self {
        self.full_refill = true;
        self
    }

    /// Bodies are read whatever the status is, for APIs that refuse in a 200 or a 400. Default: only those of refusals,
    /// of 403 and of 5xx.
    pub const fn any_status(mut self) -> Self {
        self.any_status = true;
        self
    }

    pub(crate) const fn json_headers(mut self, headers: &'static [JsonHeader]) -> Self {
        self.json_headers = headers;
        self
    }

    pub(crate) const fn families(mut self, families: &'static [Family]) -> Self {
        set(&mut self.families, families);
        self
    }

    /// This dialect, then the one that it is like, and so on.
    #[cfg(feature = "headers")]
    pub(crate) fn layers(&self) -> impl Iterator<Item = &Self> + Clone {
        std::iter::successors(Some(self), |dialect| dialect.like)
    }
}

/// What is replaced is borrowed and needs no drop, which constants could not do.
const fn set<T>(list: &mut Cow<'static, [T]>, to: &'static [T])
where
    [T]: ToOwned<Owned = Vec<T>>,
{
    mem::forget(mem::replace(list, Cow::Borrowed(to)));
}

/// Fields of which only the prefix is known: behind it stand what is told and, before or after that, its unit or its
/// period, such as in `x-ratelimit-remaining-tokens`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) prefix: &'static str,
    /// Of its resets.
    pub(crate) form: Form,
    /// The field that is called like the prefix is a structured list, not a limit.
    pub(crate) list: bool,
}

/// One window of the server's: a quota and the fields that tell its state.
///
/// ```
/// use request_balancer::Rules;
/// use request_balancer::headers::{Dialect, Field, Form, Part, WindowSpec};
///
/// static FIELDS: [Field; 2] =
///     [Field::new("X-Left", Part::Remaining), Field::new("X-Reset", Part::Reset(Form::Milliseconds))];
/// static DAY: [WindowSpec; 1] = [WindowSpec::new("day").unit("points").fields(&FIELDS)];
/// static SHOP: Dialect = Dialect::new("shop").like(Dialect::auto()).windows(&DAY);
///
/// let rules = Rules::builder().dialect(SHOP.clone()).build()?;
/// let reset = r#"reset = { header = "X-Reset", form = "milliseconds" }"#;
/// let day = format!(r#"windows = {{ day = {{ unit = "points", remaining = "X-Left", {reset} }} }}"#);
/// assert!(rules.to_string().ends_with(&format!("[dialects.shop]\n{day}\n")));
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct WindowSpec {
    pub(crate) name: Cow<'static, str>,
    pub(crate) unit: Cow<'static, str>,
    pub(crate) scope: Option<ServerScope>,
    pub(crate) per: Option<Duration>,
    pub(crate) fields: Cow<'static, [Field]>,
}

/// The unit that requests are counted in.
pub(crate) const REQUESTS: &str = "requests";

impl WindowSpec {
    /// A window that counts requests and of which nothing is read yet.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            unit: Cow::Borrowed(REQUESTS),
            scope: None,
            per: None,
            fields: Cow::Borrowed(&[]),
        }
    }

    /// What it counts. Default: `requests`. Only those narrow what may start; a window of another unit counts when
    /// nothing of it is left.
    pub const fn unit(mut self, unit: &'static str) -> Self {
        mem::forget(mem::replace(&mut self.unit, Cow::Borrowed(unit)));
        self
    }

    /// For whom it counts. Default: not known.
    pub const fn scope(mut self, scope: ServerScope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Its length, where no field tells it. Default: not known.
    pub const fn per(mut self, per: Duration) -> Self {
        self.per = Some(per);
        self
    }

    /// The fields that tell its state.
    pub const fn fields(mut self, fields: &'static [Field]) -> Self {
        set(&mut self.fields, fields);
        self
    }
}

/// A header field and what of a window it tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Field {
    pub(crate) header: Cow<'static, str>,
    pub(crate) part: Part,
}

impl Field {
    /// The field of this name, in any case. One `*` at the beginning or the end stands for anything: each name that
    /// fits is a window by itself.
    pub const fn new(header: &'static str, part: Part) -> Self {
        Self { header: Cow::Borrowed(header), part }
    }
}

/// What a field tells of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// How many it allows.
    Limit,
    /// How many are left.
    Remaining,
    /// How many were used.
    Used,
    /// When it begins anew.
    Reset(Form),
    /// How long it is.
    Length(Form),
    /// Used and allowed in one field: `32/40`.
    UsedOfLimit,
    /// Spent by this request, left, and allowed in one field: `10/20828/64000`.
    SpentLeftLimit,
    /// Several windows in one field, limit and seconds of each: `20:1,100:120`.
    Limits,
    /// What was used of each of them, with their seconds: `1:1,1:120`.
    Counts,
}

/// How a moment or a length of time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Form {
    /// By its value: a number below 10⁹ is seconds from now, a larger one a Unix time in seconds, ms, µs or ns by its
    /// size; text is a duration such as `6m0s`, a time of RFC 3339 with its zone, or an HTTP date.
    #[default]
    Any,
    /// As `Retry-After` is written: a number as above, or a date.
    RetryAfter,
    /// Seconds from now, however many.
    Seconds,
    /// Milliseconds from now.
    Milliseconds,
    /// Minutes from now.
    Minutes,
}

/// For whom the server counts, or whom it refused.
///
/// ```
/// use request_balancer::headers::ServerScope;
///
/// assert!(ServerScope::Global > ServerScope::Route && ServerScope::Route > ServerScope::Key);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerScope {
    /// The key of the request: one chat, one recipient, one object.
    Key,
    /// One route, method or bucket of the credential.
    Route,
    /// Everything under the credential or the address.
    Global,
}

/// A header field that says how long to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct WaitField {
    pub(crate) header: Cow<'static, str>,
    pub(crate) form: Form,
}

impl WaitField {
    /// The field of this name, in any case.
    pub const fn new(header: &'static str, form: Form) -> Self {
        Self { header: Cow::Borrowed(header), form }
    }
}

/// A header field whose words say something about a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Words {
    pub(crate) header: Cow<'static, str>,
    pub(crate) words: Cow<'static, [Word]>,
}

impl Words {
    /// The field of this name, in any case.
    pub const fn new(header: &'static str, words: &'static [Word]) -> Self {
        Self { header: Cow::Borrowed(header), words: Cow::Borrowed(words) }
    }
}

/// A value and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Word {
    pub(crate) value: Cow<'static, str>,
    pub(crate) meaning: Meaning,
}

impl Word {
    /// The value in any case; a `*` at its beginning or end stands for anything.
    pub const fn new(value: &'static str, meaning: Meaning) -> Self {
        Self { value: Cow::Borrowed(value), meaning }
    }
}

/// What a word of a response means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Meaning {
    /// The response is a refusal, whatever its status.
    Refused,
    /// It is none, whatever its status.
    NotRefused,
    /// No wait will help: the server does not want the request again.
    Final,
    /// A refusal is for all of this.
    Scope(ServerScope),
}

/// Whether `text` is `pattern` in any case; a `*` at either end of the pattern stands for anything.
#[cfg(feature = "headers")]
pub(crate) fn fits(pattern: &str, text: &[u8]) -> bool {
    let pattern = pattern.as_bytes();
    let (begins, ends) = (pattern.last() == Some(&b'*'), pattern.first() == Some(&b'*'));
    let pattern = pattern.strip_suffix(b"*").unwrap_or(pattern);
    let pattern = pattern.strip_prefix(b"*").unwrap_or(pattern);
    let length = pattern.len();
    let same = |part: Option<&[u8]>| part.is_some_and(|part| part.eq_ignore_ascii_case(pattern));
    match (ends, begins) {
        (false, false) => text.eq_ignore_ascii_case(pattern),
        (false, true) => same(text.get(..length)),
        (true, false) => same(text.len().checked_sub(length).and_then(|at| text.get(at..))),
        (true, true) => length == 0 || text.windows(length).any(|part| part.eq_ignore_ascii_case(pattern)),
    }
}
