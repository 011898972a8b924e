//! Urgent work first, and nobody left behind.

use request_balancer::engine::{Instant, Nanos, RuleId};

use super::super::{Call, Log, Measure, Rng, Setup, Value, call, plan, prompt, rule, run};

/// Bypass bounds K = 1/share - L of 9 and 29.
const THREE_LANES: &str = r#"
overall = "30/1s"
[rules]
interactive = {}
normal = { priority = 2 }
bulk = { priority = 3 }
[lanes.2]
share = "1/12"
[lanes.3]
share = "1/32"
"#;

/// Random calls of two lanes over a backlog of the third, every call of its own key so that only lanes matter.
struct ThreeLanes {
    plan: Setup,
    interactive: RuleId,
    normal: RuleId,
    bulk: RuleId,
    log: Log,
}

impl ThreeLanes {
    fn run(seed: u64, interactive_rate: u64, normal_rate: u64, backlog: u64, secs: u64) -> Self {
        let plan = plan(THREE_LANES);
        let [interactive, normal, bulk] = ["interactive", "normal", "bulk"].map(|name| rule(&plan, name));
        let mut rng = Rng::new(seed);
        let mut calls: Vec<Call> = (0..backlog).map(|key| call(Instant::ZERO, bulk, key)).collect();
        for (rule, rate) in [(interactive, interactive_rate), (normal, normal_rate)] {
            for at in rng.poisson(rate * secs, Nanos::from_secs(secs)) {
                calls.push(call(at, rule, calls.len() as u64));
            }
        }
        let log = run(&plan, calls, Instant::ZERO.saturating_add(Nanos::from_secs(secs)), prompt);
        Self { plan, interactive, normal, bulk, log }
    }

    fn started(&self, rule: RuleId) -> u64 {
        self.log.mean_wait(rule).0
    }

    /// The most starts in a row that went past the backlog, which is ready all the time.
    fn longest_bypass(&self) -> u64 {
        let (mut longest, mut current) = (0, 0);
        for (call, _) in self.log.starts() {
            current = if call.rule == self.bulk { 0 } else { current + 1 };
            longest = longest.max(current);
        }
        longest
    }
}

/// Interactive 5/s and normal 15/s over a bulk backlog that takes the rest of 30/1s. The means are those of a server with
/// priorities that never interrupts (Cobham): one start takes d = T/N, bulk keeps it always busy. That server owes bulk
/// nothing; what bulk is promised here costs normal some 1.5 %.
pub(crate) fn lanes_in_balance() -> Vec<Measure> {
    const NAME: &str = "three lanes in balance, 4 runs of 6,000 s";
    const RUNS: u64 = 4;
    let runs: Vec<_> = (1..=RUNS).map(|seed| ThreeLanes::run(seed, 5, 15, 61_000, 6_000)).collect();
    let slot = Nanos::from_secs(1).div_ceil(30).get();
    let second = Nanos::from_secs(1).get();
    // With rho = rate * slot / second: (slot / 2) / (1 - rho_1), and that over (1 - rho_1 - rho_2).
    let interactive = slot / 2 * second / (second - 5 * slot);
    let normal = interactive * second / (second - 20 * slot);
    let mean = |what, rule: fn(&ThreeLanes) -> RuleId, optimum: u64| {
        let sum: u64 = runs.iter().map(|lanes| lanes.log.mean_wait(rule(lanes)).1.get()).sum();
        let time = |nanos| Value::Time(Nanos::new(nanos));
        Measure::exactly(NAME, what, time(sum / RUNS), time(optimum))
            .within(time(optimum * 97 / 100), time(optimum * 103 / 100))
    };
    let started: usize = runs.iter().map(|lanes| lanes.log.order.len()).sum();
    vec![
        mean("mean wait, interactive", |lanes| lanes.interactive, interactive),
        mean("mean wait, normal", |lanes| lanes.normal, normal),
        Measure::exactly(NAME, "started in all", Value::Count(started as u64), Value::Count(RUNS * 180_000))
            .within(Value::Count(RUNS * 179_970), Value::Count(RUNS * 180_030)),
    ]
}

/// Interactive 45/s alone is more than 30/1s allows; normal and bulk still get what their shares promise.
pub(crate) fn lanes_overloaded() -> Vec<Measure> {
    const NAME: &str = "three lanes, interactive 45/s, 600 s";
    let lanes = ThreeLanes::run(5, 45, 15, 18_000, 600);
    let total = lanes.log.order.len() as u64;
    let [normal, bulk] = [1, 2].map(|lane| lanes.plan.lanes[lane].bypass.map_or(0, u64::from));
    let others = lanes.plan.lanes.len() as u64 - 1;
    // One start after every K others, and never fewer than one in K + L. A little more, since at first nobody is late.
    let share = |what, rule, bypass| {
        let (part, whole) = (lanes.started(rule), bypass + 1);
        Measure::exactly(NAME, what, Value::share(part, total), Value::share(1, whole))
            .within(Value::share(1, whole + others), Value::share(102, 100 * whole))
    };
    let longest = Value::Count(bulk + others);
    vec![
        Measure::exactly(NAME, "started in all", Value::Count(total), Value::Count(18_000))
            .within(Value::Count(17_970), Value::Count(18_030)),
        share("share of normal", lanes.normal, normal),
        share("share of bulk", lanes.bulk, bulk),
        Measure::exactly(NAME, "starts in a row past bulk", Value::Count(lanes.longest_bypass()), longest)
            .within(Value::Count(0), longest),
    ]
}

/// 200 urgent calls to one chat that takes one in a second, and a broadcast with a message to the same chat. The
/// rest of it goes to other chats, so that its lane is served all the time and never overdue: after K urgent calls went
/// past the message, the chat's next turn is owed to it.
pub(crate) fn busy_chat() -> Vec<Measure> {
    const NAME: &str = "one chat at 1/1s with 200 urgent waiting, broadcast to 600 chats";
    const BUSY: u64 = 0;
    let plan = plan(
        r#"
        overall = "30/1s"
        per_key = "1/1s"
        [rules]
        interactive = {}
        broadcast = { priority = 2 }
        "#,
    );
    let [interactive, broadcast] = ["interactive", "broadcast"].map(|name| rule(&plan, name));
    let mut calls: Vec<Call> = (0..200).map(|_| call(Instant::ZERO, interactive, BUSY)).collect();
    let message = Instant::from_millis(500);
    calls.push(call(message, broadcast, BUSY));
    calls.extend((1..600).map(|chat| call(Instant::from_millis(100 * chat), broadcast, chat)));
    let log = run(&plan, calls, Instant::NEVER, prompt);
    let bypass = plan.lanes[1].bypass.map_or(0, u64::from);
    let turn = log
        .starts()
        .filter(|&(call, at)| call.key == BUSY && at > message)
        .position(|(call, _)| call.rule == broadcast)
        .map_or(u64::MAX, |before| before as u64 + 1);
    let bound = bypass.max(1) + 1;
    let last = log.starts().filter(|(call, _)| call.key == BUSY).last().map_or(Instant::NEVER, |(_, at)| at);
    vec![
        Measure::exactly(NAME, "turn of the message to the busy chat", Value::Count(turn), Value::Count(bound))
            .within(Value::Count(0), Value::Count(bound)),
        Measure::exactly(NAME, "last start in the busy chat", Value::Time(last.since(Instant::ZERO)), Value::secs(200)),
        Measure::exactly(NAME, "started", Value::Count(log.order.len() as u64), Value::Count(800)),
    ]
}
