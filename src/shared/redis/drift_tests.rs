//! The script against the arithmetic in memory: on the same random histories they say the same, to the microsecond.

use std::sync::Arc;
use std::time::Duration;

use redis::{Client, Script};

use super::{ASK_TEXT, Redis, wire};
use crate::engine::{ALL, Anchor, LimitKind, Nanos, Said, Serial, Take, Told};
use crate::rules::Rules;
use crate::shared::engine_tests::{self, Kind, Store as Answer};
use crate::shared::store::{Ask, AskedLimit, Known, News, Store};
use crate::shared::tally::Tally;

#[path = "../../../tests/redis_server/mod.rs"]
mod redis_server;

fn window(count: u32, period: Nanos) -> LimitKind {
    let anchor = if period.is_zero() { Anchor::End } else { Anchor::Start };
    LimitKind::Window { count, period, anchor, grain: Nanos::ZERO }
}

fn count(kind: LimitKind) -> u32 {
    match kind {
        LimitKind::Window { count, .. } | LimitKind::Calendar { count, .. } => count,
        LimitKind::Spaced { largest, .. } => largest,
        LimitKind::Bucket { burst, .. } => burst,
    }
}

/// Limits that are over within milliseconds, so that a history has all of their life in it.
fn kinds() -> Vec<LimitKind> {
    let micros = |micros: u64| Nanos::new(micros * 1_000);
    vec![
        window(3, micros(4_000)),
        window(30, micros(20_000)),
        window(1, micros(1_500)),
        window(1_000, micros(9_000)),
        window(2_000, micros(10_000)),
        window(1_001, micros(333)),
        window(3, Nanos::ZERO),
        LimitKind::Spaced { interval: micros(900), largest: 5 },
        LimitKind::Spaced { interval: micros(3_000), largest: 1 },
        LimitKind::Bucket { interval: micros(700), burst: 6 },
    ]
}

/// What servers may say of a limit of which this is the last start: of more windows than are kept, as an answer to an older
/// start or one of another count, or as of now.
fn said(random: &mut fastrand::Rng, last: Serial, count: u32) -> Vec<Said> {
    let word = |random: &mut fastrand::Rng| {
        let epoch = if random.u8(0..8) == 0 { random.u64(1..=last.epoch + 1) } else { last.epoch };
        let number = last.number.saturating_sub(random.u64(0..6)) + u64::from(random.u8(0..30) == 0);
        Said {
            window: if random.u8(0..20) == 0 { ALL } else { u64::MAX >> random.u32(12..18) },
            left: if random.bool() { random.u32(0..6) } else { random.u32(0..=count) },
            answered: (last.epoch > 0 && random.u8(0..4) > 0).then_some(Serial { epoch, number }),
            is_now: random.u8(0..4) == 0,
            reset: Nanos::new(random.u64(0..30_000_000)),
        }
    };
    (0..random.usize(1..4)).map(|_| word(random)).collect()
}

#[tokio::test]
async fn real_clock_the_script_and_the_memory_say_the_same() {
    let server = redis_server::RedisServer::start();
    let rules: Rules = format!("[shared]\nurl = '{}'", server.url()).parse().unwrap();
    let store = Redis::connect(rules.shared()).unwrap();
    let mut tally = Tally::default();
    let mut random = fastrand::Rng::with_seed(7);
    let kinds = kinds();
    let names: Vec<Arc<str>> = (0..kinds.len()).map(|at| format!("{{rb}}:v1:{at}").into()).collect();
    let mut known = vec![[Known::default(); 3]; kinds.len()];
    let mut held = vec![[0_u32; 3]; kinds.len()];
    let mut last = vec![Serial::default(); kinds.len()];
    let (mut given, mut refused, mut lost, mut narrowed, mut freed) = (0, 0, 0, 0, 0);
    for number in 1..=6_000 {
        let process = random.usize(0..3);
        let mut lines: Vec<usize> = (0..kinds.len()).filter(|_| random.u8(0..3) == 0).collect();
        random.shuffle(&mut lines);
        let limits = lines.iter().map(|&at| {
            let told = match kinds[at] {
                _ if random.u8(0..12) > 0 => Told::Nothing,
                LimitKind::Window { period, .. } if period.is_zero() => Told::Nothing,
                LimitKind::Window { .. } => {
                    let start = |random: &mut fastrand::Rng| (Nanos::new(random.u64(0..12_000_000)), random.u32(1..4));
                    Told::Starts((0..random.usize(0..5)).map(|_| start(&mut random)).collect())
                }
                _ => Told::Owed(Nanos::new(random.u64(0..2_000_000))),
            };
            // Attempts end now and then.
            let running = &mut held[at][process];
            *running = running.saturating_sub(random.u32(0..3));
            AskedLimit {
                name: Arc::clone(&names[at]),
                kind: kinds[at],
                held: *running,
                told,
                said: if random.u8(0..5) == 0 { said(&mut random, last[at], count(kinds[at])) } else { Vec::new() },
                known: known[at][process],
            }
        });
        let limits: Vec<AskedLimit> = limits.collect();
        let requests = (0..random.usize(0..6)).map(|_| {
            let chosen = (0..lines.len()).filter(|_| random.bool());
            let takes: Vec<usize> = chosen.collect();
            let take = |line: usize| {
                let most = count(kinds[lines[line]]);
                let cost = if random.u8(0..4) == 0 { random.u32(1..=most) } else { 1 };
                Take { line, cost, reserve: random.u32(0..4) }
            };
            takes.into_iter().map(take).collect()
        });
        let requests: Vec<Vec<Take>> = requests.collect();
        if random.u8(0..80) == 0 {
            // Both forget.
            let (mut connection, under_way) = store.connection().unwrap();
            under_way.end();
            let gone = &names[random.usize(0..names.len())];
            redis::cmd("DEL").arg(&**gone).query_async::<i64>(&mut connection).await.unwrap();
            tally.forget(Some(gone));
        }
        let ask = Ask {
            process: process as u64,
            // Some come late, after others that were asked later.
            number: if random.u8(0..20) == 0 { number / 2 } else { number },
            lag: Duration::from_micros(random.u64(0..500)),
            lease: Duration::from_millis(if number < 5_000 { 15 } else { 400 }),
            limits,
            requests,
        };
        let reply = store.ask(ask.clone()).await.unwrap();
        let (expected, news) = tally.answer(reply.now, &ask);
        assert_eq!(reply, expected, "question {number}: {ask:#?}");
        let is_freed =
            |limit: &AskedLimit| !limit.said.is_empty() && news.contains(&News::Freed { name: limit.name.clone() });
        freed += ask.limits.iter().filter(|limit| is_freed(limit)).count();
        for (position, &at) in lines.iter().enumerate() {
            if let Some(stand) = &reply.limits[position].stand {
                last[at] = stand.last;
                narrowed += u32::from(!stand.windows.is_empty());
            }
            known[at][process] = reply.limits[position].known;
            lost += u32::from(reply.limits[position].lost);
        }
        for (takes, taken) in ask.requests.iter().zip(&reply.taken) {
            given += u32::from(*taken);
            refused += u32::from(!*taken);
            for take in takes.iter().filter(|_| *taken) {
                held[lines[take.line]][process] += take.cost;
            }
        }
    }
    assert!(given > 1_000 && refused > 1_000 && lost > 10, "{given} given, {refused} refused, {lost} lost");
    assert!(narrowed > 1_000 && freed > 100, "{narrowed} narrowed, {freed} freed");
}

/// The script with one line changed: the time is what it is told. What is to go by itself stays a thousand times as long.
fn script_that_is_told_the_time() -> Script {
    let mut text = ASK_TEXT.to_owned();
    for (from, to) in [
        ("redis.call('TIME')", "{ ARGV[#ARGV - 1], ARGV[#ARGV] }"),
        ("math.ceil(micros / 1000) + 1", "math.ceil(micros / 1000) * 1000 + 1"),
    ] {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text = text.replace(from, to);
    }
    Script::new(&text)
}

/// Random histories of which each question goes to the script and to the memory, which are to say the same.
fn answered_by_the_script(kinds: &[Kind], histories: u64, same: fn(Kind, u64, Answer<'_>)) {
    let server = redis_server::RedisServer::start();
    let mut connection = Client::open(server.url()).unwrap().get_connection().unwrap();
    let script = script_that_is_told_the_time();
    for &kind in kinds {
        for seed in 0..histories {
            redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
            let mut tally = Tally::default();
            same(kind, seed, &mut |now, ask| {
                let mut call = script.prepare_invoke();
                call.key("{rb}:v1:clock");
                for limit in &ask.limits {
                    call.key(&*limit.name);
                }
                for word in wire::words(ask, "{rb}:v1:news") {
                    call.arg(word);
                }
                call.arg(now / 1_000_000).arg(now % 1_000_000);
                let said = wire::reply(ask, &call.invoke(&mut connection).unwrap()).unwrap();
                let (expected, news) = tally.answer(now, ask);
                assert_eq!(said, expected, "{kind:?}, seed {seed}, at {now}: {ask:#?}");
                (said, news)
            });
        }
    }
}

#[test]
fn the_script_lets_calls_go_when_the_engine_does() {
    answered_by_the_script(&engine_tests::KINDS, 8, engine_tests::same_alone);
}

#[test]
fn a_machine_on_the_script_starts_what_one_without_does() {
    answered_by_the_script(&engine_tests::KINDS[..6], 8, engine_tests::same_in_a_machine);
}

/// A server whose clock is set back, or one that takes over and is behind, opens nothing: the newest time that is stored
/// counts.
#[tokio::test]
async fn real_clock_a_clock_that_is_set_back_stands_still() {
    let server = redis_server::RedisServer::start();
    let rules: Rules = format!("[shared]\nurl = '{}'", server.url()).parse().unwrap();
    let store = Redis::connect(rules.shared()).unwrap();
    let ask = |number, name: &str, kind| Ask {
        process: number,
        number,
        lag: Duration::ZERO,
        lease: Duration::from_secs(1),
        limits: vec![AskedLimit::new(format!("{{rb}}:v1:{name}"), kind)],
        requests: vec![vec![Take { line: 0, cost: 1, reserve: 0 }]],
    };
    let two = window(2, Nanos::from_secs(60));
    let first = store.ask(ask(1, "a", two)).await.unwrap();
    assert_eq!(first.taken, [true]);
    // What was read last was a minute ahead of what the clock shows now.
    let ahead = first.now + 60_000_000;
    let (mut connection, under_way) = store.connection().unwrap();
    under_way.end();
    redis::cmd("SET").arg("{rb}:v1:clock").arg(ahead).exec_async(&mut connection).await.unwrap();
    let second = store.ask(ask(2, "a", two)).await.unwrap();
    assert_eq!((second.now, second.taken), (ahead, vec![true]));
    // Both of them: the first is over then, the second counts from the time that stands still.
    let third = store.ask(ask(3, "a", two)).await.unwrap();
    assert_eq!((third.now, third.taken), (ahead, vec![true]));
    let fourth = store.ask(ask(4, "a", two)).await.unwrap();
    assert_eq!((fourth.now, fourth.taken), (ahead, vec![false]));
    assert_eq!(fourth.limits[0].wait, Some(Duration::from_secs(60)));
    // A clock that is behind by more than anything lasts is another clock: it counts.
    let other = store.ask(ask(5, "b", window(1, Nanos::from_secs(1)))).await.unwrap();
    assert!(other.now < ahead, "{} after {ahead}", other.now);
}
