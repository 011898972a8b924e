//! Cases from the field: panics, nesting, clocks, herds, and the end of a balancer.
#![cfg(feature = "tokio")]

mod field;

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use field::{Field, Script, every, ms, settle};
use request_balancer::{Ended, Error, Failure, Refused};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn counts(ended: Ended) -> [usize; 4] {
    [ended.done, ended.refused, ended.aborted, ended.open]
}

/// Counts how often the future inside is woken.
struct Counted<F> {
    future: F,
    waker: Option<Waker>,
    count: Arc<AtomicUsize>,
}

struct Counter {
    inner: Waker,
    count: Arc<AtomicUsize>,
}

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.inner.wake_by_ref();
    }
}

impl<F: Future + Unpin> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let count = Arc::clone(&self.count);
        // A task's waker stays the same.
        let inner = || Waker::from(Arc::new(Counter { inner: context.waker().clone(), count }));
        let waker = self.waker.get_or_insert_with(inner).clone();
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }
}

#[tokio::test(start_paused = true)]
async fn fr_098_only_those_are_woken_that_start() {
    let field = Field::new("[rules]\nr = '100/1s'");
    let count = Arc::new(AtomicUsize::new(0));
    let herd: Vec<JoinHandle<field::Answer>> = (0..10_000)
        .map(|_| {
            let (field, count) = (field.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                let future = Box::pin(field.balancer.run("r", "A", field.script("A", Script::takes(0))));
                Counted { future, waker: None, count }.await
            })
        })
        .collect();
    for second in 0..10 {
        field.at(second * 1_000 + 500).await;
        field.all_ok([field.go("r", second, "other")]).await;
    }
    field.all_ok(herd).await;
    assert_eq!(field.starts("other"), every(500, 1_000, 10));
    let expected: Vec<u64> = (0..10_000).map(|number| number / 100 * 1_000).collect();
    assert_eq!(field.starts("A"), expected);
    // The first hundred had no need to wait, all others waited once.
    assert_eq!(count.load(Ordering::Relaxed), 9_900);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_114_an_idle_balancer_ends_at_once_and_leaves_no_task() {
    let field = Field::new("[rules]\nr = '1/1s'");
    assert_eq!(counts(field.balancer.close(ms(0)).await), [0, 0, 0, 0]);
    assert_eq!((field.now(), tasks()), (0, 0));
    let field = Field::new("[rules]\nr = '1/1s'");
    field.all_ok(field.go_many("r", "A", "r", 2)).await;
    let waiting = field.go_many("r", "A", "r", 100);
    settle().await;
    assert_eq!(field.balancer.snapshot().waiting, 100);
    let before = field.now();
    assert_eq!(counts(field.balancer.close(ms(100)).await), [0, 100, 0, 0]);
    for task in waiting {
        let closed = Error::GaveUp { reason: Refused::Closed, attempts: 0, last: None };
        assert_eq!(task.await.unwrap(), Err(closed));
    }
    assert_eq!(field.now(), before);
    drop(field);
    settle().await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn fr_117_what_runs_finishes_and_what_waits_is_told_at_once() {
    let field = Field::new("[rules]\nr = { key_concurrency = 1 }");
    let running = field.play("r", "A", "running", Script::takes(2_000));
    let waiting = field.go_many("r", "A", "waiting", 5);
    settle().await;
    let closing = tokio::spawn({
        let balancer = field.balancer.clone();
        async move { balancer.close(ms(10_000)).await }
    });
    for task in waiting {
        let closed = Error::GaveUp { reason: Refused::Closed, attempts: 0, last: None };
        assert_eq!(task.await.unwrap(), Err(closed));
    }
    assert_eq!(field.now(), 0);
    field.at(1_000).await;
    let late = field.balancer.request("r", "B").submit(field.script("late", Script::takes(0)));
    assert_eq!(late.unwrap_err(), Refused::Closed);
    assert_eq!(counts(closing.await.unwrap()), [1, 5, 0, 0]);
    assert_eq!(field.now(), 2_000);
    field.all_ok([running]).await;
    field.diary.assert(&[("running", 0)]);
    field.assert_quiet();
}

// What becomes of it in an outbox belongs to the part that has one.
#[tokio::test(start_paused = true)]
async fn fr_119_an_attempt_without_an_end_is_cut_off_at_the_deadline() {
    let field = Field::new("[rules]\nr = {}");
    let done: Vec<_> = (1..=3).map(|number| field.play("r", number, "done", Script::takes(number * 1_000))).collect();
    let endless = field.play("r", "endless", "endless", Script::takes(u64::MAX / 1_000_000));
    settle().await;
    assert_eq!(counts(field.balancer.close(ms(10_000)).await), [3, 0, 1, 0]);
    assert_eq!(field.now(), 10_000);
    field.all_ok(done).await;
    let aborted = Error::GaveUp { reason: Refused::Aborted, attempts: 1, last: None };
    assert_eq!(endless.await.unwrap(), Err(aborted));
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_121_a_panic_is_the_answer_of_its_own_request() {
    let field = Field::new("[rules]\nindividual = { per_key = '10/1s', key_concurrency = 1 }");
    for (round, message) in ["before the first await", "after it"].into_iter().enumerate() {
        let panics = tokio::spawn({
            let field = field.clone();
            async move {
                let request = field.balancer.run("individual", "A", |_| {
                    field.diary.note("r1");
                    assert!(round != 0, "{message}");
                    async move {
                        tokio::time::sleep(ms(100)).await;
                        if round == 1 {
                            panic!("{message}");
                        }
                        Ok::<u32, Failure<&str>>(0)
                    }
                });
                request.await
            }
        });
        let others = [field.go("individual", "A", "r2"), field.go("individual", "B", "r3")];
        assert_eq!(panics.await.unwrap(), Err(Error::Panicked(message.into())));
        field.all_ok(others).await;
        field.assert_quiet();
        assert_eq!(field.balancer.key("A").in_flight, 0);
    }
    field.diary.assert(&[("r1", 0), ("r2", 0), ("r3", 0), ("r1", 0), ("r3", 0), ("r2", 100)]);
}

#[tokio::test(start_paused = true)]
async fn fr_122_a_typed_error_comes_back_as_it_is() {
    /// Neither copied nor compared by the balancer.
    #[derive(Debug, PartialEq)]
    struct Own {
        code: u16,
        text: String,
    }
    let field = Field::new("[rules]\nr = {}");
    let own = || Own { code: 404, text: "no such chat".into() };
    let fails = async || Err::<(), Own>(own());
    let answer = field
        .balancer
        .run("r", "A", async |_| {
            field.diary.note("r");
            Ok(fails().await?)
        })
        .await;
    assert_eq!(answer, Err(Error::Failed(own())));
    assert_eq!(field.diary.times(), [0]);
    field.assert_quiet();
}

#[tokio::test(start_paused = true)]
async fn fr_125_a_request_that_waits_for_itself_is_refused() {
    let field = Field::new("[rules]\nr = { key_concurrency = 1 }");
    let (balancer, script) = (&field.balancer, |name| field.script(name, Script::takes(100)));
    let answer = balancer
        .run("r", "A", async |_| {
            let same = balancer.run("r", "A", script("same key")).await;
            let other = balancer.run("r", "B", script("other key")).await;
            Ok::<_, Failure<&str>>((same, other))
        })
        .await;
    let deadlock = Error::GaveUp { reason: Refused::WouldDeadlock, attempts: 0, last: None };
    assert_eq!(answer, Ok((Err(deadlock), Ok(1))));
    field.diary.assert(&[("other key", 0)]);
    field.assert_quiet();
    // Undetectable across tasks: `max_wait` ends it.
    let nested = field.clone();
    let answer = field
        .balancer
        .run("r", "A", async |_| {
            let nested = nested.clone();
            let task = tokio::spawn(async move {
                let request = nested.balancer.request("r", "A").max_wait(ms(5_000));
                request.run(nested.script("never", Script::takes(0))).await
            });
            Ok::<_, Failure<&str>>(task.await.expect("the task ends by itself"))
        })
        .await;
    assert!(matches!(answer, Ok(Err(Error::GaveUp { reason: Refused::MaxWait { .. }, .. }))), "{answer:?}");
    assert_eq!((field.now(), field.starts("never")), (5_100, vec![]));
    field.assert_quiet();
}

// No wall clock can move what never reads one: all time is tokio's or passed in. Only calendar days, what outlives the
// program and what responses say in moments are told of it; that this moves no start either is tried in
// field_cases_restart.rs, and for responses by the story `seq-wall-back` of observe_sequences.rs. Documentation reads no
// clock.
#[test]
fn fr_130_nothing_that_times_a_start_reads_the_wall_clock() {
    const TELL: [&str; 5] = [
        "src/runtime/wall.rs",
        "src/runtime/state/mod.rs",
        "src/headers/read.rs",
        "src/headers/moment.rs",
        // For people to read.
        "src/bin/request-balancer/outbox.rs",
    ];
    /// What is in here is put and shown with times on the wall, and asks the first of those what it shows.
    const NAMES: &str = "src/outbox/";
    fn search(folder: &Path) {
        for entry in folder.read_dir().expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                search(&path);
            } else if path.extension().is_some_and(|kind| kind == "rs") && !TELL.iter().any(|file| path.ends_with(file))
            {
                let text = std::fs::read_to_string(&path).expect("a readable file");
                let names = path.to_string_lossy().replace('\\', "/").contains(NAMES);
                let words: &[&str] = if names { &["SystemTime::now"] } else { &["SystemTime", "UNIX_EPOCH"] };
                let reads = |line: &&str| {
                    let is_code = !line.trim_start().starts_with("///");
                    is_code && words.iter().any(|word| line.contains(word))
                        || line.contains("std::time::") && line.contains("Instant")
                };
                assert_eq!(text.lines().find(reads), None, "in {}", path.display());
            }
        }
    }
    search(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
}

// The step of the wall clock has nothing to act on: see fr_130.
#[tokio::test(start_paused = true)]
async fn fr_132_the_end_waits_for_an_attempt_and_no_longer() {
    let field = Field::new("[rules]\nr = {}");
    let running = field.play("r", "A", "r", Script::takes(5_000));
    settle().await;
    assert_eq!(counts(field.balancer.close(ms(10_000)).await), [1, 0, 0, 0]);
    assert_eq!(field.now(), 5_000);
    assert_eq!(running.await.unwrap(), Ok(1));
}
