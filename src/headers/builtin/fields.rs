//! Dialects whose fields have names of their own.

use std::time::Duration;

use super::generic::{AUTO, PLAIN};
use crate::headers::dialect::{Dialect, Field, Form, Meaning, Part, ServerScope, WindowSpec, Word, Words};

const DAY: Duration = Duration::from_secs(86_400);

/// `-Next` is the moment of the next request, `-Reset` that of a full quota.
pub(super) static AKAMAI: Dialect = Dialect::new("akamai").like(&AUTO).full_refill();

pub(super) static AZURE_ARM: Dialect =
    Dialect::new("azure-arm").like(&PLAIN).windows(
        const {
            &[WindowSpec::new("azure-arm")
                .fields(const { &[Field::new("x-ms-ratelimit-remaining-*", Part::Remaining)] })]
        },
    );

/// Only what was used is told, by weight, and of no known limit; an address is what counts.
pub(super) static BINANCE: Dialect = Dialect::new("binance").like(&PLAIN).scope(ServerScope::Global);

pub(super) static BREVO: Dialect = Dialect::new("brevo").like(&PLAIN).windows(
    const {
        &[WindowSpec::new("brevo").scope(ServerScope::Global).fields(
            const {
                &[
                    Field::new("x-sib-ratelimit-limit", Part::Limit),
                    Field::new("x-sib-ratelimit-remaining", Part::Remaining),
                    Field::new("x-sib-ratelimit-reset", Part::Reset(Form::Any)),
                ]
            },
        )]
    },
);

pub(super) static CALL_LIMIT_FRACTION: Dialect = Dialect::new("call-limit-fraction").like(&PLAIN).windows(
    const { &[WindowSpec::new("calls").fields(const { &[Field::new("*-api-call-limit", Part::UsedOfLimit)] })] },
);

pub(super) static COINGLASS: Dialect = Dialect::new("coinglass").like(&PLAIN).windows(
    const {
        &[WindowSpec::new("coinglass").fields(
            const { &[Field::new("api-key-max-limit", Part::Limit), Field::new("api-key-use-limit", Part::Used)] },
        )]
    },
);

pub(super) static GOHIGHLEVEL: Dialect = Dialect::new("gohighlevel").like(&PLAIN).windows(
    const {
        &[
            WindowSpec::new("burst").fields(
                const {
                    &[
                        Field::new("x-ratelimit-max", Part::Limit),
                        Field::new("x-ratelimit-remaining", Part::Remaining),
                        Field::new("x-ratelimit-interval-milliseconds", Part::Length(Form::Milliseconds)),
                    ]
                },
            ),
            WindowSpec::new("daily").per(DAY).fields(
                const {
                    &[
                        Field::new("x-ratelimit-limit-daily", Part::Limit),
                        Field::new("x-ratelimit-daily-remaining", Part::Remaining),
                        Field::new("x-ratelimit-daily-reset", Part::Reset(Form::Milliseconds)),
                    ]
                },
            ),
        ]
    },
);

pub(super) static HUBSPOT: Dialect = Dialect::new("hubspot").like(&PLAIN).windows(
    const {
        &[
            WindowSpec::new("burst").fields(
                const {
                    &[
                        Field::new("x-hubspot-ratelimit-max", Part::Limit),
                        Field::new("x-hubspot-ratelimit-remaining", Part::Remaining),
                        Field::new("x-hubspot-ratelimit-interval-milliseconds", Part::Length(Form::Milliseconds)),
                    ]
                },
            ),
            WindowSpec::new("secondly").per(Duration::from_secs(1)).fields(
                const {
                    &[
                        Field::new("x-hubspot-ratelimit-secondly", Part::Limit),
                        Field::new("x-hubspot-ratelimit-secondly-remaining", Part::Remaining),
                    ]
                },
            ),
            WindowSpec::new("daily").per(DAY).fields(
                const {
                    &[
                        Field::new("x-hubspot-ratelimit-daily", Part::Limit),
                        Field::new("x-hubspot-ratelimit-daily-remaining", Part::Remaining),
                    ]
                },
            ),
        ]
    },
);

pub(super) static IP_API: Dialect = Dialect::new("ip-api").like(&PLAIN).scope(ServerScope::Global).windows(
    const {
        &[WindowSpec::new("ip-api")
            .fields(const { &[Field::new("x-rl", Part::Remaining), Field::new("x-ttl", Part::Reset(Form::Seconds))] })]
    },
);

pub(super) static RIOT: Dialect = Dialect::new("riot")
    .like(&PLAIN)
    .windows(
        const {
            &[
                WindowSpec::new("application").scope(ServerScope::Global).fields(
                    const {
                        &[
                            Field::new("x-app-rate-limit", Part::Limits),
                            Field::new("x-app-rate-limit-count", Part::Counts),
                        ]
                    },
                ),
                WindowSpec::new("method").scope(ServerScope::Route).fields(
                    const {
                        &[
                            Field::new("x-method-rate-limit", Part::Limits),
                            Field::new("x-method-rate-limit-count", Part::Counts),
                        ]
                    },
                ),
            ]
        },
    )
    .words(
        const {
            &[Words::new(
                "x-rate-limit-type",
                const {
                    &[
                        Word::new("application", Meaning::Scope(ServerScope::Global)),
                        Word::new("method", Meaning::Scope(ServerScope::Route)),
                        Word::new("service", Meaning::Scope(ServerScope::Route)),
                    ]
                },
            )]
        },
    );

pub(super) static SHOPIFY_REST: Dialect =
    Dialect::new("shopify-rest").like(&PLAIN).windows(
        const {
            &[WindowSpec::new("shop")
                .fields(const { &[Field::new("x-shopify-shop-api-call-limit", Part::UsedOfLimit)] })]
        },
    );

/// The rate that it tells is none of the numbers of a window.
pub(super) static SP_API: Dialect = Dialect::new("sp-api").like(&PLAIN);

pub(super) static YANDEX_DIRECT: Dialect = Dialect::new("yandex-direct").like(&PLAIN).windows(
    const {
        &[WindowSpec::new("units")
            .unit("points")
            .per(DAY)
            .fields(const { &[Field::new("units", Part::SpentLeftLimit)] })]
    },
);

pub(super) static YANDEX_MARKET: Dialect =
    Dialect::new("yandex-market").like(&PLAIN).scope(ServerScope::Global).windows(
        const {
            &[
                WindowSpec::new("global").fields(
                    const {
                        &[
                            Field::new("x-ratelimit-global-limit", Part::Limit),
                            Field::new("x-ratelimit-global-remaining", Part::Remaining),
                            Field::new("x-ratelimit-global-until", Part::Reset(Form::Any)),
                        ]
                    },
                ),
                WindowSpec::new("daily").per(DAY).fields(
                    const {
                        &[
                            Field::new("x-ratelimit-daily-limit", Part::Limit),
                            Field::new("x-ratelimit-daily-remaining", Part::Remaining),
                            Field::new("x-ratelimit-daily-until", Part::Reset(Form::Any)),
                        ]
                    },
                ),
            ]
        },
    );
