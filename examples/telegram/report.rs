//! What came of a run: a table to read, or one JSON object.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::Duration,
};

use serde::Serialize;

use crate::{
    api::Tally,
    delivery::Delivered,
    load::{MARGIN, Message, Rule},
};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sender {
    Balancer,
    HomeMade,
}

/// A finished run, as the client and the server saw it.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) sender: Sender,
    pub(crate) seed: u64,
    pub(crate) messages: Vec<Message>,
    pub(crate) delivered: Vec<Delivered>,
    pub(crate) failures: Vec<anyhow::Error>,
    /// The run was ended before everything was sent.
    pub(crate) cut: bool,
    pub(crate) took: Duration,
    pub(crate) optimum: Duration,
    pub(crate) tally: Tally,
}

#[derive(Serialize)]
struct Summary {
    sent: usize,
    failed: usize,
    cut: bool,
    refused_provoked: usize,
    refused_unprovoked: usize,
    seconds: f64,
    optimum_seconds: f64,
    lanes: BTreeMap<&'static str, Waits>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Waits {
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Report {
    /// What went wrong, if anything. The home-made way is not expected to be quick, nor to spare the server.
    pub(crate) fn complaint(&self) -> Option<String> {
        if let Some(first) = self.failures.first() {
            return Some(format!("{} messages failed, the first: {first:#}", self.failures.len()));
        }
        match self.sender {
            Sender::HomeMade => None,
            Sender::Balancer if self.cut => Some(format!("not done after {:.0} s", self.took.as_secs_f64())),
            Sender::Balancer if self.tally.provoked > 0 => {
                Some(format!("{} refusals provoked; jitter: {}", self.tally.provoked, self.jitter()))
            }
            Sender::Balancer => None,
        }
    }

    pub(crate) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let lanes = Rule::ALL.into_iter().filter_map(|rule| Some((rule.name(), Waits::of(self.waits(rule))?)));
        let summary = Summary {
            sent: self.delivered.len(),
            failed: self.failures.len(),
            cut: self.cut,
            refused_provoked: self.tally.provoked,
            refused_unprovoked: self.tally.unprovoked,
            seconds: thousandths(self.took.as_secs_f64()),
            optimum_seconds: thousandths(self.optimum.as_secs_f64()),
            lanes: lanes.collect(),
        };
        writeln!(out, "{}", serde_json::to_string(&summary)?)
    }

    pub(crate) fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        let how = match self.sender {
            Sender::Balancer => "through the balancer",
            Sender::HomeMade => "the home-made way",
        };
        writeln!(out, "{} messages, seed {}, {how}\n", self.messages.len(), self.seed)?;
        writeln!(out, "{:<12}{:>10}{:>12}{:>12}{:>12}", "rule", "messages", "p50 wait", "p99 wait", "max wait")?;
        for rule in Rule::ALL {
            let due = self.messages.iter().filter(|message| message.rule == rule).count();
            write!(out, "{:<12}{due:>10}", rule.name())?;
            match Waits::of(self.waits(rule)) {
                Some(Waits { p50_ms, p99_ms, max_ms }) => {
                    writeln!(out, "{:>12}{:>12}{:>12}", wait(p50_ms), wait(p99_ms), wait(max_ms))?;
                }
                None => writeln!(out, "{:>12}{:>12}{:>12}", "-", "-", "-")?,
            }
        }
        writeln!(out)?;

        let (sent, due) = (self.delivered.len(), self.messages.len());
        writeln!(out, "{:<22}{sent} of {due}", "sent")?;
        if !self.failures.is_empty() {
            writeln!(out, "{:<22}{}", "failed", self.failures.len())?;
        }
        writeln!(out, "{:<22}{}", "refusals provoked", self.tally.provoked)?;
        writeln!(out, "{:<22}{}", "refusals unprovoked", self.recovered())?;
        let (took, optimum) = (self.took.as_secs_f64(), self.optimum.as_secs_f64());
        if self.cut {
            writeln!(out, "{:<22}cut after {took:.1} s; the waits are of what was sent by then", "time")?;
        } else {
            let over = (took / optimum - 1.0) * 100.0;
            writeln!(out, "{:<22}{took:.1} s; optimum {optimum:.1} s ({over:+.0} %)", "time")?;
        }
        writeln!(out, "{:<22}{}", "jitter", self.jitter())
    }

    fn recovered(&self) -> String {
        match self.tally.unprovoked {
            0 => "0".to_owned(),
            n if self.delivered.len() == self.messages.len() => {
                format!("{n}, all recovered; each costs its message a second")
            }
            n => format!("{n}"),
        }
    }

    fn waits(&self, rule: Rule) -> Vec<Duration> {
        self.delivered.iter().filter(|delivered| delivered.rule == rule).map(|delivered| delivered.waited).collect()
    }

    /// By how much the way to the server differed between messages: what the margin has to cover.
    fn jitter(&self) -> String {
        let (mut shortest, mut longest) = (Duration::MAX, Duration::ZERO);
        for Delivered { sent, .. } in &self.delivered {
            if let Some(counted) = self.tally.counted.get(&sent.message_id) {
                let way = counted.saturating_duration_since(sent.started);
                (shortest, longest) = (shortest.min(way), longest.max(way));
            }
        }
        let jitter = longest.saturating_sub(shortest);
        let verdict = if jitter > MARGIN { "more than" } else { "within" };
        format!("{} ms, {verdict} the margin of {} ms", jitter.as_millis(), MARGIN.as_millis())
    }
}

impl Waits {
    fn of(mut waits: Vec<Duration>) -> Option<Self> {
        waits.sort_unstable();
        let last = waits.len().checked_sub(1)?;
        let nearest_rank = |percent: usize| (waits.len() * percent).div_ceil(100) - 1;
        let ms = |index: usize| thousandths(waits[index].as_secs_f64() * 1000.0);
        Some(Self { p50_ms: ms(nearest_rank(50)), p99_ms: ms(nearest_rank(99)), max_ms: ms(last) })
    }
}

fn thousandths(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

fn wait(ms: f64) -> String {
    if ms < 1000.0 { format!("{ms:.0} ms") } else { format!("{:.2} s", ms / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_waits_that_occurred() {
        let waits = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(Waits::of(waits), Some(Waits { p50_ms: 100.0, p99_ms: 198.0, max_ms: 200.0 }));
        let one = Waits { p50_ms: 7.0, p99_ms: 7.0, max_ms: 7.0 };
        assert_eq!(Waits::of(vec![Duration::from_millis(7)]), Some(one));
        assert_eq!(Waits::of(Vec::new()), None);
    }
}
