//! The simulated server by itself and against the balancer; the recorder and the assertion.
#![cfg(feature = "testing")]

use std::time::Duration;

use request_balancer::Key;
use request_balancer::testing::{Answer, Limit, Server};

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

#[cfg(feature = "tokio")]
mod on_tokio {
    use request_balancer::testing::RunningServer;
    use request_balancer::{Attempt, Balancer, Failure, Rules};
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
    async fn broadcast(balancer: &Balancer, server: &RunningServer, keys: i64, each: usize) -> Vec<Duration> {
        let begin = Instant::now();
        let of_key = |key| async move {
            let messages = (0..each).map(|_| {
                let attempt = move |attempt: Attempt| async move { send(server, key, &attempt).await };
                balancer.run("default", key, attempt)
            });
            for sent in futures::future::join_all(messages).await {
                sent.expect("every message is sent in the end");
            }
            begin.elapsed()
        };
        futures::future::join_all((0..keys).map(of_key)).await
    }

    fn rules(text: &str) -> Balancer {
        Balancer::new(text.parse::<Rules>().expect("the test's rules are right"))
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
            let balancer = rules("overall = '30/1s'\nper_key = '1/1s'\nmargin = '50ms'");
            broadcast(&balancer, &server, 45, 4).await;
            assert_eq!((server.accepted(), server.refused()), (180, 0), "seed {seed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_margin_jitter_breaks_the_server_s_window_and_the_server_says_so() {
        let server = Server::sliding(30, SECOND).jitter(Duration::from_millis(50)).start();
        let balancer = rules("overall = '30/1s'");
        broadcast(&balancer, &server, 45, 4).await;
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
        let balancer = rules("overall = '100/1s'\nper_key = '10/1s'");
        let done = broadcast(&balancer, &server, 10, 40).await;
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
}
