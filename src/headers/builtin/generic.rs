//! `auto`, what is below it, and dialects that add little to it.

use crate::headers::dialect::{
    Dialect, Family, Field, Form, Meaning, Part, ServerScope, WaitField, WindowSpec, Word, Words,
};
use crate::headers::json::Pick;

/// Waits and refusals, no windows: what every dialect starts from.
pub(super) static PLAIN: Dialect = Dialect::new("plain")
    .refused(&[429, 503, 529, 420, 418])
    .waits(
        const {
            &[
                WaitField::new("retry-after", Form::RetryAfter),
                WaitField::new("retry-after-ms", Form::Milliseconds),
                WaitField::new("x-ms-retry-after-ms", Form::Milliseconds),
            ]
        },
    )
    .words(const { &[Words::new("x-should-retry", const { &[Word::new("false", Meaning::Final)] })] })
    .body(
        const {
            &[
                Pick::wait("retry_after", Form::Any),
                Pick::wait("retry_after_ms", Form::Milliseconds),
                Pick::wait("parameters.retry_after", Form::Any),
                Pick::wait("error.details.retryDelay", Form::Any),
                Pick::words("error.code", OUT_OF_CREDIT),
                Pick::words("error.type", OUT_OF_CREDIT),
            ]
        },
    );

const OUT_OF_CREDIT: &[Word] = const { &[Word::new("insufficient_quota", Meaning::Final)] };

const fn family(prefix: &'static str, form: Form, list: bool) -> Family {
    Family { prefix, form, list }
}

pub(super) static AUTO: Dialect = Dialect::new("auto").like(&PLAIN).families(
    const {
        &[
            family("ratelimit", Form::Any, true),
            family("x-ratelimit", Form::Any, false),
            family("x-rate-limit", Form::Any, false),
            family("anthropic-ratelimit", Form::Any, false),
        ]
    },
);

/// The drafts of the IETF to the letter: resets are seconds, however many.
pub(super) static IETF: Dialect =
    Dialect::new("ietf").like(&PLAIN).families(const { &[family("ratelimit", Form::Seconds, true)] });

pub(super) static DELTA_MS: Dialect = Dialect::new("x-ratelimit-delta-ms").like(&PLAIN).families(
    const { &[family("x-ratelimit", Form::Milliseconds, false), family("x-rate-limit", Form::Milliseconds, false)] },
);

const GLOBAL: Meaning = Meaning::Scope(ServerScope::Global);
const ROUTE: Meaning = Meaning::Scope(ServerScope::Route);
const KEY: Meaning = Meaning::Scope(ServerScope::Key);

pub(super) static DISCORD: Dialect = Dialect::new("discord")
    .like(&AUTO)
    .named_by("x-ratelimit-bucket")
    .words(
        const {
            &[
                Words::new(
                    "x-ratelimit-scope",
                    const { &[Word::new("user", ROUTE), Word::new("shared", ROUTE), Word::new("global", GLOBAL)] },
                ),
                Words::new("x-ratelimit-global", const { &[Word::new("true", GLOBAL)] }),
                // The edge, not the API: it has blocked the whole address.
                Words::new("content-type", const { &[Word::new("text/html*", GLOBAL)] }),
            ]
        },
    )
    .body(const { &[Pick::words("global", const { &[Word::new("true", GLOBAL), Word::new("false", ROUTE)] })] });

pub(super) static GITHUB: Dialect =
    Dialect::new("github").like(&AUTO).named_by("x-ratelimit-resource").body(
        const {
            &[Pick::words(
                "message",
                const {
                    &[
                        Word::new("*secondary rate limit*", Meaning::Refused),
                        Word::new("*secondary rate limit*", GLOBAL),
                    ]
                },
            )]
        },
    );

pub(super) static GITLAB: Dialect = Dialect::new("gitlab").like(&AUTO).named_by("ratelimit-name");

pub(super) static SLACK: Dialect = Dialect::new("slack").like(&AUTO).scope(ServerScope::Route);

pub(super) static STRIPE: Dialect = Dialect::new("stripe")
    .like(&AUTO)
    .words(
        const {
            &[Words::new(
                "stripe-rate-limited-reason",
                const {
                    &[
                        Word::new("global-*", GLOBAL),
                        Word::new("endpoint-*", ROUTE),
                        Word::new("resource-specific", KEY),
                    ]
                },
            )]
        },
    )
    .body(
        const {
            // Another request works on the same object: no limit at all.
            &[Pick::words("error.code", const { &[Word::new("lock_timeout", Meaning::NotRefused)] })]
        },
    );

pub(super) static ATLASSIAN: Dialect = Dialect::new("atlassian").like(&AUTO).full_refill().words(
    const {
        &[Words::new(
            "ratelimit-reason",
            const { &[Word::new("*burst*", ROUTE), Word::new("*per-issue*", KEY)] },
        )]
    },
);

/// `X-Ratelimit-Retry` is the time to the next request, `-Reset` that to a full burst.
pub(super) static WILDBERRIES: Dialect = Dialect::new("wildberries").like(&AUTO).full_refill();

pub(super) static X_TWITTER: Dialect = Dialect::new("x-twitter").like(&AUTO).windows(
    const {
        &[
            WindowSpec::new("user-24hour").fields(
                const {
                    &[
                        Field::new("x-user-limit-24hour-limit", Part::Limit),
                        Field::new("x-user-limit-24hour-remaining", Part::Remaining),
                        Field::new("x-user-limit-24hour-reset", Part::Reset(Form::Any)),
                    ]
                },
            ),
            WindowSpec::new("app-24hour").scope(ServerScope::Global).fields(
                const {
                    &[
                        Field::new("x-app-limit-24hour-limit", Part::Limit),
                        Field::new("x-app-limit-24hour-remaining", Part::Remaining),
                        Field::new("x-app-limit-24hour-reset", Part::Reset(Form::Any)),
                    ]
                },
            ),
        ]
    },
);
