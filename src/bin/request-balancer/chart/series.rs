//! A run as lines of points.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use request_balancer::sim::Record;

use super::theme::SERIES;

/// How many stretches of time are told apart.
const COLUMNS: u32 = 150;

/// One line of a panel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Whether all keys are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShownKeys {
    All,
    ByRank,
}

/// The axis of time: whole stretches that all starts are in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    /// Of whole seconds: in less than one a full window would look like a rate.
    stretch: Duration,
    stretches: u32,
    /// A unit, and how many seconds it has.
    unit: (&'static str, f64),
}

impl Time {
    pub(super) fn of(record: &Record) -> Self {
        let stretch = Duration::from_secs(record.end.as_secs().div_ceil(COLUMNS.into()).max(1));
        let nanos = stretch.as_nanos();
        let last = record.starts().last().map_or(Duration::ZERO, |started| started.start.at);
        let stretches = record.end.as_nanos().div_ceil(nanos).max(last.as_nanos() / nanos + 1);
        let unit = match record.end.as_secs() {
            0..600 => ("s", 1.0),
            600..14_400 => ("min", 60.0),
            _ => ("h", 3_600.0),
        };
        Self { stretch, stretches: u32::try_from(stretches).unwrap_or(COLUMNS), unit }
    }

    pub(super) fn end(self) -> f64 {
        self.shown(self.stretch * self.stretches)
    }

    pub(super) fn describe(self) -> String {
        format!("time in {}", self.unit.0)
    }

    /// An instant in the unit of the axis.
    fn shown(self, at: Duration) -> f64 {
        at.as_secs_f64() / self.unit.1
    }
}

/// How many keys started something.
pub(super) fn keys(record: &Record) -> usize {
    let keys: std::collections::BTreeSet<&str> = record.starts().iter().map(|started| &*started.start.key).collect();
    keys.len()
}

/// Lanes that are drawn as one line, and what it is called.
struct Group {
    lanes: Range<usize>,
    name: String,
}

/// Each lane by itself; of more than can be told apart the lowest ones together.
fn groups(record: &Record) -> Vec<Group> {
    const MOST: usize = SERIES.len();
    let lanes = record.lanes.len();
    let single = if lanes > MOST { MOST - 1 } else { lanes };
    let groups = (0..single).map(|lane| Group { lanes: lane..lane + 1, name: lane_name(record, lane) });
    let rest = (single < lanes).then(|| {
        let (first, last) = (&record.lanes[single], &record.lanes[lanes - 1]);
        Group { lanes: single..lanes, name: format!("lanes {first} to {last} together") }
    });
    groups.chain(rest).collect()
}

/// Starts of each lane in a second.
pub(super) fn starts(record: &Record) -> Vec<Line> {
    let time = Time::of(record);
    let groups = groups(record);
    let group = |lane: usize| lane.min(groups.len() - 1);
    let mut counts = vec![vec![0_u32; time.stretches as usize]; groups.len()];
    for started in record.starts() {
        let stretch = started.start.at.as_nanos() / time.stretch.as_nanos();
        counts[group(started.lane)][(stretch as usize).min(time.stretches as usize - 1)] += 1;
    }
    let lines = counts.into_iter().zip(&groups).map(|(counts, group)| {
        let points = (0_u32..).zip(counts).flat_map(|(stretch, count)| {
            let rate = f64::from(count) / time.stretch.as_secs_f64();
            [stretch, stretch + 1].map(|edge| (time.shown(time.stretch * edge), rate))
        });
        Line { name: group.name.clone(), points: points.collect() }
    });
    lines.collect()
}

/// Which part of the calls of each lane had waited for how long when they first started: powers of ten of milliseconds, and
/// per cent.
pub(super) fn waits(record: &Record) -> Vec<Line> {
    let lines = groups(record).into_iter().map(|group| {
        let of_group = record.starts().iter().filter(|started| group.lanes.contains(&started.lane));
        (group.name, of_group.filter_map(|started| started.waited).collect())
    });
    let lines = lines.filter(|(_, waits): &(String, Vec<Duration>)| !waits.is_empty());
    let line = |(name, mut waits): (String, Vec<Duration>)| {
        waits.sort_unstable();
        let rank = |tenths: usize| (waits.len() * tenths).div_ceil(1_000).clamp(1, waits.len()) - 1;
        let point = |tenths: usize| (power(waits[rank(tenths)]), tenths as f64 / 10.0);
        let mut points: Vec<_> = (0..=1_000).step_by(5).map(point).collect();
        // Those who do not wait are all at the left edge.
        points.dedup_by(|later, earlier| {
            later.0 == earlier.0 && later.0 == 0.0 && {
                earlier.1 = later.1;
                true
            }
        });
        points.insert(0, (points[0].0, 0.0));
        Line { name, points }
    };
    lines.map(line).collect()
}

/// Which power of ten of milliseconds a wait is; whatever is shorter than one is shown as one.
fn power(wait: Duration) -> f64 {
    (wait.as_secs_f64() * 1_000.0).max(1.0).log10()
}

pub(super) fn power_of_ten(power: f64) -> String {
    let millis = 10_f64.powf(power);
    match millis {
        ..1_000.0 => format!("{millis:.0} ms"),
        _ => format!("{} s", grouped((millis / 1_000.0).round() as u64)),
    }
}

/// A whole number with a comma before each three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What keys got so far: of each, or of some from the first rank to the last.
pub(super) fn services(record: &Record) -> (Vec<Line>, ShownKeys) {
    const MOST: usize = 6;
    let time = Time::of(record);
    let mut served: BTreeMap<&str, u64> = BTreeMap::new();
    for started in record.starts() {
        *served.entry(&started.start.key).or_default() += u64::from(started.start.cost.max(1));
    }
    let mut ranks: Vec<(&str, u64)> = served.into_iter().collect();
    ranks.sort_by_key(|&(key, served)| (std::cmp::Reverse(served), key.len(), key));
    let shown_keys = if ranks.len() > MOST { ShownKeys::ByRank } else { ShownKeys::All };
    let last = ranks.len().saturating_sub(1);
    let shown: Vec<usize> = match shown_keys {
        ShownKeys::All => (0..ranks.len()).collect(),
        // Each rank is so many times the one before.
        ShownKeys::ByRank => {
            let factor = (last as f64 + 1.0).powf(1.0 / (MOST - 1) as f64);
            (0..MOST).map(|place| (factor.powi(place as i32).round() as usize).clamp(1, last + 1) - 1).collect()
        }
    };
    let seats: BTreeMap<&str, usize> = (0..).zip(&shown).map(|(seat, &rank)| (ranks[rank].0, seat)).collect();
    // What each of them got up to an edge between two columns.
    let all = time.stretch * time.stretches;
    let edge = |edge: u32| time.shown(all.mul_f64(f64::from(edge) / f64::from(COLUMNS)));
    let mut got = vec![vec![0_u64; COLUMNS as usize + 1]; shown.len()];
    for started in record.starts() {
        if let Some(&seat) = seats.get(&*started.start.key) {
            let edge = started.start.at.as_nanos() * u128::from(COLUMNS) / all.as_nanos() + 1;
            got[seat][(edge as usize).min(COLUMNS as usize)] += u64::from(started.start.cost.max(1));
        }
    }
    let lines = shown.into_iter().zip(got).map(|(rank, got)| {
        let (key, all) = ranks[rank];
        let name = match shown_keys {
            ShownKeys::All => format!("key {key}: {}", grouped(all)),
            ShownKeys::ByRank => format!("{}. key {key}: {}", grouped(rank as u64 + 1), grouped(all)),
        };
        let sums = got.into_iter().scan(0, |sum, got| {
            *sum += got;
            Some(*sum)
        });
        let points = (0_u32..).zip(sums).map(|(at, sum)| (edge(at), sum as f64));
        Line { name, points: points.collect() }
    });
    (lines.collect(), shown_keys)
}

/// How full each window and cap was at most, in per cent.
pub(super) fn fills(record: &Record) -> Vec<Line> {
    let time = Time::of(record);
    let edge = |column: u32| time.shown(record.end.mul_f64(f64::from(column) / f64::from(COLUMNS)));
    let fills = record.fills(COLUMNS as usize).into_iter().map(|fill| {
        let whose = if fill.each_key { ", the fullest key" } else { "" };
        let per_cent = |most: u64| most as f64 * 100.0 / f64::from(fill.allowed.max(1));
        let steps = (0_u32..).zip(&fill.most);
        let points = steps.flat_map(|(column, &most)| [column, column + 1].map(|at| (edge(at), per_cent(most))));
        Line { name: format!("{} {}{whose}", fill.limit, fill.quota), points: points.collect() }
    });
    fills.collect()
}

/// A lane by its name and the rules in it.
fn lane_name(record: &Record, lane: usize) -> String {
    let plan = record.rules().plan();
    let rules = plan.rules.iter().filter(|rule| rule.lane == lane).map(|rule| &*rule.name);
    let rules: Vec<&str> = rules.collect();
    let named = match rules.len().saturating_sub(3) {
        0 => rules.join(", "),
        more => format!("{} and {more} more", rules[..3].join(", ")),
    };
    format!("lane {}: {named}", record.lanes[lane])
}

#[cfg(test)]
mod tests {
    use super::{ShownKeys, fills, keys, power_of_ten, services, starts, waits};
    use request_balancer::sim::{Policy, Scenario};

    fn record(rules: &str, traffic: &str) -> request_balancer::sim::Record {
        let text = format!("title = 't'\nrules = \"{rules}\"\n{traffic}\n[[show]]\nmetric = 'last-start'");
        text.parse::<Scenario>().unwrap_or_else(|findings| panic!("{findings}")).record(Policy::Balancer)
    }

    #[test]
    fn lines_tell_what_the_run_was() {
        // Ten starts in 9 s, one a second, the waits 0 s to 9 s.
        let record = record("overall = '1/1s'", "[[traffic]]\nkeys = 2\ncalls = 10");
        assert_eq!(keys(&record), 2);
        let [line] = &starts(&record)[..] else { panic!("one lane") };
        assert_eq!(line.name, "lane 1: default");
        assert_eq!(line.points.last(), Some(&(10.0, 1.0)));
        let area: f64 = line.points.chunks(2).map(|step| (step[1].0 - step[0].0) * step[0].1).sum();
        assert!((area - 10.0).abs() < 1e-6, "{area}");
        let [line] = &waits(&record)[..] else { panic!("one lane") };
        // A wait of none is shown as 1 ms, and 9 s are the longest.
        assert_eq!((line.points[0], line.points[1]), ((0.0, 0.0), (0.0, 10.0)));
        assert_eq!(line.points.last().map(|&(wait, share)| (wait, share)), Some((9_000_f64.log10(), 100.0)));
        let (lines, shown) = services(&record);
        assert_eq!((shown, lines[0].name.as_str(), lines[1].name.as_str()), (ShownKeys::All, "key 0: 5", "key 1: 5"));
        assert_eq!(lines[0].points.last(), Some(&(10.0, 5.0)));
        let [line] = &fills(&record)[..] else { panic!("one limit") };
        assert_eq!(line.name, "overall 1/1s");
        assert!(line.points.iter().all(|&(_, full)| full == 100.0));
    }

    #[test]
    fn of_many_keys_some_are_shown() {
        let record = record("overall = '100/1s'", "[[traffic]]\nkeys = 50\ncalls = 120");
        let (lines, shown) = services(&record);
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(shown, ShownKeys::ByRank);
        assert_eq!((names.len(), names[0], names[5]), (6, "1. key 0: 3", "50. key 49: 2"));
    }

    #[test]
    fn more_lanes_than_colours_share_the_last_one() {
        let rules: String = (1..=20).map(|lane| format!("r{lane} = {{ priority = {lane} }}\\n")).collect();
        let shares: String = (1..=20).map(|lane| format!("[lanes.{lane}]\\nshare = 0\\n")).collect();
        let traffic: String = (1..=20).map(|lane| format!("[[traffic]]\nrule = 'r{lane}'\ncalls = 2\n")).collect();
        let record = record(&format!("[rules]\\n{rules}{shares}"), &traffic);
        for lines in [starts(&record), waits(&record)] {
            let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
            let expected = ["lane 1: r1", "lane 2: r2", "lane 3: r3", "lane 4: r4", "lane 5: r5"];
            assert_eq!((&names[..5], names[5], names.len()), (&expected[..], "lanes 6 to 20 together", 6));
        }
        let all = |lines: &[super::Line]| lines.iter().map(|line| line.points[0].1).collect::<Vec<_>>();
        assert_eq!(all(&starts(&record)), [2.0, 2.0, 2.0, 2.0, 2.0, 30.0]);
    }

    #[test]
    fn powers_of_ten_have_units() {
        assert_eq!([0.0, 2.0, 3.0, 5.0].map(power_of_ten), ["1 ms", "100 ms", "1 s", "100 s"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(super::grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
