//! Cases from the field about what servers say of their own counters.

#![cfg(all(feature = "tokio", feature = "json"))]

use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use request_balancer::headers::{self, Dialect, Observation};
use request_balancer::{Attempt, Balancer, Event, Failure, NextStart, Rules};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep_until};

/// The moment on the wall at which all responses arrive.
const NOW: u64 = 1_764_460_800;

fn read(status: u16, fields: &[(&str, &str)], body: Option<&str>) -> Observation {
    let now = UNIX_EPOCH + Duration::from_secs(NOW);
    headers::read(
        status,
        fields.iter().map(|(name, value)| (*name, *value)),
        body.map(str::as_bytes),
        now,
        Dialect::auto(),
    )
}

fn left(remaining: u32, seconds: u32) -> Observation {
    read(200, &[("RateLimit-Remaining", &remaining.to_string()), ("RateLimit-Reset", &seconds.to_string())], None)
}

#[derive(Clone)]
struct Field {
    balancer: Balancer,
    starts: Arc<Mutex<Vec<u64>>>,
    begin: Instant,
}

impl Field {
    fn new(rules: &str) -> Self {
        let rules: Rules = rules.parse().expect("rules");
        Self { balancer: Balancer::new(rules), starts: Arc::default(), begin: Instant::now() }
    }

    async fn at(&self, millis: u64) {
        sleep_until(self.begin + Duration::from_millis(millis)).await;
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).expect("short")
    }

    /// Starts are written down; each attempt ends at once with what `end` makes of it.
    fn go(&self, end: impl Fn(&Attempt, u64) -> Result<(), Failure<()>> + Send + Sync + 'static) -> JoinHandle<()> {
        let field = self.clone();
        tokio::spawn(async move {
            let run = field.balancer.request("read", "k").run(async |attempt| {
                field.starts.lock().expect("no panic").push(field.now());
                end(&attempt, field.now())
            });
            let _answer = run.await;
        })
    }

    fn starts(&self) -> Vec<u64> {
        self.starts.lock().expect("no panic").clone()
    }

    fn wait(&self) -> Duration {
        match self.balancer.next_start("read", "k").expect("a rule") {
            NextStart::Now => Duration::ZERO,
            NextStart::After(span) => span,
            never => panic!("{never:?}"),
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn fr_044_the_window_of_the_headers_is_kept_to() {
    let field = Field::new("[rules.read]\nper_key = '20/5s'\nobserve = { learn = '20/5s' }");
    let says = |_: &Attempt, _: u64| {
        read(200, &[("RateLimit-Policy", "5;w=5"), ("RateLimit", "limit=5, remaining=4, reset=5")], None)
    };
    field
        .go(move |attempt, now| {
            attempt.observe(&says(attempt, now));
            Ok(())
        })
        .await
        .expect("no panic");
    field.at(6_000).await;
    let left = Arc::new(Mutex::new(5));
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let left = Arc::clone(&left);
            field.go(move |attempt, _| {
                let mut left = left.lock().expect("no panic");
                *left = if *left == 0 { 4 } else { *left - 1 };
                let fields = format!("limit=5, remaining={left}, reset=5");
                attempt.observe(&read(200, &[("RateLimit-Policy", "5;w=5"), ("RateLimit", &fields)], None));
                Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(field.starts(), [0, 6_000, 6_000, 6_000, 6_000, 6_000, 11_000]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn fr_171_a_late_answer_with_more_left_changes_nothing() {
    let field = Field::new("[rules]\nread = '100/60s'");
    let permits: Vec<_> = (0..3).map(|_| field.balancer.request("read", "k").try_acquire().expect("room")).collect();
    let free = |field: &Field| {
        let permits: Vec<_> =
            std::iter::from_fn(|| field.balancer.request("read", "k").try_acquire().ok()).take(200).collect();
        permits.len()
    };
    let mut permits = permits.into_iter();
    let mut answer = |observation: Observation| {
        let permit = permits.next().expect("three");
        permit.observe(&observation);
    };
    answer(left(28, 40));
    field.at(100).await;
    answer(left(29, 40));
    let explained = field.balancer.explain("read", "k").expect("a rule").to_string();
    assert!(explained.ends_with("`rules.read.per_key` 100/60s has room, 27 left at the server"), "{explained}");
    // One is under way still. What was free is started and ends without a word, so it stays taken.
    assert_eq!(free(&field), 27);
    field.at(1_000).await;
    answer(left(50, 90));
    // A later window replaces both; what ended without a word since that request was sent is taken off.
    assert_eq!(free(&field), 23);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn fr_172_no_more_start_than_the_first_answer_leaves() {
    let field = Field::new("[rules]\nread = '20/60s'\n");
    let begin = field.begin;
    let mut left_at_server = 4_u32;
    for _ in 0..31 {
        let observe = {
            let now = field.wait();
            if !now.is_zero() {
                sleep_until(Instant::now() + now).await;
            }
            let since = u32::try_from(begin.elapsed().as_secs()).expect("short");
            // The server's window begins anew at 40 s and has 20 then.
            let (count, reset) = if since < 40 { (left_at_server - 1, 40 - since) } else { (15, 100 - since) };
            left_at_server = left_at_server.saturating_sub(1);
            left(count, reset)
        };
        field
            .go(move |attempt, _| {
                attempt.observe(&observe);
                Ok(())
            })
            .await
            .expect("no panic");
    }
    let starts = field.starts();
    let before = starts.iter().filter(|&&at| at < 40_000).count();
    assert_eq!(before, 4, "the first and three more: {starts:?}");
    // 15 were left by then, and 16 of the rule's 20.
    assert_eq!(starts[4..19], [40_000; 15]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn fr_174_a_reset_in_300_days_is_cut_and_told() {
    let in_300_days = (NOW + 300 * 86_400).to_string();
    let reset = [("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", in_300_days.as_str())];
    let refuse = |fields: &[(&str, &str)]| {
        let observation = read(429, fields, None);
        move |attempt: &Attempt, _| attempt.check_observation(429, &observation)
    };

    let field = Field::new("[rules]\nread = '5/60s'");
    let mut events = field.balancer.events();
    field.go(refuse(&reset)).await.expect("it fails at once: the wait is above the ceiling");
    assert_eq!(field.wait(), Duration::from_secs(3_600));
    let Some(Event::HoldStarted { lasts, .. }) = events.try_next() else { panic!("no hold") };
    assert_eq!(lasts, Duration::from_secs(3_600));
    let Some(Event::HoldCut { wanted, allowed, .. }) = events.try_next() else { panic!("not cut") };
    assert_eq!((wanted, allowed), (Duration::from_secs(300 * 86_400), Duration::from_secs(3_600)));

    // What the server says of a wait comes before what it says of the reset.
    let field = Field::new("[rules]\nread = '5/60s'");
    let waits = field.go(refuse(&[("X-RateLimit-Reset", &in_300_days), ("Retry-After", "7")]));
    yield_now().await;
    assert_eq!(field.wait(), Duration::from_secs(7));
    waits.abort();

    let field = Field::new("[rules]\nread = '5/60s'");
    let observation = read(200, &[("X-RateLimit-Remaining", "3"), ("X-RateLimit-Reset", &in_300_days)], None);
    field
        .go(move |attempt, _| {
            attempt.observe(&observation);
            Ok(())
        })
        .await
        .expect("no panic");
    assert_eq!(field.wait(), Duration::ZERO);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn fr_176_a_rate_is_learnt_and_forgotten_after_a_day() {
    let rules = "[rules.read]\nper_key = '1/60s burst 20'\nobserve = { learn = '1/2s' }";
    let field = Field::new(rules);
    let told = |period: &'static str| {
        move |attempt: &Attempt, _| {
            let policy = format!("1;w={period}");
            attempt.observe(&read(200, &[("RateLimit-Limit", "1"), ("RateLimit-Policy", &policy)], None));
            Ok(())
        }
    };
    let quiet = |_: &Attempt, _| Ok(());
    field.go(told("5")).await.expect("no panic");
    // The burst is as large as before, and one comes back in five seconds.
    for task in (0..21).map(|_| field.go(quiet)).collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    assert_eq!(field.starts()[1..20], [0; 19]);
    assert_eq!(field.starts()[20..], [5_000, 10_000]);
    // Fewer; and more than the rules allow to learn.
    for (period, step) in [("10", 10_000), ("1", 2_000)] {
        field.go(told(period)).await.expect("no panic");
        let begin = field.now();
        field.go(quiet).await.expect("no panic");
        field.go(quiet).await.expect("no panic");
        assert_eq!(
            field.starts().iter().rev().take(2).rev().copied().collect::<Vec<_>>(),
            [begin + step, begin + 2 * step]
        );
    }
    // A day without a word, with a request now and then.
    let last = field.now();
    for hour in 1..=25 {
        field.at(last + hour * 3_600_000).await;
        field.go(quiet).await.expect("no panic");
    }
    let begin = field.now();
    for _ in 0..21 {
        field.go(quiet).await.expect("no panic");
    }
    let starts = field.starts();
    assert_eq!(starts[starts.len() - 1] - begin, 120_000, "{:?}", &starts[starts.len() - 21..]);
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn fr_083_every_way_to_say_too_many_holds() {
    let date = "Sun, 30 Nov 2025 00:00:20 GMT";
    let past = "Sun, 30 Nov 2025 00:00:00 GMT";
    for (status, fields, body, wait) in [
        (429, &[("Retry-After", "30")][..], None, 30),
        (429, &[], Some(r#"{"parameters":{"retry_after":12}}"#), 12),
        (420, &[("Retry-After", "9")], None, 9),
        (503, &[("Retry-After", date)], None, 20),
        // The policy's `bare_wait`.
        (429, &[], None, 5),
        // Its `min_wait`.
        (429, &[("Retry-After", past)], None, 1),
        (429, &[("Retry-After", "0")], None, 1),
        (429, &[("Retry-After", "soon")], None, 5),
    ] {
        let field = Field::new("[rules]\nread = '50/60s'\n[retry]\njitter = 0");
        let observation = read(status, fields, body);
        let refused = field.go(move |attempt, _| {
            if attempt.number() > 1 {
                return Ok(());
            }
            attempt.check_observation(status, &observation)
        });
        yield_now().await;
        assert_eq!(field.wait(), Duration::from_secs(wait), "{status} {fields:?} {body:?}");
        refused.await.expect("no panic");
        assert_eq!(field.starts(), [0, wait * 1_000]);
    }
}
