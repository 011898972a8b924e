//! What a response says: read from plain pairs and from a map of the `http` crate.

use std::hint::black_box;
use std::time::{Instant, SystemTime};

use http::HeaderMap;
use request_balancer::headers::{self, Dialect};

use crate::report::Line;

/// Many short ones: other work on the machine then falls between some of them, not into all.
const ROUNDS: usize = 3_000;
const RESPONSES: usize = 500;

const COUNTERS: [(&str, &str); 3] =
    [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "4987"), ("x-ratelimit-reset", "1764464400")];

/// What comes with them in a response of some API.
const OTHERS: [(&str, &str); 12] = [
    ("date", "Sun, 30 Nov 2025 00:00:00 GMT"),
    ("content-type", "application/json; charset=utf-8"),
    ("cache-control", "private, max-age=60, s-maxage=60"),
    ("vary", "Accept, Authorization, Cookie, Accept-Encoding"),
    ("etag", "W/\"0123456789abcdef0123456789abcdef\""),
    ("x-request-id", "0123456789abcdef"),
    ("referrer-policy", "origin-when-cross-origin, strict-origin-when-cross-origin"),
    ("strict-transport-security", "max-age=31536000; includeSubdomains; preload"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "deny"),
    ("server", "nginx"),
    ("content-length", "12345"),
];

pub(crate) fn measure() -> Vec<Line> {
    let all: Vec<_> = COUNTERS.into_iter().chain(OTHERS).collect();
    let map = |fields: &[(&'static str, &'static str)]| {
        fields
            .iter()
            .map(|(name, value)| ((*name).parse().expect("a name"), (*value).parse().expect("a value")))
            .collect::<HeaderMap>()
    };
    let (few, many) = (map(&COUNTERS), map(&all));
    let now = SystemTime::now();
    let auto = Dialect::auto();
    let mut lines = row("3 fields, plain", || headers::read(200, black_box(COUNTERS), None, now, auto).windows().len());
    lines.extend(row("3 fields, a HeaderMap", || headers::read(200, black_box(&few), None, now, auto).windows().len()));
    lines.extend(row("3 fields among 15, a HeaderMap", || {
        headers::read(200, black_box(&many), None, now, auto).windows().len()
    }));
    lines
}

fn row(what: &str, read: impl Fn() -> usize) -> Vec<Line> {
    let mut nanos = f64::INFINITY;
    let allocated = allocation_counter::measure(|| {
        for _ in 0..ROUNDS {
            let began = Instant::now();
            for _ in 0..RESPONSES {
                black_box(read());
            }
            nanos = nanos.min(began.elapsed().as_nanos() as f64 / RESPONSES as f64);
        }
    });
    let allocations = allocated.count_total as f64 / (ROUNDS * RESPONSES) as f64;
    vec![
        Line::new(format!("reading a response of {what}"), nanos, "ns").bar("at most 1000", nanos <= 1_000.0),
        Line::new(format!("reading a response of {what}, allocations"), allocations, "1").bar("0", allocations == 0.0),
    ]
}
