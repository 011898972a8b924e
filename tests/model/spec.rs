//! Rules as the model knows them: numbers of its own, and the text from which the crate reads them.

use std::fmt::{self, Write as _};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const DAY: u64 = 86_400_000 * MS;

/// A rules file in numbers. All times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) caps: Caps,
    pub(crate) margin: u64,
    pub(crate) response: bool,
    pub(crate) rules: Vec<Rule>,
    /// Named limits; their names are `n0`, `n1` and so on.
    pub(crate) limits: Vec<Caps>,
    pub(crate) lanes: Vec<Lane>,
    /// What keys have under a rule in place of its `per_key`: `[keys]`.
    pub(crate) own: Vec<((usize, u64), Vec<Quota>)>,
    /// Turns are measured in tokens.
    pub(crate) fair_by_tokens: bool,
    /// Not in the file: what a clock on the wall shows at the beginning, since 1970.
    pub(crate) wall: u64,
    /// Not in the file: how long a grant may be left unclaimed.
    pub(crate) lease: u64,
    /// Not in the file: the longest hold.
    pub(crate) max_hold: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) overall: Vec<Quota>,
    pub(crate) per_key: Vec<Quota>,
    pub(crate) concurrency: Option<u64>,
    pub(crate) key_concurrency: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) count: u64,
    pub(crate) period: u64,
    pub(crate) margin: Option<u64>,
    pub(crate) response: Option<bool>,
    pub(crate) shape: Shape,
    /// It counts tokens instead of requests.
    pub(crate) tokens: bool,
}

/// The kinds of quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Window,
    Smooth,
    /// A bucket that holds so many.
    Bucket(u64),
    /// From one midnight to the next; the period is a day.
    Day(Zone),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    Utc,
    Berlin,
}

impl Zone {
    /// How much later it is there than in UTC, in a winter.
    pub(crate) const fn ahead(self) -> u64 {
        match self {
            Self::Utc => 0,
            Self::Berlin => 3_600_000 * MS,
        }
    }
}

/// What a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) requests: u64,
    pub(crate) tokens: u64,
}

impl Cost {
    pub(crate) const ONE: Self = Self { requests: 1, tokens: 0 };

    /// It is one request and nothing else.
    pub(crate) fn is_plain(self) -> bool {
        self == Self::ONE
    }

    /// What the two give in each thing that is counted.
    pub(crate) fn and(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self { requests: each(self.requests, other.requests), tokens: each(self.tokens, other.tokens) }
    }
}

/// A rule; its name is `r` and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) caps: Caps,
    /// Position of its lane.
    pub(crate) lane: usize,
    pub(crate) weight: u64,
    pub(crate) under_overall: bool,
    pub(crate) under_per_key: bool,
    pub(crate) under: Vec<usize>,
    pub(crate) ordered: bool,
    pub(crate) queue: Option<u64>,
    pub(crate) drop_oldest: bool,
    pub(crate) paused: bool,
}

/// A lane; its priority is its position and one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    /// One grant in so many; zero is strict.
    pub(crate) share: u64,
    /// `None`: the default.
    pub(crate) pace: Option<Pace>,
    pub(crate) overall: Vec<Quota>,
    pub(crate) concurrency: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Off,
    UpTo(u64),
}

impl Lane {
    /// Windows up to this long are paced.
    pub(crate) const fn horizon(&self) -> Option<u64> {
        match self.pace {
            None => Some(60_000 * MS),
            Some(Pace::UpTo(horizon)) => Some(horizon),
            Some(Pace::Off) => None,
        }
    }

    /// How many grants may go past it before it is overdue.
    pub(crate) fn allowance(&self, lanes: usize) -> Option<u64> {
        (self.share > 0).then(|| self.share.saturating_sub(lanes as u64).max(1))
    }
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            caps: Caps::default(),
            lane: 0,
            weight: 1,
            under_overall: true,
            under_per_key: true,
            under: Vec::new(),
            ordered: false,
            queue: None,
            drop_oldest: false,
            paused: false,
        }
    }
}

impl Default for Lane {
    fn default() -> Self {
        Self { share: 20, pace: None, overall: Vec::new(), concurrency: None }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = if self.tokens { " tokens" } else { "" };
        match self.shape {
            Shape::Day(Zone::Utc) => return write!(f, "'{}/day UTC{tokens}'", self.count),
            Shape::Day(Zone::Berlin) => return write!(f, "'{}/day Europe/Berlin{tokens}'", self.count),
            Shape::Window | Shape::Smooth | Shape::Bucket(_) => {}
        }
        if self.margin.is_none() && self.response.is_none() {
            let shape = match self.shape {
                Shape::Smooth => " smooth".to_owned(),
                Shape::Bucket(burst) => format!(" burst {burst}"),
                Shape::Window | Shape::Day(_) => String::new(),
            };
            return write!(f, "'{}/{}ns{tokens}{shape}'", self.count, self.period);
        }
        write!(f, "{{ count = {}, per = '{}ns'", self.count, self.period)?;
        if let Some(margin) = self.margin {
            write!(f, ", margin = '{margin}ns'")?;
        }
        if let Some(response) = self.response {
            write!(f, ", count_from = '{}'", if response { "response" } else { "start" })?;
        }
        if self.tokens {
            f.write_str(", unit = 'tokens'")?;
        }
        if self.shape == Shape::Smooth {
            f.write_str(", kind = 'smooth'")?;
        }
        f.write_str(" }")
    }
}

fn quotas(text: &mut String, name: &str, quotas: &[Quota]) {
    match quotas {
        [] => {}
        [only] => writeln!(text, "{name} = {only}").expect("text"),
        more => {
            let list: Vec<String> = more.iter().map(Quota::to_string).collect();
            writeln!(text, "{name} = [{}]", list.join(", ")).expect("text");
        }
    }
}

fn number(text: &mut String, name: &str, number: Option<u64>) {
    if let Some(number) = number {
        writeln!(text, "{name} = {number}").expect("text");
    }
}

impl Caps {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn write(&self, text: &mut String) {
        quotas(text, "overall", &self.overall);
        quotas(text, "per_key", &self.per_key);
        number(text, "concurrency", self.concurrency);
        number(text, "key_concurrency", self.key_concurrency);
    }
}

impl Spec {
    /// All quotas that stand anywhere.
    pub(crate) fn quotas(&self) -> impl Iterator<Item = &Quota> {
        let caps = std::iter::once(&self.caps).chain(&self.limits).chain(self.rules.iter().map(|rule| &rule.caps));
        let lanes = self.lanes.iter().flat_map(|lane| &lane.overall);
        let own = self.own.iter().flat_map(|(_, quotas)| quotas);
        caps.flat_map(|caps| caps.overall.iter().chain(&caps.per_key)).chain(lanes).chain(own)
    }

    pub(crate) fn counts_tokens(&self) -> bool {
        self.fair_by_tokens || self.quotas().any(|quota| quota.tokens)
    }

    /// The quotas that a key has of its own under a rule.
    pub(crate) fn own(&self, rule: usize, key: u64) -> Option<&Vec<Quota>> {
        self.own.iter().find(|(of, _)| *of == (rule, key)).map(|(_, quotas)| quotas)
    }
}

impl fmt::Display for Spec {
    /// A rules file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        if self.margin > 0 {
            writeln!(text, "margin = '{}ns'", self.margin)?;
        }
        if self.response {
            writeln!(text, "count_from = 'response'")?;
        }
        if self.counts_tokens() {
            text.push_str("units = ['tokens']\n");
        }
        if self.fair_by_tokens {
            text.push_str("fair_by = 'tokens'\n");
        }
        self.caps.write(&mut text);
        for (number, rule) in self.rules.iter().enumerate() {
            rule.write(number, &mut text);
        }
        for (number, caps) in self.limits.iter().enumerate() {
            writeln!(text, "[limits.n{number}]")?;
            caps.write(&mut text);
        }
        for (position, lane) in self.lanes.iter().enumerate() {
            lane.write(position, &mut text);
        }
        if !self.own.is_empty() {
            text.push_str("[keys]\n");
        }
        for ((rule, key), own) in &self.own {
            quotas(&mut text, &format!("{key}.r{rule}"), own);
        }
        writeln!(text, "# lease {} ms, max_hold {} ms, wall {} ns", self.lease / MS, self.max_hold / MS, self.wall)?;
        f.write_str(&text)
    }
}

impl Rule {
    fn write(&self, position: usize, text: &mut String) {
        writeln!(text, "[rules.r{position}]").expect("text");
        self.caps.write(text);
        number(text, "priority", (self.lane > 0).then_some(self.lane as u64 + 1));
        number(text, "weight", (self.weight > 1).then_some(self.weight));
        if !self.under_overall || !self.under_per_key || !self.under.is_empty() {
            let mut names = Vec::new();
            names.extend(self.under_overall.then(|| "'overall'".to_owned()));
            names.extend(self.under_per_key.then(|| "'per_key'".to_owned()));
            names.extend(self.under.iter().map(|limit| format!("'n{limit}'")));
            writeln!(text, "under = [{}]", names.join(", ")).expect("text");
        }
        number(text, "queue", self.queue);
        for (name, on) in [("ordered", self.ordered), ("paused", self.paused)] {
            if on {
                writeln!(text, "{name} = true").expect("text");
            }
        }
        if self.drop_oldest {
            writeln!(text, "overflow = 'drop-oldest'").expect("text");
        }
    }
}

impl Lane {
    fn write(&self, position: usize, text: &mut String) {
        if *self == Self::default() {
            return;
        }
        writeln!(text, "[lanes.{}]", position + 1).expect("text");
        match self.share {
            0 => writeln!(text, "share = 0"),
            share => writeln!(text, "share = '1/{share}'"),
        }
        .expect("text");
        match self.pace {
            None => {}
            Some(Pace::Off) => writeln!(text, "pace = false").expect("text"),
            Some(Pace::UpTo(horizon)) => writeln!(text, "pace = '{horizon}ns'").expect("text"),
        }
        quotas(text, "overall", &self.overall);
        number(text, "concurrency", self.concurrency);
    }
}
