//! The life of a request that is going to be dropped.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures::FutureExt;
use request_balancer::{Permit, Target};
use tokio::time::sleep;

use super::{End, Field, Script, ms};

/// How a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Run,
    Ticket,
    Permit,
}

/// A server's wait is what it says.
const EXACT: &str = "[retry]\nmin_wait = '0s'\nbackoff = '0s'\n";

pub(crate) const SHAPES: [Shape; 3] = [Shape::Run, Shape::Ticket, Shape::Permit];

pub(crate) fn exact(rules: &str) -> Field {
    Field::new(&format!("{rules}\n{EXACT}"))
}

pub(crate) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

pub(crate) type Life<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A request that waits for its start, runs for 300 ms, is sent away for 700 ms, and runs for 300 ms once more. It has
/// its place in line when this returns.
pub(crate) fn life<'a>(field: &'a Field, shape: Shape, key: &'static str, name: &'static str) -> Life<'a> {
    let script = Script { takes: 300, ends: vec![End::Retry(700), End::Ok] };
    let request = field.balancer.request("r", key);
    let mut life: Life<'a> = match shape {
        Shape::Run => Box::pin(request.run(field.script(name, script)).map(|answer| assert_eq!(answer, Ok(2)))),
        Shape::Ticket => {
            let ticket = request.submit(field.script(name, script)).expect("a place in line");
            return Box::pin(ticket.map(|answer| assert_eq!(answer, Ok(2))));
        }
        Shape::Permit => Box::pin(async move {
            let attempt = async |permit: &Permit| {
                field.diary.note(name);
                assert_eq!(permit.key().to_string(), key);
                sleep(ms(300)).await;
            };
            let permit = request.acquire().await.expect("it starts");
            attempt(&permit).await;
            let permit = permit.retry(ms(700)).await.expect("it starts again");
            attempt(&permit).await;
        }),
    };
    assert!(poll_once(life.as_mut()).is_pending());
    life
}

/// No trace is left, at the latest when windows and holds are over.
pub(crate) async fn assert_traceless(field: &Field) {
    field.assert_quiet();
    sleep(ms(4_000)).await;
    let snapshot = field.balancer.snapshot();
    assert_eq!((snapshot.keys, snapshot.next_wake, snapshot.held), (0, None, None));
    assert!(snapshot.lanes.iter().all(|lane| (lane.waiting, lane.in_flight, lane.bypassed) == (0, 0, 0)));
    assert!(snapshot.rules.iter().all(|rule| (rule.waiting, rule.in_flight, rule.held) == (0, 0, None)));
}

/// A life that has started.
pub(crate) async fn life_started(field: &Field, shape: Shape) -> Life<'_> {
    field.balancer.hold(Target::overall(), ms(10)).unwrap();
    let mut victim = life(field, shape, "A", "victim");
    field.balancer.release(Target::overall()).unwrap();
    assert!(poll_once(victim.as_mut()).is_pending());
    assert_eq!(field.starts("victim").len(), 1);
    victim
}
