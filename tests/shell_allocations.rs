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
