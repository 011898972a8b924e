//! What goes to the `metrics` facade.
#![cfg(feature = "metrics")]

mod field;

use std::collections::BTreeMap;

use field::{End, Field, Script, ms, settle};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use request_balancer::Retry;
use tokio::runtime::Builder;

/// Everything but zeros, in one line each: `name{label=value}` and its value.
fn read(snapshotter: &Snapshotter) -> BTreeMap<String, String> {
    let all = snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
        let (_, key) = key.into_parts();
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = key.name().strip_prefix("request_balancer_").unwrap_or_else(|| key.name());
        let value = match value {
            DebugValue::Counter(count) => count.to_string(),
            DebugValue::Gauge(value) => value.to_string(),
            DebugValue::Histogram(values) => format!("{:?}", values.iter().map(|value| value.0).collect::<Vec<_>>()),
        };
        (format!("{name}{{{}}}", labels.join(",")), value)
    });
    all.filter(|(_, value)| value != "0" && value != "[]").collect()
}

#[track_caller]
fn assert_told(snapshotter: &Snapshotter, expected: &[(&str, &str)]) {
    let expected: BTreeMap<_, _> = expected.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert_eq!(read(snapshotter), expected);
}

fn with_recorder(test: impl AsyncFnOnce(Snapshotter)) {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(test(snapshotter)));
}

#[test]
fn a_request_is_counted_where_it_stands() {
    with_recorder(async |told| {
        let field = Field::new("[rules]\nr = '1/1s'\n[lanes.1]\nname = 'top'");
        let first = field.play("r", 1, "first", Script::takes(500));
        let second = field.play("r", 1, "second", Script { takes: 0, ends: vec![End::Retry(2_000), End::Ok] });
        settle().await;
        assert_told(
            &told,
            &[
                ("in_flight{rule=r,lane=top}", "1"),
                ("starts_total{rule=r,lane=top}", "1"),
                ("wait_seconds{rule=r,lane=top}", "[0.0]"),
                ("waiting{rule=r,lane=top}", "1"),
            ],
        );
        field.at(1_500).await;
        // Everything starts anew with each reading: gauges say by how much they changed.
        assert_told(
            &told,
            &[
                ("holds_total{rule=r,scope=key,cause=retry}", "1"),
                ("in_flight{rule=r,lane=top}", "-1"),
                ("retries_total{rule=r,lane=top,cause=retry}", "1"),
                ("starts_total{rule=r,lane=top}", "1"),
                ("wait_seconds{rule=r,lane=top}", "[1.0]"),
            ],
        );
        field.all_ok([first, second]).await;
        assert_told(
            &told,
            &[
                ("starts_total{rule=r,lane=top}", "1"),
                ("wait_seconds{rule=r,lane=top}", "[2.0]"),
                ("waiting{rule=r,lane=top}", "-1"),
            ],
        );
    });
}

#[test]
fn whoever_is_refused_withdrawn_or_cut_off_leaves_the_gauges() {
    with_recorder(async |told| {
        let field = Field::new("[rules]\nr = { per_key = '1/1s', queue = 1 }");
        let running = field.play("r", 1, "running", Script::takes(60_000));
        let waiting = field.go("r", 1, "waiting");
        settle().await;
        assert!(field.go("r", 1, "full").await.unwrap().is_err());
        assert!(field.balancer.request("r", 1).try_acquire().is_err());
        assert!(field.balancer.request("unknown", 1).try_acquire().is_err());
        waiting.abort();
        running.abort();
        settle().await;
        let gave_up = field.play_as("r", 2, "gave up", Script::ends([End::Transient]), Retry::none());
        assert!(gave_up.await.unwrap().is_err());
        let expired = field.balancer.request("r", 2).max_wait(ms(10)).acquire().await;
        assert!(expired.is_err());
        drop(field.balancer.request("r", 3).acquire().await.unwrap());
        field.balancer.close(ms(0)).await;
        assert!(field.balancer.request("r", 4).try_acquire().is_err());
        assert_told(
            &told,
            &[
                ("refused_total{rule=r,lane=1,cause=attempts}", "1"),
                ("refused_total{rule=r,lane=1,cause=closed}", "1"),
                ("refused_total{rule=r,lane=1,cause=max-wait}", "1"),
                ("refused_total{rule=r,lane=1,cause=not-now}", "1"),
                ("refused_total{rule=r,lane=1,cause=queue-full}", "1"),
                ("starts_total{rule=r,lane=1}", "3"),
                ("wait_seconds{rule=r,lane=1}", "[0.0, 0.0, 0.0]"),
            ],
        );
    });
}

#[test]
fn a_request_leaves_the_gauge_that_it_entered_whatever_the_rules() {
    with_recorder(async |told| {
        let field = Field::new("[rules]\nr = '1/1s'");
        field.all_ok([field.go("r", 1, "first")]).await;
        let waiting = field.go("r", 1, "waiting");
        settle().await;
        field.balancer.replace_rules("[rules]\nr = { per_key = '1/1s', priority = 2 }".parse().unwrap());
        field.all_ok([waiting]).await;
        assert_told(
            &told,
            &[
                ("starts_total{rule=r,lane=1}", "1"),
                ("starts_total{rule=r,lane=2}", "1"),
                ("wait_seconds{rule=r,lane=1}", "[0.0]"),
                ("wait_seconds{rule=r,lane=2}", "[1.0]"),
            ],
        );
    });
}
