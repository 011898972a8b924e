//! What dialects look for in JSON, as data.

use std::borrow::Cow;

use super::dialect::{Form, Word};

/// A header field whose value is JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonHeader {
    pub(crate) header: &'static str,
    pub(crate) picks: &'static [Pick],
}

/// One value that is looked for.
///
/// Its path names the members on the way to it, with dots between: `error.code`. `*` is any member, and a list on the
/// way means each of its elements.
///
/// ```
/// use request_balancer::Rules;
/// use request_balancer::headers::{Dialect, Form, Meaning, Pick, Word};
///
/// static CODES: [Word; 1] = [Word::new("TOO_FAST", Meaning::Refused)];
/// static BODY: [Pick; 2] = [Pick::wait("error.wait_ms", Form::Milliseconds), Pick::words("error.code", &CODES)];
/// static SHOP: Dialect = Dialect::new("shop").like(Dialect::auto()).any_status().body(&BODY);
///
/// let rules = Rules::builder().dialect(SHOP.clone()).build()?;
/// let waits = r#"waits = { "error.wait_ms" = "milliseconds" }"#;
/// let words = r#"words = { "error.code" = { TOO_FAST = "refused" } }"#;
/// assert!(rules.to_string().ends_with(&format!("bodies = \"any\"\nbody = {{ {waits}, {words} }}\n")));
/// # Ok::<(), request_balancer::Findings>(())
/// ```
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

    pub(crate) const fn wait_at(path: String, form: Form) -> Self {
        Self { path: Cow::Owned(path), what: What::Wait { form, on: On::Refusal } }
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
