//! What the steady state allocates: nothing.

#![cfg(feature = "tokio")]

use std::hint::black_box;

use allocation_counter::measure;
use request_balancer::{Balancer, Failure, Key, Rules};
use tokio::runtime::Builder;

const RULES: &str = "overall = '1000000/1s'\n[rules]\nsend = { per_key = '100000/1s', key_concurrency = 8 }";

#[test]
fn a_request_that_starts_at_once_allocates_nothing() {
    let balancer = Balancer::new(RULES.parse::<Rules>().unwrap());
    let send = balancer.rule("send").unwrap();
    let keys: Vec<Key> = (0..100).map(|n| format!("a name of some length {n}").into()).collect();
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let round = async |n: i64| {
        balancer.run("send", n, async |_| Ok::<_, Failure<()>>(black_box(n))).await.unwrap();
        send.run("a name of 22 bytes ...", async |_| Ok::<_, Failure<()>>(black_box(n))).await.unwrap();
        for key in &keys {
            send.run(key, async |_| Ok::<_, Failure<()>>(black_box(n))).await.unwrap();
        }
        drop(balancer.request("send", n).idempotent().fail_fast().acquire().await.unwrap());
    };
    let allocated = runtime.block_on(async {
        for n in 0..100 {
            round(n).await;
        }
        let mut all = 0;
        for n in 0..100 {
            let future = round(n);
            let mut future = std::pin::pin!(future);
            all += measure(|| assert!(futures::FutureExt::now_or_never(future.as_mut()).is_some())).count_total;
        }
        all
    });
    assert_eq!(allocated, 0);
}

#[test]
fn a_submitted_request_that_waits_has_no_room_for_the_future_of_its_attempt_yet() {
    const COUNT: usize = 1_000;
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let bytes = runtime.block_on(async {
        let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>().unwrap());
        let send = balancer.rule("send").unwrap();
        let mut tickets = Vec::with_capacity(COUNT);
        let held = measure(|| {
            for _ in 0..COUNT {
                let ticket = send.request(()).submit(async |_| {
                    let large = black_box([7_u8; 4_096]);
                    tokio::task::yield_now().await;
                    Ok::<_, Failure<()>>(black_box(large)[0])
                });
                tickets.push(ticket.unwrap());
            }
        });
        assert_eq!(tickets.swap_remove(0).await, Ok(7));
        held.bytes_current / COUNT as i64
    });
    assert!(bytes <= 300, "{bytes} bytes");
}
