//! A checked scenario and its runs.

use std::path::Path;
use std::str::FromStr;

use super::measure::{Measure, Value};
use super::metric::{Combine, Run};
use super::policy::Policy;
use super::read;
use super::record::Record;
use super::setup::{Arrivals, Setup};
use super::world::{self, Log, Progress};
use crate::rules::{Finding, FindingCode, Findings};

/// A checked scenario: rules, who calls when, what the network and the server do, and what is to be measured.
///
/// What a file says, and what each metric means, is in the documentation of [this module](super).
///
/// ```
/// use request_balancer::sim::{Policy, Scenario};
///
/// let scenario: Scenario = r#"
///     title = "one key, 1,000 waiting"
///     rules = "[rules]\ngroup = '20/60s'"
///     [[traffic]]
///     calls = 1_000
///     [[show]]
///     metric = "last-start"
///     optimum = "2940s"
///     exact = true
/// "#
/// .parse()?;
/// let measures = scenario.run(Policy::Balancer);
/// assert_eq!(measures[0].measured.map(|value| value.to_string()).as_deref(), Some("2940.000 s"));
/// assert_eq!((measures[0].ratio(), measures[0].met()), (Some(1_000), Some(true)));
///
/// // Even spacing fills no window at once: here the last of the first 20 starts 57 s later.
/// let others = scenario.run(Policy::SmartRequestBalancer);
/// assert_eq!(others[0].measured.map(|value| value.to_string()).as_deref(), Some("2997.000 s"));
/// assert_eq!(others[0].met(), Some(false));
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scenario {
    title: String,
    setups: Vec<Setup>,
    policies: Vec<Policy>,
}

impl Scenario {
    /// Reads a scenario file. Files that it names are looked for in its folder.
    ///
    /// # Errors
    ///
    /// All findings at once, if one of them is an error; one with the code `unreadable-file` if there is no such file or
    /// it is not UTF-8 text.
    ///
    /// ```
    /// use request_balancer::sim::Scenario;
    ///
    /// let scenario = Scenario::from_file("examples/scenarios/hog-and-mice.toml")?;
    /// assert_eq!(scenario.title(), "hog of 1,000 and 100 single calls, 30/1s");
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Findings> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| {
            Finding::new(FindingCode::UnreadableFile, error.to_string(), "a readable file of UTF-8 text").into()
        });
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        let scenario = text.and_then(|text| read::scenario(&text, folder));
        scenario.map_err(|findings: Findings| findings.in_file(path.display().to_string()))
    }

    pub(super) const fn new(title: String, setups: Vec<Setup>, policies: Vec<Policy>) -> Self {
        Self { title, setups, policies }
    }

    /// What it is called in reports.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The policies that it is meant for: those that the file names, or all.
    #[must_use]
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Runs it under a policy, all variants one after the other, and measures what it shows.
    #[must_use]
    pub fn run(&self, policy: Policy) -> Vec<Measure> {
        self.run_with(policy, |_| {})
    }

    /// As [`run`](Self::run), and tells now and then how far it is.
    #[must_use]
    pub fn run_with(&self, policy: Policy, mut progress: impl FnMut(Progress)) -> Vec<Measure> {
        self.setups.iter().flat_map(|setup| measure(setup, policy, &mut progress)).collect()
    }

    /// The same with other seeds than those of the file: one run for each.
    ///
    /// ```
    /// use request_balancer::sim::{Policy, Scenario};
    ///
    /// let scenario = Scenario::from_file("examples/scenarios/sparse.toml")?.with_seeds([7]);
    /// assert_eq!(scenario.run(Policy::Balancer)[0].met(), Some(true));
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    #[must_use]
    pub fn with_seeds(mut self, seeds: impl IntoIterator<Item = u64>) -> Self {
        let seeds: Vec<u64> = seeds.into_iter().collect();
        for setup in &mut self.setups {
            setup.seeds.clone_from(&seeds);
        }
        self
    }

    /// Its first variant with its first seed, start by start: for [`verify`](crate::verify()), or for charts.
    ///
    /// ```
    /// use request_balancer::sim::{Policy, Scenario};
    /// use std::time::Duration;
    ///
    /// let scenario = Scenario::from_file("examples/scenarios/one-key.toml")?;
    /// let record = scenario.record(Policy::Balancer);
    /// let started = &record.starts()[20];
    /// assert_eq!((record.starts().len(), started.start.at), (1_000, Duration::from_secs(60)));
    /// assert_eq!(started.waited, Some(Duration::from_secs(60)));
    /// # Ok::<(), request_balancer::Findings>(())
    /// ```
    #[must_use]
    pub fn record(&self, policy: Policy) -> Record {
        self.record_with(policy, |_| {})
    }

    /// As [`record`](Self::record), and tells now and then how far it is.
    #[must_use]
    pub fn record_with(&self, policy: Policy, mut progress: impl FnMut(Progress)) -> Record {
        // A scenario has at least one variant.
        let setup = &self.setups[0];
        let log = world::run(setup, setup.seeds.first().copied().unwrap_or(1), policy, &mut progress);
        Record::new(setup, policy, &log)
    }
}

impl FromStr for Scenario {
    type Err = Findings;

    /// Reads the text of a scenario. Files that it names are looked for in the working directory.
    fn from_str(text: &str) -> Result<Self, Findings> {
        read::scenario(text, Path::new(""))
    }
}

fn measure(setup: &Setup, policy: Policy, progress: &mut dyn FnMut(Progress)) -> Vec<Measure> {
    let mut numbers: Vec<Vec<Option<Value>>> = vec![Vec::new(); setup.shows.len()];
    for &seed in &setup.seeds {
        let log = world::run(setup, seed, policy, progress);
        let again = |of| without_below(setup, seed, policy, of);
        let run = Run::new(setup, &log, &again);
        for (show, numbers) in setup.shows.iter().zip(&mut numbers) {
            numbers.push(show.metric.of(&run));
        }
    }
    let shown = setup.shows.iter().zip(numbers);
    let measures = shown.map(|(show, numbers)| Measure {
        scenario: setup.title.clone(),
        policy,
        metric: show.what.clone(),
        measured: combined(show.metric.combine(), numbers),
        optimum: show.optimum,
        aim: show.metric.aim(),
        bound: show.bound,
    });
    measures.collect()
}

/// The scenario again, without those who are less urgent than some traffic.
fn without_below(setup: &Setup, seed: u64, policy: Policy, of: u16) -> (Setup, Log) {
    let plan = setup.rules.plan();
    let mut setup = setup.clone();
    let lane = |index: usize, setup: &Setup| plan.rules[usize::from(setup.traffic[index].rule.0)].lane;
    let own = lane(usize::from(of), &setup);
    for index in 0..setup.traffic.len() {
        if lane(index, &setup) > own {
            setup.traffic[index].arrivals = Arrivals::Backlog { calls: 0 };
        }
    }
    let log = world::run(&setup, seed, policy, &mut |_| {});
    (setup, log)
}

/// One number from those of several runs; none if one of them has none.
fn combined(how: Combine, numbers: Vec<Option<Value>>) -> Option<Value> {
    let numbers: Vec<Value> = numbers.into_iter().collect::<Option<_>>()?;
    let first = *numbers.first()?;
    let sum = || numbers.iter().map(|value| u128::from(value.number())).sum::<u128>();
    let whole = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    Some(match how {
        Combine::Sum => first.with_number(whole(sum())),
        Combine::Mean => first.with_number(whole(sum() / numbers.len() as u128)),
        Combine::Largest => numbers.into_iter().max()?,
        Combine::Smallest => numbers.into_iter().min()?,
    })
}
