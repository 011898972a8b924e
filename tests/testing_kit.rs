//! The simulated server by itself and against the balancer; the recorder and the assertion.
#![cfg(feature = "testing")]

use std::time::Duration;

use request_balancer::testing::{Answer, Limit, Server, assert_no_breach};
use request_balancer::{Key, Rules, Start};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const NANO: Duration = Duration::from_nanos(1);

fn refused(retry_after: Duration) -> Answer {
    Answer::TooManyRequests { retry_after }
}

fn arrive(server: &mut Server, calls: &[(Duration, i64, Answer)]) {
    for &(at, key, answer) in calls {
        assert_eq!(server.arrive(at, key), answer, "{key} at {at:?}");
    }
}

#[test]
fn a_sliding_window_has_room_when_its_oldest_call_leaves() {
    let mut server = Server::sliding(2, SECOND);
    arrive(
        &mut server,
        &[
            (SECOND, 1, Answer::Ok),
            (SECOND * 3 / 2, 2, Answer::Ok),
            (SECOND * 2 - NANO, 3, refused(NANO)),
            (SECOND * 2, 3, Answer::Ok),
            (SECOND * 2, 3, refused(SECOND / 2)),
        ],
    );
    let report = server.limits().remove(0);
    assert_eq!((report.allowed, report.worst, report.refused), (2, 4, 2));
    assert_eq!(report.to_string(), "sliding 2/1s: 4 in the worst window, 2 allowed, 2 refused");
}

#[test]
fn a_fixed_window_lets_twice_as_many_through_around_its_edge() {
    let mut server = Server::fixed(2, MINUTE);
    arrive(
        &mut server,
        &[
            (SECOND * 59, 1, Answer::Ok),
            (SECOND * 59, 1, Answer::Ok),
            (SECOND * 59, 1, refused(SECOND)),
            (SECOND * 60, 1, Answer::Ok),
            (SECOND * 60, 1, Answer::Ok),
            (SECOND * 61, 1, refused(SECOND * 59)),
        ],
    );
    assert_eq!((server.accepted(), server.refused(), server.limits()[0].worst), (4, 2, 3));
}

#[test]
fn a_bucket_starts_full_and_refills_evenly() {
    let mut server = Server::bucket(3, MINUTE, 2);
    arrive(
        &mut server,
        &[
            (Duration::ZERO, 1, Answer::Ok),
            (Duration::ZERO, 1, Answer::Ok),
            (Duration::ZERO, 1, refused(SECOND * 20)),
            (SECOND * 20 - NANO, 1, refused(NANO)),
            (SECOND * 20, 1, Answer::Ok),
            (SECOND * 30, 1, refused(SECOND * 10)),
            // Idle for long: no more than the burst is in store.
            (SECOND * 600, 1, Answer::Ok),
            (SECOND * 600, 1, Answer::Ok),
            (SECOND * 600, 1, refused(SECOND * 20)),
        ],
    );
    // A third of a second is no whole number of nanoseconds: the wait is rounded up and is enough.
    let mut server = Server::bucket(3, SECOND, 1);
    assert_eq!(server.arrive(SECOND, 1), Answer::Ok);
    let wait = Duration::from_nanos(333_333_334);
    assert_eq!(server.arrive(SECOND, 1), refused(wait));
    assert_eq!(server.arrive(SECOND + wait, 1), Answer::Ok);
}

#[test]
fn a_flood_wait_begins_anew_with_each_call_inside_it() {
    let mut server = Server::new().also(Limit::flood_wait(1, SECOND, SECOND * 30).per_key());
    arrive(
        &mut server,
        &[
            (Duration::ZERO, 1, Answer::Ok),
            (SECOND / 2, 1, refused(SECOND * 30)),
            (SECOND * 30, 1, refused(SECOND * 30)),
            (SECOND * 31, 2, Answer::Ok),
            (SECOND * 60 - NANO, 1, refused(SECOND * 30)),
            (SECOND * 90 - NANO, 1, Answer::Ok),
        ],
    );
}

#[test]
fn a_limit_is_on_whom_it_says() {
    let is_group = |key: &Key| *key < Key::from(0);
    let mut server = Server::sliding(4, SECOND)
        .also(Limit::sliding(2, MINUTE).per_key().only_for(is_group).named("each group"))
        .also(Limit::sliding(3, MINUTE).only_for(is_group).named("all groups"));
    arrive(
        &mut server,
        &[
            (Duration::ZERO, -1, Answer::Ok),
            (Duration::ZERO, -1, Answer::Ok),
            (Duration::ZERO, -1, refused(MINUTE)),
            (Duration::ZERO, -2, Answer::Ok),
            (Duration::ZERO, -3, refused(MINUTE)),
            (Duration::ZERO, 5, Answer::Ok),
            (Duration::ZERO, 5, refused(SECOND)),
            (SECOND * 9, 5, Answer::Ok),
        ],
    );
    let seen: Vec<String> = server.limits().iter().map(ToString::to_string).collect();
    assert_eq!(
        seen,
        [
            "sliding 4/1s: 7 in the worst window, 4 allowed, 1 refused",
            "each group: 3 in the worst window, of key -1, 2 allowed, 1 refused",
            "all groups: 5 in the worst window, 3 allowed, 1 refused",
        ]
    );
}

#[test]
fn refused_calls_count_where_a_limit_says_so() {
    let mut kind = Server::sliding(1, SECOND);
    let mut strict = Server::new().also(Limit::sliding(1, SECOND).count_refused());
    let calls = [(Duration::ZERO, 1, Answer::Ok), (SECOND / 2, 1, refused(SECOND / 2))];
    arrive(&mut kind, &calls);
    arrive(&mut strict, &calls);
    assert_eq!(kind.arrive(SECOND, 1), Answer::Ok);
    assert_eq!(strict.arrive(SECOND, 1), refused(SECOND / 2));
}

#[test]
fn odd_numbers_do_no_harm() {
    let limits = [
        Limit::sliding(0, SECOND),
        Limit::fixed(0, Duration::ZERO),
        Limit::bucket(0, SECOND, 5),
        Limit::bucket(5, SECOND, 0),
        Limit::bucket(u32::MAX, Duration::MAX, u32::MAX),
        Limit::flood_wait(0, Duration::MAX, Duration::MAX),
        Limit::flood_wait(1, Duration::ZERO, Duration::ZERO),
        Limit::fixed(1, Duration::MAX).count_refused().per_key(),
    ];
    for limit in limits {
        let mut server = Server::new().also(limit).latency(Duration::MAX).jitter(Duration::MAX);
        for at in [Duration::ZERO, SECOND, Duration::MAX, SECOND] {
            server.arrive(at, "a");
            server.next_way();
        }
        assert_eq!(server.accepted() + server.refused(), 4);
    }
}

#[test]
fn one_seed_is_one_course_of_events() {
    let ways = |seed| {
        let mut server = Server::new().latency(SECOND).jitter(SECOND).seed(seed);
        (0..100).map(|_| server.next_way()).collect::<Vec<_>>()
    };
    assert_eq!(ways(1), ways(1));
    assert_ne!(ways(1), ways(2));
    assert!(ways(3).iter().all(|way| (SECOND..=SECOND * 2).contains(way)));
}

#[test]
fn a_breach_is_told_in_words() {
    let rules: Rules = "overall = '3/1s'\nper_key = '1/1s'".parse().expect("the test's rules are right");
    let start = |millis, key: u64| {
        let at = Duration::from_millis(millis);
        Start::new(at, "default", key).end(at)
    };
    let mut starts = vec![start(0, 1), start(0, 2), start(500, 3), start(1_000, 1)];
    assert_no_breach(&rules, &starts);
    starts.extend([start(999, 2), start(1_499, 4)]);
    let panic = std::panic::catch_unwind(|| assert_no_breach(&rules, &starts)).expect_err("rules are broken");
    let text = panic.downcast_ref::<String>().expect("a text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("{} breaches of the rules in 6 starts:", lines.len() - 1));
    assert!(lines.contains(&"  `per_key` 1/1s, key 2: 2 in the 1s up to 999ms, 1 allowed"), "{text}");
    assert!(lines.iter().any(|line| line.starts_with("  `overall` 3/1s: 4 in the 1s up to ")), "{text}");

    let crowd: Vec<Start> = (0..50).map(|key| (key, start(0, key))).flat_map(|(_, one)| [one.clone(), one]).collect();
    let rules: Rules = "per_key = '1/1s'".parse().expect("the test's rules are right");
    let panic = std::panic::catch_unwind(|| assert_no_breach(&rules, &crowd)).expect_err("rules are broken");
    let text = panic.downcast_ref::<String>().expect("a text");
    assert!(
        text.starts_with("50 breaches of the rules in 100 starts:\n") && text.ends_with("\n  and 30 more"),
        "{text}"
    );
}

#[cfg(feature = "tokio")]
mod on_tokio {
    use request_balancer::testing::{Recorder, RunningServer};
    #[cfg(feature = "calendar")]
    use request_balancer::verify;
    use request_balancer::{Attempt, Balancer, Failure};
    use tokio::time::{Instant, sleep};

    use super::*;

    type Sent = Result<(), Failure<&'static str>>;

    async fn send(server: &RunningServer, key: i64, attempt: &Attempt) -> Sent {
        match server.call(key).await {
            Answer::Ok => Ok(()),
            Answer::TooManyRequests { retry_after } => Err(attempt.retry(retry_after)),
        }
    }

    /// So many messages to each key, all at once. Returns how long it takes until a key's last is sent.
    async fn broadcast(
        balancer: &Balancer,
        server: &RunningServer,
        recorder: &Recorder,
        keys: i64,
        each: usize,
    ) -> Vec<Duration> {
        let begin = Instant::now();
        let of_key = |key| async move {
            let messages = (0..each).map(|_| {
                let attempt = move |attempt: Attempt| async move { send(server, key, &attempt).await };
                balancer.run("default", key, recorder.wrap(attempt))
            });
            for sent in futures::future::join_all(messages).await {
                sent.expect("every message is sent in the end");
            }
            begin.elapsed()
        };
        futures::future::join_all((0..keys).map(of_key)).await
    }

    fn rules(text: &str) -> (Rules, Balancer) {
        let rules: Rules = text.parse().expect("the test's rules are right");
        (rules.clone(), Balancer::new(rules))
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_takes_both_ways_time_and_counts_when_it_arrives() {
        let server = Server::sliding(1, SECOND).latency(Duration::from_millis(40)).start();
        let begin = Instant::now();
        let [first, second] = [server.clone(), server.clone()].map(|server| async move {
            let answer = server.call(1).await;
            (answer, begin.elapsed())
        });
        let late = async {
            sleep(Duration::from_millis(300)).await;
            second.await
        };
        let answers = futures::join!(first, late);
        assert_eq!(answers.0, (Answer::Ok, Duration::from_millis(80)));
        assert_eq!(answers.1, (refused(Duration::from_millis(700)), Duration::from_millis(380)));

        // One that never arrives, and one whose answer nobody waits for.
        for (patience, arrived) in [(39, 2), (41, 3)] {
            let call = tokio::time::timeout(Duration::from_millis(patience), server.call(1));
            assert!(call.await.is_err());
            assert_eq!(server.accepted() + server.refused(), arrived);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn with_the_server_s_numbers_and_its_jitter_nothing_is_refused() {
        let jitter = Duration::from_millis(50);
        for seed in 0..20 {
            let server = Server::sliding(30, SECOND)
                .also(Limit::flood_wait(1, SECOND, MINUTE).per_key())
                .latency(Duration::from_millis(20))
                .jitter(jitter)
                .seed(seed)
                .start();
            let (rules, balancer) = rules("overall = '30/1s'\nper_key = '1/1s'\nmargin = '50ms'");
            let recorder = Recorder::new();
            broadcast(&balancer, &server, &recorder, 45, 4).await;
            assert_eq!((server.accepted(), server.refused()), (180, 0), "seed {seed}");
            assert_no_breach(&rules, &recorder.starts());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_margin_jitter_breaks_the_server_s_window_and_the_server_says_so() {
        let server = Server::sliding(30, SECOND).jitter(Duration::from_millis(50)).start();
        let (rules, balancer) = rules("overall = '30/1s'");
        let recorder = Recorder::new();
        broadcast(&balancer, &server, &recorder, 45, 4).await;
        assert_no_breach(&rules, &recorder.starts());
        let report = server.limits().remove(0);
        assert_eq!(report.refused, server.refused());
        assert!(server.refused() > 0 && report.worst > 30, "{report}");
    }

    #[tokio::test(start_paused = true)]
    async fn limited_keys_finish_with_few_refusals_though_the_rules_ask_for_too_much() {
        let penalty = SECOND * 10;
        let is_strict = |key: &Key| *key < Key::from(3);
        let flood = Limit::flood_wait(5, SECOND, penalty).per_key().only_for(is_strict);
        let server = Server::sliding(100, SECOND).also(flood).start();
        // Nobody told the rules' author what these three keys may.
        let (rules, balancer) = rules("overall = '100/1s'\nper_key = '10/1s'");
        let recorder = Recorder::new();
        let done = broadcast(&balancer, &server, &recorder, 10, 40).await;
        assert_no_breach(&rules, &recorder.starts());
        assert_eq!(server.accepted(), 400);
        // Seven penalties for each key, each provoked by those of ten that started together before the first was refused;
        // nothing calls inside a penalty, or it would last longer.
        let provoked = server.refused();
        assert!((3 * 7..=3 * 7 * 5).contains(&provoked), "{provoked} refused");
        for (key, done) in done.iter().enumerate() {
            // 40 messages, five to a penalty or ten to a second.
            let expected = if key < 3 { penalty * 7 } else { SECOND * 3 };
            assert_eq!(*done, expected, "key {key}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_again_at_once_is_never_let_through() {
        let server = Server::new().also(Limit::flood_wait(1, SECOND, SECOND * 30).per_key()).start();
        assert!(server.call(1).await.is_ok());
        for _ in 0..100 {
            assert_eq!(server.call(1).await, refused(SECOND * 30));
            sleep(SECOND * 29).await;
        }
        assert_eq!((server.accepted(), server.refused()), (1, 100));
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_are_recorded_from_their_start_until_they_end_or_are_dropped() {
        let (_, balancer) = rules("[rules]\nsend = '1/1s'");
        let recorder = Recorder::new();
        let answer = balancer
            .run(
                "send",
                "5",
                recorder.wrap(async |attempt: Attempt| {
                    sleep(SECOND / 2).await;
                    if attempt.number() == 1 { Err(attempt.retry::<&str>(SECOND * 2)) } else { Ok(()) }
                }),
            )
            .await;
        assert!(answer.is_ok());
        let run = balancer.run(
            "send",
            ("shop", 7),
            recorder.wrap(async |_| {
                sleep(MINUTE).await;
                Ok::<_, Failure<&str>>(())
            }),
        );
        assert!(tokio::time::timeout(SECOND / 4, run).await.is_err());
        let running = recorder.record("other", 5).cost(3).units("tokens", 40).units("tokens", 2);
        let text: Vec<String> = recorder.clone().starts().iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "0ns send, key \"5\", until 500ms",
                "2.5s send, key \"5\", until 3s",
                "3s send, key (\"shop\", 7), until 3.25s",
                "3.25s other, key 5, cost 3, 40 tokens, 2 tokens",
            ]
        );
        drop(running);
        assert_eq!(recorder.starts()[3].end, Some(SECOND * 13 / 4));
    }

    /// Five calls of a key, as fast as the rules let them.
    async fn five(text: &str, key: impl Into<Key>) -> (Rules, Vec<Start>) {
        let (rules, balancer) = rules(text);
        let (recorder, key) = (Recorder::new(), key.into());
        for _ in 0..5 {
            let call = recorder.wrap(async |_| Ok::<_, Failure<&str>>(()));
            balancer.run("read", key.clone(), call).await.expect("an answer");
        }
        (rules, recorder.starts())
    }

    #[tokio::test(start_paused = true)]
    async fn keys_with_numbers_of_their_own_are_judged_by_those() {
        let more = |key: &str| format!("[rules]\nread = '1/1s'\n[keys.{key}]\nread = '5/1s'");
        let less = |key: &str| format!("[rules]\nread = '5/1s'\n[keys.{key}]\nread = '1/1s'");
        let keys = [("shop-1", Key::from("shop-1")), ("7", 7.into()), ("7", "7".into()), ("'(a, 7)'", ("a", 7).into())];
        for (name, key) in keys {
            let (rules, starts) = five(&more(name), key.clone()).await;
            assert_no_breach(&rules, &starts);
            assert_eq!(starts[4].at, Duration::ZERO, "{key}: all at once");
            let (slow, kept) = five(&less(name), key.clone()).await;
            assert_no_breach(&slow, &kept);
            assert_eq!(kept[4].at, SECOND * 4, "{key}: one a second");
            // What the other numbers let through is too much for these.
            let breach =
                format!("`keys.{name}.read` 1/1s, key {key:?}: 5 in the 1s up to 0ns, 1 allowed").replace('\'', "");
            let said: Vec<String> =
                verify(&slow, &starts).iter().map(|breach| breach.to_string().replace(['\'', '"'], "")).collect();
            assert_eq!(said, [breach.replace('"', "")]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn equal_text_of_different_keys_is_told_apart() {
        let recorder = Recorder::new();
        let keys = [Key::from(5), "5".into(), ("a", 5).into(), "(a, 5)".into(), ().into(), "()".into()];
        keys.into_iter().for_each(|key| drop(recorder.record("read", key)));
        let rules: Rules = "[rules]\nread = '1/1s'".parse().expect("rules");
        assert_no_breach(&rules, &recorder.starts());
    }

    #[tokio::test(start_paused = true)]
    async fn an_alias_is_recorded_as_what_it_stands_for() {
        let (rules, balancer) = rules("[rules]\nread = '2/1s'");
        let recorder = Recorder::new();
        balancer.alias("old", "new").expect("no circle");
        for key in ["old", "new", "old", "new"] {
            let call = recorder.wrap(async |_| Ok::<_, Failure<&str>>(()));
            balancer.run("read", key, call).await.expect("an answer");
        }
        let text: Vec<String> = recorder.starts().iter().map(|start| format!("{:?} {}", start.at, start.key)).collect();
        assert_eq!(text, ["0ns \"new\"", "0ns \"new\"", "1s \"new\"", "1s \"new\""]);
        assert_no_breach(&rules, &recorder.starts());
    }

    #[cfg(feature = "calendar")]
    #[tokio::test(start_paused = true)]
    async fn a_recorder_that_is_told_the_date_knows_midnight() {
        let (rules, _) = rules("overall = '1/day UTC'");
        // 2027-01-15 23:59:59 UTC.
        let recorder = Recorder::beginning_at(Duration::from_secs(1_800_057_599));
        drop(recorder.record("default", ()));
        sleep(SECOND).await;
        drop(recorder.record("default", ()));
        assert_no_breach(&rules, &recorder.starts());
        drop(recorder.record("default", ()));
        assert_eq!(verify(&rules, &recorder.starts()).len(), 1);
    }
}
