//! What dialects look for in JSON, as data.

use std::borrow::Cow;

use super::dialect::{Form, Word};

/// JSON in a response and what is looked for in it.
///
/// ```
/// use request_balancer::headers::{Dialect, Form, Json, Meaning, Pick, Word};
///
/// static SHOP: Dialect = Dialect::new("shop").like(Dialect::auto()).any_status().json(
///     const {
///         &[Json::body(
///             const {
///                 &[
///                     Pick::wait("error.wait_ms", Form::Milliseconds),
///                     Pick::words("error.code", const { &[Word::new("TOO_FAST", Meaning::Refused)] }),
///                 ]
///             },
///         )]
///     },
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Json {
    /// `None`: the body.
    pub(crate) header: Option<Cow<'static, str>>,
    pub(crate) picks: Cow<'static, [Pick]>,
}

impl Json {
    /// The body.
    pub const fn body(picks: &'static [Pick]) -> Self {
        Self { header: None, picks: Cow::Borrowed(picks) }
    }

    /// The header field of this name, in any case.
    pub const fn header(header: &'static str, picks: &'static [Pick]) -> Self {
        Self { header: Some(Cow::Borrowed(header)), picks: Cow::Borrowed(picks) }
    }
}

/// One value that is looked for.
///
/// Its path names the members on the way to it, with dots between: `error.code`. `*` is any member, and a list on the
/// way means each of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Pick {
    pub(crate) path: Cow<'static, str>,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// How long to wait.
    Wait { form: Form, on: On },
    /// The same, told in a text behind these words.
    WaitBehind { words: Cow<'static, str>, form: Form },
    /// Says something about a refusal.
    Words(Cow<'static, [Word]>),
    /// A number of a window.
    Count { window: &'static str, unit: &'static str, count: Count },
}

/// When a wait counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// When the request was refused, and on 403 and 5xx.
    Refusal,
    /// On any response.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Limit,
    Remaining,
    /// Percent of a limit that is not told.
    UsedPercent,
}

impl Pick {
    /// A value that says how long to wait after a refusal.
    pub const fn wait(path: &'static str, form: Form) -> Self {
        Self { path: Cow::Borrowed(path), what: What::Wait { form, on: On::Refusal } }
    }

    /// A value whose words say something about the response.
    pub const fn words(path: &'static str, words: &'static [Word]) -> Self {
        Self { path: Cow::Borrowed(path), what: What::Words(Cow::Borrowed(words)) }
    }

    pub(crate) const fn wait_always(path: &'static str, form: Form) -> Self {
        Self { path: Cow::Borrowed(path), what: What::Wait { form, on: On::Any } }
    }

    pub(crate) const fn wait_behind(path: &'static str, words: &'static str, form: Form) -> Self {
        Self { path: Cow::Borrowed(path), what: What::WaitBehind { words: Cow::Borrowed(words), form } }
    }

    pub(crate) const fn count(path: &'static str, window: &'static str, unit: &'static str, count: Count) -> Self {
        Self { path: Cow::Borrowed(path), what: What::Count { window, unit, count } }
    }
}
