//! The handshake of waiters, claims, drops, leases and drivers, in many orders of steps.
//!
//! shuttle runs its threads in turns on one thread of the machine and switches between them wherever a lock is taken or
//! a flag is read. If all of them wait for each other, it says so: that is how a lost wake-up shows. Nobody runs tokio's
//! runtime but the test itself, where it wants a driver's task or a cancelled one to get on.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::thread;
use tokio::runtime::{Builder, Runtime};

use super::{Balancer, Permit};
use crate::error::{Failure, Refused};
use crate::rules::Rules;

/// Orders of steps that are tried.
const ITERATIONS: usize = 2_000;

type Acquired = Pin<Box<dyn Future<Output = Result<Permit, Refused>> + Send>>;

/// A balancer on a runtime whose clock stands still.
struct World {
    runtime: Runtime,
    balancer: Balancer,
}

impl World {
    fn new(rules: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let rules: Rules = rules.parse().expect("right rules");
        let entered = runtime.enter();
        let balancer = Balancer::new(rules);
        drop(entered);
        let world = Self { runtime, balancer };
        // Away from the instants at which idle keys are swept.
        world.advance(Duration::from_millis(500));
        world
    }

    fn acquire(&self) -> Acquired {
        Box::pin(self.balancer.request("default", 1).acquire())
    }

    /// Lets time go on, and with it whatever task of the runtime has something to do.
    fn advance(&self, span: Duration) {
        self.runtime.block_on(async {
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            tokio::time::advance(span).await;
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        });
    }

    fn assert_empty(&self) {
        let snapshot = self.balancer.snapshot();
        assert_eq!((snapshot.waiting, snapshot.in_flight), (0, 0));
    }
}

/// One poll whose wake-up nobody hears.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn check(test: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(test, ITERATIONS);
}

#[test]
fn whoever_waits_for_a_slot_gets_it() {
    check(|| {
        let world = World::new("concurrency = 1");
        let _entered = world.runtime.enter();
        let inside = Arc::new(shuttle::sync::atomic::AtomicUsize::new(0));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (future, inside) = (world.acquire(), Arc::clone(&inside));
                thread::spawn(move || {
                    let permit = block_on(future).expect("a start");
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    drop(permit);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        world.assert_empty();
    });
}

#[test]
fn grants_of_one_moment_are_all_taken_up() {
    check(|| {
        let world = World::new("[rules]\ndefault = { per_key = '3/1m', paused = true }");
        let _entered = world.runtime.enter();
        let mut futures: Vec<_> = (0..3).map(|_| world.acquire()).collect();
        for future in &mut futures {
            assert!(poll_once(future).is_pending());
        }
        let threads: Vec<_> =
            futures.into_iter().map(|future| thread::spawn(move || block_on(future).map(drop))).collect();
        world.balancer.resume("default").expect("a rule");
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), Ok(()));
        }
        world.assert_empty();
        // The window knows all three: a fourth has to wait.
        assert!(poll_once(&mut world.acquire()).is_pending());
    });
}

#[test]
fn a_waiter_that_leaves_at_any_moment_takes_nothing_along() {
    check(|| {
        let world = World::new("concurrency = 1");
        let _entered = world.runtime.enter();
        let holder = block_on(world.acquire()).expect("a start");
        let mut leaves = world.acquire();
        assert!(poll_once(&mut leaves).is_pending());
        let stays = world.acquire();
        let stays = thread::spawn(move || block_on(stays).map(drop));
        let leaves = thread::spawn(move || drop(leaves));
        drop(holder);
        leaves.join().expect("no panic");
        assert_eq!(stays.join().expect("no panic"), Ok(()));
        world.assert_empty();
    });
}

#[test]
fn a_run_that_is_dropped_while_it_runs_gives_its_slot_back() {
    check(|| {
        let world = World::new("concurrency = 1");
        let _entered = world.runtime.enter();
        let balancer = world.balancer.clone();
        let runs = thread::spawn(move || {
            let f = async |_| std::future::pending::<Result<(), Failure<()>>>().await;
            let mut run = pin!(balancer.run("default", 1, f));
            let _pending = run.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        });
        let waits = world.acquire();
        let waits = thread::spawn(move || block_on(waits).map(drop));
        runs.join().expect("no panic");
        assert_eq!(waits.join().expect("no panic"), Ok(()));
        world.assert_empty();
    });
}

#[test]
fn a_ticket_dropped_while_it_is_woken_leaves_its_place_to_others() {
    check(|| {
        let world = World::new("concurrency = 1");
        let _entered = world.runtime.enter();
        let holder = block_on(world.acquire()).expect("a start");
        let ticket = world.balancer.request("default", 1).submit(async |_| Ok::<_, Failure<()>>(())).expect("a place");
        let waits = world.acquire();
        let waits = thread::spawn(move || block_on(waits).map(drop));
        let drops = thread::spawn(move || drop(ticket));
        drop(holder);
        drops.join().expect("no panic");
        // A task that was spawned already is cancelled by its runtime.
        world.advance(Duration::ZERO);
        assert_eq!(waits.join().expect("no panic"), Ok(()));
        world.assert_empty();
    });
}

#[test]
fn whoever_meets_the_end_is_started_or_refused() {
    check(|| {
        let world = World::new("concurrency = 1");
        let _entered = world.runtime.enter();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let future = world.acquire();
                thread::spawn(move || block_on(future).map(drop))
            })
            .collect();
        world.balancer.shared.with(|state, now| state.machine.close(now));
        for thread in threads {
            let answer = thread.join().expect("no panic");
            assert!(matches!(answer, Ok(()) | Err(Refused::Closed)), "{answer:?}");
        }
        world.assert_empty();
    });
}

#[test]
fn a_waiter_whose_driver_leaves_is_served_all_the_same() {
    check(|| {
        let world = World::new("overall = '2/1m'");
        let _entered = world.runtime.enter();
        drop(block_on(world.acquire()).expect("the one start that is left"));
        let other = Builder::new_current_thread().enable_time().build().expect("a runtime");
        assert!(world.balancer.shared.start_driver(other.handle()));
        let waits = world.acquire();
        let waits = thread::spawn(move || block_on(waits).map(drop));
        let (shared, elsewhere) = (Arc::clone(&world.balancer.shared), other.handle().id());
        let leaves = thread::spawn(move || shared.driver_ended(elsewhere, false));
        leaves.join().expect("no panic");
        // Woken, the waiter looks for a driver of its own; if it was not there yet, it finds room by itself.
        world.advance(Duration::from_secs(60));
        assert_eq!(waits.join().expect("no panic"), Ok(()));
        world.assert_empty();
    });
}

#[test]
fn a_grant_that_nobody_takes_up_goes_to_the_next_after_its_lease() {
    check(|| {
        let world = World::new("concurrency = 1\n[rules]\ndefault = { paused = true }");
        let _entered = world.runtime.enter();
        let mut asleep = world.acquire();
        assert!(poll_once(&mut asleep).is_pending());
        let mut waits = world.acquire();
        assert!(poll_once(&mut waits).is_pending());
        world.balancer.resume("default").expect("a rule");
        let waits = thread::spawn(move || block_on(waits).map(drop));
        world.advance(Duration::from_secs(2));
        assert_eq!(waits.join().expect("no panic"), Ok(()));
        assert_eq!(block_on(asleep).map(drop), Ok(()));
        world.assert_empty();
    });
}
