//! What single fields mean, and what they never do to a program: no panic, no allocation, no wait without end.

#![cfg(feature = "headers")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use request_balancer::headers::{self, Dialect, Field, NoteKind, Observation, Part, Reset, ServerScope, WindowSpec};

/// Sun, 30 Nov 2025 00:00:00 GMT.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_764_460_800)
}

fn read(status: u16, fields: &[(&str, &str)]) -> Observation {
    read_as(Dialect::auto(), status, fields)
}

fn read_as(dialect: &Dialect, status: u16, fields: &[(&str, &str)]) -> Observation {
    headers::read(status, fields.iter().map(|(name, value)| (*name, *value)), None, now(), dialect)
}

fn notes(observation: &Observation) -> Vec<(&str, NoteKind)> {
    observation.notes().iter().map(|note| (note.field(), note.kind())).collect()
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn what_is_left_out_is_noted() {
    let garbage = read(
        200,
        &[
            ("RateLimit", "\"default\";r=;t=x"),
            ("X-RateLimit-Remaining", "many"),
            ("X-RateLimit-Reset", "soon"),
            ("Retry-After", "\u{ff}\u{fe}"),
        ],
    );
    assert!(garbage.is_empty());
    let unreadable = NoteKind::Unreadable;
    let fields = ["x-ratelimit-remaining", "x-ratelimit-reset", "retry-after", "ratelimit"];
    assert_eq!(notes(&garbage), fields.map(|field| (field, unreadable)));
    assert_eq!(garbage.notes()[1].to_string(), "x-ratelimit-reset: not understood");

    let far = read(200, &[("X-RateLimit-Remaining", "9"), ("X-RateLimit-Reset", "31622401")]);
    assert_eq!(far.binding().map(|window| window.reset), Some(None));
    assert_eq!(notes(&far), [("x-ratelimit", NoteKind::TooFar)]);

    let none = read(200, &[("x-ratelimit-limit", "-1"), ("x-ratelimit-remaining", "-1"), ("x-ratelimit-reset", "0")]);
    assert!(none.is_empty());
    assert_eq!(notes(&none), [("x-ratelimit", NoteKind::NotApplicable)]);

    let old = read(200, &[("Age", "3"), ("X-RateLimit-Remaining", "9")]);
    assert!(old.is_empty());
    assert_eq!(notes(&old), [("age", NoteKind::Cached)]);
    assert_eq!(notes(&read(200, &[("Age", "0"), ("X-RateLimit-Remaining", "9")])), []);
}

#[test]
fn a_refusal_from_a_cache_is_still_obeyed() {
    let refused = read(429, &[("Age", "3"), ("Retry-After", "30"), ("RateLimit", "\"a\";r=0;t=50")]);
    assert!(refused.throttled() && refused.windows().is_empty());
    assert_eq!(refused.wait(), Some(secs(30)));
}

#[test]
fn a_wait_is_never_longer_than_a_leap_year() {
    for value in ["31622401", "99999999999999999999", "Fri, 01 Jan 9999 00:00:00 GMT", "4102444800"] {
        assert_eq!(read(429, &[("Retry-After", value)]).wait(), Some(secs(31_622_400)), "{value}");
    }
}

#[test]
fn a_reset_of_two_to_the_63_is_no_reset() {
    for value in ["9223372036854775808", "-9223372036854775808"] {
        let observation = read(429, &[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", value)]);
        let reset = observation.binding().expect("what else it said").reset;
        assert!(matches!(reset, None | Some(Reset::Over)), "{value}: {reset:?}");
    }
}

#[test]
fn fr_083_every_way_to_say_slow_down_is_heard() {
    let wait = |status, fields: &[(&str, &str)]| {
        let observation = read(status, fields);
        assert!(observation.throttled(), "{status} {fields:?}");
        observation.wait()
    };
    assert_eq!(wait(429, &[("Retry-After", "3")]), Some(secs(3)));
    assert_eq!(wait(503, &[("Retry-After", "Sun, 30 Nov 2025 00:00:04 GMT")]), Some(secs(4)));
    assert_eq!(wait(429, &[]), None);
    assert_eq!(wait(429, &[("Retry-After", "soon")]), None);
    assert_eq!(wait(429, &[("Retry-After", "Sun, 30 Nov 2025 00:00:00 GMT")]), Some(Duration::ZERO));
    #[cfg(feature = "json")]
    for (status, body) in [(429, "{\"parameters\":{\"retry_after\":5}}"), (420, "{\"retry_after\":\"5\"}")] {
        let none: [(&str, &str); 0] = [];
        let observation = headers::read(status, none, Some(body.as_bytes()), now(), Dialect::auto());
        assert!(observation.throttled());
        assert_eq!(observation.wait(), Some(secs(5)), "{body}");
    }
}

#[test]
fn resets_know_how_finely_they_were_told() {
    for (value, after, grain) in [
        ("30", secs(30), secs(1)),
        ("30.0", secs(30), Duration::from_millis(1)),
        ("1764460830", secs(30), secs(1)),
        ("1764460830000", secs(30), Duration::from_millis(1)),
        ("Sun, 30 Nov 2025 00:00:30 GMT", secs(30), secs(1)),
        ("2025-11-30T00:00:30Z", secs(30), secs(1)),
        ("2025-11-30T00:00:30.5Z", Duration::from_millis(30_500), Duration::from_millis(1)),
        ("2025-11-30T00:01Z", secs(60), secs(60)),
        ("1m0.5s", Duration::from_millis(60_500), Duration::from_millis(1)),
        ("1764460800", Duration::ZERO, secs(1)),
    ] {
        let observation = read(200, &[("X-RateLimit-Reset", value)]);
        let reset = observation.binding().expect("a window").reset;
        assert_eq!(reset, Some(Reset::In { after, grain }), "{value}");
    }
    for value in ["-1", "1764460799", "Sat, 29 Nov 2025 23:59:59 GMT", "2025-11-29T23:59:59.999Z"] {
        let observation = read(200, &[("X-RateLimit-Reset", value)]);
        assert_eq!(observation.binding().expect("a window").reset, Some(Reset::Over), "{value}");
    }
}

#[test]
fn windows_know_their_length_and_unit() {
    let observation = read(
        200,
        &[
            ("RateLimit-Policy", "100;w=60, \"tok\";q=9000;w=3600;qu=\"tokens\""),
            ("RateLimit-Limit", "100"),
            ("RateLimit-Remaining", "7"),
            ("RateLimit", "\"tok\";r=8000;t=9"),
            ("X-RateLimit-Limit-Minute", "10"),
            ("X-RateLimit-Remaining-Minute", "9"),
            ("X-RateLimit-Remaining-Tokens", "5"),
            ("x-ratelimit-limit", "10;w=2, 5;w=9"),
        ],
    );
    let windows: Vec<_> = observation
        .windows()
        .iter()
        .map(|window| {
            (window.name.to_string(), window.unit.to_string(), window.limit, window.per.map(|per| per.as_secs()))
        })
        .collect();
    let window = |name: &str, unit: &str, limit, per| (name.to_owned(), unit.to_owned(), limit, per);
    assert_eq!(
        windows,
        [
            window("ratelimit", "requests", Some(100), Some(60)),
            window("minute", "requests", Some(10), Some(60)),
            window("tokens", "tokens", None, None),
            window("x-ratelimit", "requests", Some(10), Some(2)),
            window("tok", "tokens", Some(9_000), Some(3_600)),
        ]
    );
    // Eight thousand tokens are no requests.
    assert_eq!(observation.binding().map(|window| window.remaining), Some(Some(7)));
}

#[test]
fn of_too_many_windows_the_loosest_goes() {
    let list: Vec<_> = (0..20).map(|n| format!("\"{n}\";r={};t=5", 20 - n)).collect();
    let observation = read(200, &[("RateLimit", &list.join(", "))]);
    assert_eq!(observation.windows().len(), 8);
    assert_eq!(observation.binding().map(|window| window.remaining), Some(Some(1)));
    assert_eq!(notes(&observation)[0], ("windows", NoteKind::TooMany));
}

#[test]
fn a_no_that_no_wait_will_change_is_final() {
    assert!(read(429, &[("x-should-retry", "false")]).is_final());
    assert!(!read(200, &[("x-should-retry", "false")]).is_final());
    assert!(!read(429, &[("x-should-retry", "true")]).is_final());
}

#[test]
fn moments_of_the_to_the_letter_dialect_are_seconds() {
    let ietf = Dialect::named("ietf").expect("a dialect");
    let observation = read_as(ietf, 200, &[("RateLimit-Remaining", "1"), ("RateLimit-Reset", "1764460830")]);
    assert_eq!(observation.binding().map(|window| window.reset), Some(None));
    assert!(read_as(ietf, 200, &[("X-RateLimit-Remaining", "0")]).is_empty());
}

#[test]
fn dialects_from_code_are_read_besides_the_one_they_are_like() {
    static SHOP: Dialect =
        Dialect::new("shop").like(Dialect::auto()).scope(ServerScope::Global).refused(&[409]).windows(
            const {
                &[WindowSpec::new("day")
                    .per(secs(86_400))
                    .scope(ServerScope::Route)
                    .fields(const { &[Field::new("Shop-Day", Part::Limit), Field::new("shop-left", Part::Remaining)] })]
            },
        );
    let observation = read_as(
        &SHOP,
        409,
        &[("shop-day", "1000"), ("SHOP-LEFT", "3"), ("X-RateLimit-Remaining", "5"), ("Retry-After", "7")],
    );
    assert_eq!(observation.windows().len(), 2);
    let window = observation.binding().expect("a window");
    assert_eq!((&*window.name, window.limit, window.remaining), ("day", Some(1_000), Some(3)));
    assert_eq!((window.per, window.scope), (Some(secs(86_400)), Some(ServerScope::Route)));
    assert!(observation.throttled());
    assert_eq!((observation.wait(), observation.scope()), (Some(secs(7)), Some(ServerScope::Global)));
    // Its statuses take the place of the others'.
    assert!(!read_as(&SHOP, 429, &[]).throttled());
}

#[test]
fn a_body_of_any_size_and_shape_is_read_or_left() {
    let none: [(&str, &str); 0] = [];
    let telegram = Dialect::named("telegram").expect("a dialect");
    let read = |body: &[u8]| headers::read(429, none, Some(body), now(), telegram);
    let deep = "[".repeat(100_000);
    let long = format!("{{\"parameters\":{{\"retry_after\":5}},\"x\":\"{}\"}}", "y".repeat(1 << 20));
    for body in [&b""[..], b"{", b"{\"retry_after\":", b"\xff\xfe", b"null", b"[]", deep.as_bytes(), long.as_bytes()] {
        let observation = read(body);
        assert!(observation.throttled() && observation.wait().is_none());
    }
    // What comes before the break is not believed either.
    assert_eq!(read(b"{\"retry_after\":5").wait(), None);
    #[cfg(feature = "json")]
    {
        let large = format!("{{\"x\":[{}0],\"parameters\":{{\"retry_after\":5}}}}", "[{\"y\":1}],".repeat(50_000));
        assert_eq!(read(large.as_bytes()).wait(), Some(secs(5)));
        assert_eq!(read(b"{\"description\":\"Retry after 12.\"}").wait(), Some(secs(12)));
        assert_eq!(read(b"{\"parameters\":{\"retry_after\":1e300}}").wait(), Some(secs(31_622_400)));
    }
}

#[test]
fn a_response_without_a_body_is_read_without_an_allocation() {
    let plain = [("X-RateLimit-Limit", "60"), ("X-RateLimit-Remaining", "4"), ("X-RateLimit-Reset", "1764460830")];
    let crowded = [
        ("Date", "Sun, 30 Nov 2025 00:00:00 GMT"),
        ("Content-Type", "application/json; charset=utf-8"),
        ("Server", "cloudflare"),
        ("Age", "0"),
        ("Vary", "Accept-Encoding"),
        ("RateLimit-Policy", "\"burst\";q=100;w=60,\"daily\";q=1000;w=86400"),
        ("RateLimit", "\"burst\";r=40;t=12, \"daily\";r=3;t=36000"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "6m0s"),
        ("anthropic-ratelimit-requests-reset", "2025-11-30T00:01:00Z"),
        ("Retry-After", "Sun, 30 Nov 2025 00:00:09 GMT"),
    ];
    for fields in [&plain[..], &crowded[..]] {
        let mut observation = Observation::default();
        let allocated = allocation_counter::measure(|| observation = read(429, fields));
        assert!(observation.throttled() && observation.notes().is_empty() && !observation.windows().is_empty());
        assert_eq!(allocated.count_total, 0, "{fields:?}");
    }
}

#[cfg(feature = "http")]
#[test]
fn responses_of_the_http_crate_are_read_as_they_are() {
    let response = http::Response::builder()
        .status(429)
        .header("X-RateLimit-Remaining", "5")
        .header("X-RateLimit-Remaining", "3")
        .header("Retry-After", http::HeaderValue::from_bytes(b"\xff\xfe").expect("opaque bytes"))
        .body(())
        .expect("a response");
    let observation = headers::read_response(&response, None, now(), Dialect::auto());
    assert_eq!(observation.binding().map(|window| window.remaining), Some(Some(3)));
    assert_eq!((observation.wait(), observation.throttled()), (None, true));
    let same = headers::read(429, response.headers(), None, now(), Dialect::auto());
    assert_eq!(observation, same);
}

#[test]
fn dialects_of_a_rules_file_are_read_besides_the_one_they_are_like() {
    let rules: request_balancer::Rules = r#"
        [dialects.shop]
        like = "discord"
        scope = "global"
        [dialects.shop.windows.day]
        per = "1day"
        limit = "X-Shop-Limit"
        used = "X-Shop-Used"
        reset = { header = "X-Shop-Reset", form = "milliseconds" }
        [dialects.shop.waits]
        X-Shop-Wait = "minutes"
        [dialects.shop.words.X-Shop-Reason]
        "too *" = ["refused", "route"]
    "#
    .parse()
    .expect("sound rules");
    let shop = rules.dialect("shop").expect("the dialect of the file");
    let observation = read_as(
        shop,
        400,
        &[
            ("x-shop-limit", "1000"),
            ("x-shop-used", "997"),
            ("x-shop-reset", "42500"),
            ("x-shop-wait", "2"),
            ("x-shop-reason", "Too fast"),
            ("X-RateLimit-Scope", "shared"),
            ("X-RateLimit-Remaining", "9"),
        ],
    );
    assert!(observation.throttled());
    assert_eq!((observation.wait(), observation.scope()), (Some(secs(120)), Some(ServerScope::Route)));
    let window = observation.binding().expect("a window");
    assert_eq!((&*window.name, window.limit, window.remaining), ("day", Some(1_000), Some(3)));
    assert_eq!((window.per, window.reset_after()), (Some(secs(86_400)), Some(Duration::from_millis(42_500))));
    assert_eq!(observation.windows().len(), 2);
    assert_eq!(read_as(shop, 429, &[]).scope(), Some(ServerScope::Global));
}
