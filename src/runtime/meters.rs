//! What goes to the `metrics` facade (feature `metrics`). The names are documented at the top of the crate.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::event::Event;
use super::shared::Shared;
use crate::engine::{Nanos, Plan, RuleId};
use crate::error::Refused;

/// The meters of one rule, registered with the first request under the rules.
#[derive(Debug)]
pub(crate) struct Meters {
    rule: Arc<str>,
    lane: Arc<str>,
    waiting: Gauge,
    outside: Gauge,
    in_flight: Gauge,
    starts: Counter,
    wait: Histogram,
}

impl Meters {
    pub(crate) fn all(plan: &Plan) -> Box<[Arc<Self>]> {
        let meters = plan.rules.iter().map(|rule| {
            let labels = || {
                let (rule, lane) = (Arc::clone(&rule.name), Arc::clone(&plan.lanes[rule.lane].name));
                vec![metrics::Label::new("rule", rule), metrics::Label::new("lane", lane)]
            };
            Arc::new(Self {
                rule: Arc::clone(&rule.name),
                lane: Arc::clone(&plan.lanes[rule.lane].name),
                waiting: gauge!("request_balancer_waiting", labels()),
                outside: gauge!("request_balancer_outside", labels()),
                in_flight: gauge!("request_balancer_in_flight", labels()),
                starts: counter!("request_balancer_starts_total", labels()),
                wait: histogram!("request_balancer_wait_seconds", labels()),
            })
        });
        meters.collect()
    }

    fn of(shared: &Shared, rule: RuleId) -> Arc<Self> {
        Arc::clone(&shared.live.load().meters()[usize::from(rule.0)])
    }
}

/// Where a request is counted. It leaves the gauge that it entered, whatever rules are in force by then.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    entered: Option<Arc<Meters>>,
    /// The same while it waits before the line.
    before: Option<Arc<Meters>>,
}

impl Meter {
    pub(super) fn waits_outside(&mut self, shared: &Shared, rule: RuleId) {
        let meters = Meters::of(shared, rule);
        meters.outside.increment(1);
        self.before = Some(meters);
    }

    pub(super) fn waits(&mut self, shared: &Shared, rule: RuleId) {
        self.comes_in();
        let meters = Meters::of(shared, rule);
        meters.waiting.increment(1);
        self.entered = Some(meters);
    }

    pub(super) fn starts(&mut self, shared: &Shared, rule: RuleId, waited: Nanos) {
        self.leaves_line();
        let meters = Meters::of(shared, rule);
        meters.in_flight.increment(1);
        meters.starts.increment(1);
        meters.wait.record(Duration::from(waited));
        self.entered = Some(meters);
    }

    fn comes_in(&mut self) {
        if let Some(meters) = self.before.take() {
            meters.outside.decrement(1);
        }
    }

    pub(super) fn leaves_line(&mut self) {
        self.comes_in();
        if let Some(meters) = self.entered.take() {
            meters.waiting.decrement(1);
        }
    }

    pub(super) fn ends(&mut self) {
        if let Some(meters) = self.entered.take() {
            meters.in_flight.decrement(1);
        }
    }

    pub(super) fn retries(&self, shared: &Shared, rule: RuleId, cause: &'static str) {
        let meters = Meters::of(shared, rule);
        let (name, lane) = (Arc::clone(&meters.rule), Arc::clone(&meters.lane));
        counter!("request_balancer_retries_total", "rule" => name, "lane" => lane, "cause" => cause).increment(1);
    }

    pub(super) fn refused(&self, shared: &Shared, rule: RuleId, reason: &Refused) {
        let meters = Meters::of(shared, rule);
        let (name, lane) = (Arc::clone(&meters.rule), Arc::clone(&meters.lane));
        let cause = reason.cause();
        counter!("request_balancer_refused_total", "rule" => name, "lane" => lane, "cause" => cause).increment(1);
    }
}

/// Counts an event.
pub(super) fn count(event: &Event) {
    match event {
        Event::HoldStarted { scope, rule, cause, .. } => {
            let rule = rule.clone().unwrap_or_else(|| "".into());
            let (scope, cause) = (scope.to_string(), cause.to_string());
            counter!("request_balancer_holds_total", "rule" => rule, "scope" => scope, "cause" => cause).increment(1);
        }
        Event::BanAhead { .. } => counter!("request_balancer_bans_ahead_total").increment(1),
        Event::HoldCut { .. }
        | Event::HoldReleased { .. }
        | Event::RetryGaveUp { .. }
        | Event::NoRoom { .. }
        | Event::StoreLost { .. }
        | Event::StoreBack
        | Event::StoreForgot { .. }
        | Event::RulesTaken { .. }
        | Event::RulesDiffer { .. }
        | Event::RulesUnreadable { .. }
        | Event::BanOver
        | Event::EndpointHeld { .. }
        | Event::EndpointReleased { .. }
        | Event::BreakerOpened { .. }
        | Event::BreakerClosed { .. }
        | Event::EndpointDisabled { .. }
        | Event::EndpointEnabled { .. }
        | Event::LimitDiffers(_)
        | Event::Missed { .. } => {}
    }
}
