//! What goes to `tracing`, on the paused clock.
#![cfg(feature = "tokio")]

mod field;

use std::fmt::Write as _;
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex};

use field::{End, Field, Script, ms, settle};
use request_balancer::{Failure, Target};
use tracing::field::{Field as Name, Visit};
use tracing::span::{Attributes, Id};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// Writes down what it is told: `LEVEL message field=value`, spans with a `+` when they are made and a `-` at their end.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, name: &Name, value: &dyn Debug) {
        if name.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            write!(self.fields, " {}={value:?}", name.name()).unwrap();
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.message, self.fields)
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let within = context.lookup_current().map_or("", |span| span.name());
        let (target, level) = (event.metadata().target(), event.metadata().level());
        let from = if target == "request_balancer" { String::new() } else { format!(" in {within}") };
        self.0.lock().unwrap().push(format!("{level} {line}{from}"));
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut line = Line::default();
        attributes.record(&mut line);
        let (level, name) = (attributes.metadata().level(), attributes.metadata().name());
        self.0.lock().unwrap().push(format!("{level} +{name}{line}"));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let name = context.span(&id).map_or("?", |span| span.name());
        self.0.lock().unwrap().push(format!("-{name}"));
    }
}

impl Log {
    fn listen() -> (Self, DefaultGuard) {
        let log = Self::default();
        let guard = tracing::subscriber::set_default(Registry::default().with(log.clone()));
        (log, guard)
    }

    #[track_caller]
    fn assert(&self, expected: &[&str]) {
        assert_eq!(std::mem::take(&mut *self.0.lock().unwrap()), expected);
    }
}

const RULES: &str = "[rules]\nr = '1/1s'\n[lanes.1]\nname = 'top'";

#[tokio::test(start_paused = true)]
async fn a_request_is_told_step_by_step_and_runs_inside_its_span() {
    let field = Field::new(RULES);
    let (log, _guard) = Log::listen();
    let answer = field.balancer.run("r", 42, async |attempt| {
        tracing::info!("called");
        tokio::time::sleep(ms(10)).await;
        tracing::info!("answered");
        if attempt.number() == 1 { Err(attempt.retry(ms(2_000))) } else { Ok::<_, Failure<()>>(()) }
    });
    answer.await.unwrap();
    log.assert(&[
        r#"TRACE started rule="r" key=42 lane="top" attempt=1 waited=0.0"#,
        r#"DEBUG +attempt rule="r" key=42 lane="top" attempt=1 waited=0.0 cause="first""#,
        "INFO called in attempt",
        "INFO answered in attempt",
        r#"DEBUG hold started scope=key rule="r" key=42 cause=retry lasts=2.0"#,
        r#"DEBUG put back rule="r" key=42 lane="top" attempt=1 cause="retry" wait=2.0"#,
        "-attempt",
        r#"TRACE started rule="r" key=42 lane="top" attempt=2 waited=2.0"#,
        r#"DEBUG +attempt rule="r" key=42 lane="top" attempt=2 waited=2.0 cause="retry""#,
        "INFO called in attempt",
        "INFO answered in attempt",
        r#"TRACE ended rule="r" key=42 lane="top" attempt=2 outcome="done""#,
        "-attempt",
    ]);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_refused_or_leaves_is_told_so() {
    let field = Field::new(RULES);
    field.all_ok([field.go("r", 1, "first")]).await;
    let (log, _guard) = Log::listen();
    let waiting = field.go("r", 1, "waiting");
    settle().await;
    waiting.abort();
    settle().await;
    assert!(field.balancer.request("r", 1).try_acquire().is_err());
    let failing = field.play("r", 2, "failing", Script::ends([End::Permanent])).await.unwrap();
    assert!(failing.is_err());
    log.assert(&[
        r#"TRACE waiting rule="r" key=1 lane="top" attempt=0"#,
        r#"TRACE withdrawn rule="r" key=1 lane="top" attempt=0"#,
        r#"DEBUG refused rule="r" key=1 lane="top" attempt=0 cause="not-now" reason=it can't start at once: there is room in 1s at the earliest"#,
        r#"TRACE started rule="r" key=2 lane="top" attempt=1 waited=0.0"#,
        r#"DEBUG +attempt rule="r" key=2 lane="top" attempt=1 waited=0.0 cause="first""#,
        r#"TRACE ended rule="r" key=2 lane="top" attempt=1 outcome="failed""#,
        "-attempt",
    ]);
}

#[tokio::test(start_paused = true)]
async fn holds_and_bans_are_told() {
    let field = Field::new("ban_guard = '1/10s'\n[rules]\nr = {}");
    let (log, _guard) = Log::listen();
    field.balancer.hold(Target::overall(), ms(7_200_000)).unwrap();
    field.balancer.release(Target::overall()).unwrap();
    let mut permit = field.balancer.request("r", 1).try_acquire().unwrap();
    permit.invalid();
    drop(permit);
    field.at(10_000).await;
    drop(field.balancer.snapshot());
    log.assert(&[
        "DEBUG hold started scope=overall cause=asked lasts=3600.0",
        "WARN hold cut scope=overall wanted=7200.0 allowed=3600.0",
        "DEBUG hold released scope=overall",
        r#"TRACE started rule="r" key=1 lane="1" attempt=1 waited=0.0"#,
        r#"DEBUG +attempt rule="r" key=1 lane="1" attempt=1 waited=0.0 cause="first""#,
        "WARN ban ahead level=1 period=10.0",
        r#"TRACE ended rule="r" key=1 lane="1" attempt=1 outcome="done""#,
        "-attempt",
        "WARN ban over",
    ]);
}
