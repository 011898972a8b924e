//! What calls of a more urgent rule wait while a broadcast goes out.

use std::fmt::{self, Write};

use request_balancer::engine::LimitKind;
use request_balancer::sim::Value;
use request_balancer::{CheckedRule, Nanos, Rules};
use serde_json::{Value as Json, json};

use crate::plan::{Alone, Broadcast, measured, text_of};

/// Fewer single calls in one run say little.
const FEW: u64 = 20;
/// So many do.
const MANY: u64 = 10_000;
/// So many calls are made in all where a run has room for few of those that are asked about.
const CALLS: u64 = 1_000_000;

/// What calls of a rule wait, of whom each stands alone in line: they never wait for each other.
pub(crate) struct Waits<'r> {
    rule: &'r str,
    answer: Answer,
}

enum Answer {
    /// The rule is paused.
    Paused,
    /// So many of so many never started.
    Never(u64, u64),
    /// Of those who do.
    These { mean: Nanos, p99: Nanos, max: Nanos },
}

/// When somebody calls.
struct Calls {
    /// How many, the first of them after `start`.
    count: u64,
    every: Nanos,
    start: Nanos,
}

/// What calls of a rule wait meanwhile.
pub(crate) fn waits<'r>(
    rules: &Rules,
    broadcast: &Broadcast<'_>,
    alone: &Alone,
    rule: &'r CheckedRule,
) -> Result<Waits<'r>, String> {
    let (name, lasts) = (rule.name(), alone.last.map_or(0, Value::number));
    if rule.paused() {
        return Ok(Waits { rule: name, answer: Answer::Paused });
    }
    let every = apart(rules, rule);
    let fit = lasts / every.get();
    if fit >= FEW {
        let calls = Calls { count: fit.min(MANY), every, start: Nanos::ZERO };
        let [started, mean, p99, max] = calls.run(rules, broadcast, name)?;
        let answer = if started < calls.count {
            Answer::Never(calls.count - started, calls.count)
        } else {
            Answer::These { mean: Nanos::new(mean), p99: Nanos::new(p99), max: Nanos::new(max) }
        };
        return Ok(Waits { rule: name, answer });
    }
    // As many runs with a call each, at instants that share no rhythm with what is asked about.
    let runs = (CALLS / u64::from(broadcast.keys)).clamp(1, FEW);
    let mut of_runs = Vec::new();
    let mut never = 0;
    for run in 0..runs {
        let start = Nanos::new(golden_part(lasts, run));
        match (Calls { count: 1, every, start }).run(rules, broadcast, name)? {
            [0, ..] => never += 1,
            [_, wait, ..] => of_runs.push(wait),
        }
    }
    of_runs.sort_unstable();
    let answer = match of_runs.last() {
        Some(&max) if never == 0 => {
            let rank = (of_runs.len() * 99).div_ceil(100) - 1;
            let mean = of_runs.iter().sum::<u64>() / runs;
            Answer::These { mean: Nanos::new(mean), p99: Nanos::new(of_runs[rank]), max: Nanos::new(max) }
        }
        Some(_) | None => Answer::Never(never, runs),
    };
    Ok(Waits { rule: name, answer })
}

/// How far apart they are: so far that none uses up another one's room. Keys of their own are no matter.
fn apart(rules: &Rules, rule: &CheckedRule) -> Nanos {
    const LEAST: Nanos = Nanos::from_secs(7);
    // Nobody else's rhythm.
    const ODD: Nanos = Nanos::new(13_577_113);
    const DAY: Nanos = Nanos::from_secs(86_400);
    let plan = rules.plan();
    let of_rule = plan.rules.iter().filter(|known| *known.name == *rule.name()).flat_map(|known| &known.shared);
    let lengths = of_rule.map(|bound| match plan.shared_limits[bound.limit].kind {
        LimitKind::Window { period, .. } => period,
        LimitKind::Spaced { interval, .. } | LimitKind::Bucket { interval, .. } => interval,
        LimitKind::Calendar { .. } => DAY,
    });
    let slowest = lengths.max().unwrap_or(Nanos::ZERO);
    slowest.saturating_add(slowest).max(LEAST).saturating_add(ODD)
}

/// A part of a length of time: those of many numbers are spread evenly over all of it.
fn golden_part(all: u64, number: u64) -> u64 {
    const PART: u128 = 618_033_988_749_894_848;
    const OF: u128 = 1_000_000_000_000_000_000;
    let part = (u128::from(number) * PART) % OF;
    u64::try_from(u128::from(all) * part / OF).unwrap_or_default()
}

impl Calls {
    /// How many started, and what they waited: mean, 99th percentile, maximum.
    fn run(&self, rules: &Rules, broadcast: &Broadcast<'_>, rule: &str) -> Result<[u64; 4], String> {
        let Self { count, every, start } = self;
        let (rule, every, start) = (text_of(rule), every.get(), start.get());
        let takes = broadcast.each.takes.get();
        let mut text = format!(
            "{}[[traffic]]\nname = 'urgent'\nrule = {rule}\nkeys = 'own'\narrivals = 'even'\nrate = '1/{every}ns'\n\
             calls = {count}\nstart = '{start}ns'\ntakes = '{takes}ns'\n\
             [[show]]\nmetric = 'started'\nof = 'urgent'\n",
            broadcast.traffic(rules)
        );
        for stat in ["mean", "p99", "max"] {
            // It writes into a string.
            let _ = write!(text, "[[show]]\nmetric = 'wait'\nstat = '{stat}'\nof = 'urgent'\n");
        }
        let measures = measured(rules, &text)?;
        let value =
            |position: usize| measures.get(position).and_then(|measure| measure.measured).map_or(0, Value::number);
        Ok([0, 1, 2, 3].map(value))
    }
}

impl Waits<'_> {
    pub(crate) fn as_json(&self) -> Json {
        let seconds = |span: &Nanos| Value::Time(*span).as_f64();
        let rule = self.rule;
        match &self.answer {
            Answer::Paused => json!({ "rule": rule, "paused": true }),
            Answer::Never(never, of) => json!({ "rule": rule, "calls": of, "never_started": never }),
            Answer::These { mean, p99, max } => {
                json!({ "rule": rule, "mean": seconds(mean), "p99": seconds(p99), "max": seconds(max) })
            }
        }
    }
}

impl fmt::Display for Waits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = self.rule;
        match self.answer {
            Answer::Paused => write!(f, "{rule} is paused: none of its calls starts"),
            Answer::Never(never, of) => write!(f, "of {of} calls of {rule} meanwhile {never} never start"),
            Answer::These { mean, p99, max } => {
                let [mean, p99, max] = [mean, p99, max].map(Value::Time);
                write!(f, "a call of {rule} waits {mean} meanwhile; 99 % up to {p99}, at most {max}")
            }
        }
    }
}
