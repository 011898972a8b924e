//! Dialects that say in JSON what others say in fields, and some that refuse in a 200 or a 400.

use super::generic::{AUTO, PLAIN};
use crate::headers::dialect::{Dialect, Field, Form, Meaning, Part, REQUESTS, ServerScope, WindowSpec, Word};
use crate::headers::json::{Count, JsonHeader, Pick};

const GLOBAL: Meaning = Meaning::Scope(ServerScope::Global);
const ROUTE: Meaning = Meaning::Scope(ServerScope::Route);
const KEY: Meaning = Meaning::Scope(ServerScope::Key);

pub(super) static AWS: Dialect = Dialect::new("aws")
    .like(&PLAIN)
    .any_status()
    .body(const { &[Pick::words("__type", THROTTLING), Pick::words("code", THROTTLING)] });

const THROTTLING: &[Word] = const {
    &[
        Word::new("*throttl*", Meaning::Refused),
        Word::new("*TooManyRequests*", Meaning::Refused),
        Word::new("*RequestLimitExceeded*", Meaning::Refused),
        Word::new("*ProvisionedThroughputExceeded*", Meaning::Refused),
        Word::new("*SlowDown*", Meaning::Refused),
    ]
};

pub(super) static BITRIX24: Dialect = Dialect::new("bitrix24").like(&AUTO).body(
    const {
        &[
            Pick::words(
                "error",
                const {
                    &[
                        Word::new("QUERY_LIMIT_EXCEEDED", Meaning::Refused),
                        Word::new("QUERY_LIMIT_EXCEEDED", GLOBAL),
                        Word::new("OPERATION_TIME_LIMIT", Meaning::Refused),
                        Word::new("OPERATION_TIME_LIMIT", ROUTE),
                    ]
                },
            ),
            Pick::wait("time.operating_reset_at", Form::Any),
        ]
    },
);

pub(super) static BYBIT: Dialect = Dialect::new("bybit")
    .like(&PLAIN)
    .any_status()
    .windows(
        const {
            &[WindowSpec::new("bybit").fields(
                const {
                    &[
                        Field::new("x-bapi-limit", Part::Limit),
                        Field::new("x-bapi-limit-status", Part::Remaining),
                        Field::new("x-bapi-limit-reset-timestamp", Part::Reset(Form::Any)),
                    ]
                },
            )]
        },
    )
    .body(const { &[Pick::words("retCode", const { &[Word::new("10006", Meaning::Refused)] })] });

pub(super) static GOOGLE: Dialect = Dialect::new("google").like(&AUTO).body(
    const {
        &[
            Pick::wait("error.details.metadata.quotaResetDelay", Form::Any),
            Pick::words(
                "error.errors.reason",
                const {
                    &[
                        Word::new("rateLimitExceeded", Meaning::Refused),
                        Word::new("userRateLimitExceeded", Meaning::Refused),
                    ]
                },
            ),
        ]
    },
);

pub(super) static KRAKEN: Dialect =
    Dialect::new("kraken").like(&PLAIN).any_status().body(
        const {
            &[
                Pick::words(
                    "error",
                    const {
                        &[
                            Word::new("*rate limit exceeded*", Meaning::Refused),
                            Word::new("*throttled*", Meaning::Refused),
                        ]
                    },
                ),
                Pick::wait_behind("error", "throttled: ", Form::Any),
            ]
        },
    );

pub(super) static META: Dialect = Dialect::new("meta")
    .like(&PLAIN)
    .any_status()
    .json_headers(
        const {
            &[
                JsonHeader { header: "x-app-usage", picks: USAGE },
                JsonHeader { header: "x-ad-account-usage", picks: ACCOUNT_USAGE },
                JsonHeader { header: "x-business-use-case-usage", picks: BUSINESS_USAGE },
            ]
        },
    )
    .body(const { &[Pick::words("error.code", META_CODES)] });

const ACCOUNT_USAGE: &[Pick] = const { &[Pick::count("acc_id_util_pct", "ad account", "percent", Count::UsedPercent)] };

const BUSINESS_USAGE: &[Pick] = const {
    &[
        Pick::count("*.call_count", "call_count", "percent", Count::UsedPercent),
        Pick::count("*.total_time", "total_time", "percent", Count::UsedPercent),
        Pick::count("*.total_cputime", "total_cputime", "percent", Count::UsedPercent),
        Pick::wait("*.estimated_time_to_regain_access", Form::Minutes),
    ]
};

const USAGE: &[Pick] = const {
    &[
        Pick::count("call_count", "call_count", "percent", Count::UsedPercent),
        Pick::count("total_time", "total_time", "percent", Count::UsedPercent),
        Pick::count("total_cputime", "total_cputime", "percent", Count::UsedPercent),
    ]
};

const META_CODES: &[Word] = const {
    &[
        Word::new("4", Meaning::Refused),
        Word::new("17", Meaning::Refused),
        Word::new("32", Meaning::Refused),
        Word::new("613", Meaning::Refused),
        Word::new("80007", Meaning::Refused),
        Word::new("130429", Meaning::Refused),
        Word::new("130429", GLOBAL),
        Word::new("131056", Meaning::Refused),
        Word::new("131056", KEY),
    ]
};

pub(super) static STACKEXCHANGE: Dialect =
    Dialect::new("stackexchange").like(&PLAIN).any_status().scope(ServerScope::Route).body(
        const {
            &[
                Pick::wait_always("backoff", Form::Seconds),
                Pick::count("quota_max", "quota", REQUESTS, Count::Limit),
                Pick::count("quota_remaining", "quota", REQUESTS, Count::Remaining),
            ]
        },
    );

pub(super) static TELEGRAM: Dialect = Dialect::new("telegram").like(&AUTO).body(
    const {
        &[
            Pick::wait_behind("description", "retry after ", Form::Any),
            Pick::wait_behind("description", "flood_wait_", Form::Any),
        ]
    },
);

/// 6 is too many a second, 9 too many alike, 29 too many a day.
pub(super) static VK: Dialect = Dialect::new("vk").like(&PLAIN).any_status().body(
    const {
        &[Pick::words(
            "error.error_code",
            const {
                &[Word::new("6", Meaning::Refused), Word::new("9", Meaning::Refused), Word::new("29", Meaning::Refused)]
            },
        )]
    },
);
