//! Random histories of full lines, attempts that take too long and answers of "slow down", against a slow model of them.
//!
//! There are no rates here: who starts when is judged in `random_histories`.

#[allow(dead_code, reason = "each test file uses its part")]
#[path = "harness/rng.rs"]
mod rng;

use std::collections::BTreeMap;

use request_balancer::Rules;
use request_balancer::engine::{
    Claim, Enter, Entry, Instant, KeyId, Nanos, RequestId, RuleId, Scheduler, Target, Turned,
};
use rng::Rng;

const KEYS: u64 = 4;

type Place = (u16, u64);

/// Where the model has a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Outside,
    InLine,
    Running { since: u64, longest: Option<u64> },
    Displaced,
    Gone,
}

struct Request {
    id: RequestId,
    place: Place,
    at: At,
    started: bool,
    /// Its place in its queue: the order in which they come into the line.
    number: usize,
}

/// The numbers of a history.
struct Numbers {
    in_all: usize,
    /// By rule: places in a queue, attempts of a key at a time, whether the oldest makes room.
    rules: Vec<(usize, usize, bool)>,
    budget: Option<(u64, u64)>,
}

/// The machine, its owner, who claims as soon as he is woken, and the model. `line` has those that stand in line, each
/// queue in its order.
struct History {
    machine: Scheduler<usize>,
    keys: BTreeMap<u64, KeyId>,
    numbers: Numbers,
    now: u64,
    requests: Vec<Request>,
    line: Vec<usize>,
    entered: usize,
    /// Lengths of rows and when their last answers came.
    rows: BTreeMap<(u8, u16, u64), (u32, u64)>,
    /// Retries left, times the whole of the share.
    left: u64,
}

impl History {
    fn new(random: &mut Rng) -> Self {
        let numbers = Numbers {
            in_all: 1 + random.below(6) as usize,
            rules: (0..2)
                .map(|_| (1 + random.below(3) as usize, 1 + random.below(2) as usize, random.below(2) == 0))
                .collect(),
            budget: (random.below(2) == 0).then(|| (1, 2 + random.below(9))),
        };
        let rules = numbers.rules.iter().enumerate().map(|(rule, (places, attempts, drops))| {
            let overflow = if *drops { "drop-oldest" } else { "reject" };
            format!("r{rule} = {{ queue = {places}, key_concurrency = {attempts}, overflow = '{overflow}' }}\n")
        });
        let rules: String = rules.collect();
        let budget = numbers.budget.map(|(part, of)| format!("[retry]\nbudget = '{part}/{of}'\n")).unwrap_or_default();
        let text = format!("queue = {}\n[rules]\n{rules}{budget}", numbers.in_all);
        let left = 10 * numbers.budget.map_or(0, |(_, of)| of);
        let rules: Rules = text.parse().unwrap_or_else(|findings| panic!("{findings}\nin\n{text}"));
        Self {
            machine: Scheduler::new(rules.plan()),
            keys: BTreeMap::new(),
            numbers,
            now: 0,
            requests: Vec::new(),
            line: Vec::new(),
            entered: 0,
            rows: BTreeMap::new(),
            left,
        }
    }

    fn instant(&self) -> Instant {
        Instant::from_millis(self.now)
    }

    fn key(&mut self, key: u64) -> KeyId {
        let now = self.instant();
        let Self { machine, keys, rows, .. } = self;
        let known = keys.get(&key).copied().filter(|id| machine.knows(*id));
        known.unwrap_or_else(|| {
            // Rows go with the record of their key.
            rows.retain(|(kind, _, of), _| *kind < 2 || *of != key);
            let id = machine.add_key(now, key);
            keys.insert(key, id);
            id
        })
    }

    fn in_queue(&self, place: Place) -> usize {
        self.line.iter().filter(|number| self.requests[**number].place == place).count()
    }

    fn running(&self, place: Place) -> usize {
        self.requests.iter().filter(|other| other.place == place && matches!(other.at, At::Running { .. })).count()
    }

    fn first_outside(&self) -> Option<usize> {
        if self.line.len() >= self.numbers.in_all {
            return None;
        }
        let has_room = |place: Place| self.in_queue(place) < self.numbers.rules[usize::from(place.0)].0;
        self.requests.iter().position(|other| other.at == At::Outside && has_room(other.place))
    }

    fn first_to_start(&self) -> Option<usize> {
        let free = |place: Place| self.running(place) < self.numbers.rules[usize::from(place.0)].1;
        self.line.iter().copied().find(|number| free(self.requests[*number].place))
    }

    /// Whoever can go on does.
    fn model_settles(&mut self) {
        loop {
            if let Some(number) = self.first_to_start() {
                self.line.retain(|other| *other != number);
                self.model_starts(number);
            } else if let Some(number) = self.first_outside() {
                self.model_enters(number);
            } else {
                return;
            }
        }
    }

    fn model_enters(&mut self, number: usize) {
        self.requests[number].at = At::InLine;
        self.requests[number].number = self.entered;
        self.entered += 1;
        self.line.push(number);
    }

    fn model_starts(&mut self, number: usize) {
        self.requests[number].at = At::Running { since: self.now, longest: None };
        self.requests[number].started = true;
        if let Some((part, of)) = self.numbers.budget {
            self.left = (self.left + part).min((10 * of).max(1_000 * part));
        }
    }

    /// A newcomer: with `submit`, it is put in line and does not start in the same call; with `patient`, it may wait.
    fn comes(&mut self, random: &mut Rng, submit: bool, patient: bool) {
        let place = (random.below(2) as u16, random.below(KEYS));
        let (places, attempts, drops) = self.numbers.rules[usize::from(place.0)];
        let (in_queue, in_all) = (self.in_queue(place), self.line.len());
        let nobody_before = self.requests.iter().all(|other| other.at != At::Outside || other.place != place);
        let is_free = in_queue == 0 && nobody_before && self.running(place) < attempts;
        let crowd = match () {
            () if in_queue >= places => Some(in_queue),
            () if in_all >= self.numbers.in_all && !is_free => Some(in_all),
            () => None,
        };
        let (key, now, rule) = (self.key(place.1), self.instant(), RuleId(place.0));
        let entered = if patient {
            self.machine.enqueue_patiently(now, key, rule, Entry::default()).map(Enter::Waiting)
        } else if submit {
            self.machine.enqueue(now, key, rule, Entry::default()).map(Enter::Waiting)
        } else {
            self.machine.enter(now, key, rule, Entry::default())
        };
        let oldest = self.line.iter().copied().find(|number| {
            let other = &self.requests[*number];
            drops && !patient && other.place == place && !other.started
        });
        let (id, at) = match (entered, crowd) {
            (Ok(Enter::Started(id)), None) => (id, At::Gone),
            (Ok(Enter::Waiting(id)), None) => (id, At::InLine),
            (Ok(Enter::Waiting(id)), Some(_)) if patient => (id, At::Outside),
            (Ok(Enter::Waiting(id)), Some(_)) if oldest.is_some() => (id, At::InLine),
            (Err(Turned::QueueFull { waiting }), Some(crowd)) if !patient && oldest.is_none() => {
                assert_eq!(waiting as usize, crowd);
                return;
            }
            (entered, crowd) => panic!("{entered:?} where {crowd:?} stand in line, {place:?}"),
        };
        assert_eq!(at == At::Gone, is_free && !submit && !patient, "{entered:?}");
        let number = self.requests.len();
        self.requests.push(Request { id, place, at, started: false, number: self.entered });
        let _none = self.machine.set_waker(id, number);
        match at {
            At::InLine => {
                if let Some(oldest) = oldest.filter(|_| crowd.is_some()) {
                    self.line.retain(|other| *other != oldest);
                    self.requests[oldest].at = At::Displaced;
                }
                self.model_enters(number);
            }
            At::Gone => {
                self.entered += 1;
                self.model_starts(number);
            }
            At::Outside | At::Running { .. } | At::Displaced => {}
        }
        self.machine.dispatch(now);
    }

    fn any(&self, random: &mut Rng, which: impl Fn(&Request) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.requests.len()).filter(|number| which(&self.requests[*number])).collect();
        (!all.is_empty()).then(|| all[random.below(all.len() as u64) as usize])
    }

    fn leaves(&mut self, number: usize) {
        self.machine.withdraw(self.instant(), self.requests[number].id);
        self.requests[number].at = At::Gone;
        self.line.retain(|other| *other != number);
    }

    /// A running attempt is told to slow down, and goes back to its place or ends.
    fn slowed(&mut self, random: &mut Rng, number: usize) {
        let (id, place, now) = (self.requests[number].id, self.requests[number].place, self.instant());
        let At::Running { since, .. } = self.requests[number].at else { return };
        let key = self.key(place.1);
        let (row, target) = match random.below(4) {
            0 => ((0, 0, 0), Target::Overall),
            1 => ((1, place.0, 0), Target::Rule(RuleId(place.0))),
            2 => ((2, 0, place.1), Target::Key(key)),
            _ => ((3, place.0, place.1), Target::Queue(RuleId(place.0), key)),
        };
        let (length, latest) = self.rows.entry(row).or_insert((0, self.now));
        if *length == 0 || since > *latest {
            (*length, *latest) = (*length + 1, self.now);
        }
        assert_eq!(self.machine.slow_down(now, id, target), *length - 1, "{row:?}");
        let may = self.numbers.budget.is_none_or(|(_, of)| self.left >= of);
        assert_eq!(self.machine.take_retry(), may);
        if !may {
            return self.leaves(number);
        }
        self.left -= self.numbers.budget.map_or(0, |(_, of)| of);
        // Before the first of its queue that came later.
        let (requests, own) = (&self.requests, self.requests[number].number);
        let later = |other: &usize| requests[*other].place == place && requests[*other].number > own;
        let position = self.line.iter().position(later).unwrap_or(self.line.len());
        self.line.insert(position, number);
        self.requests[number].at = At::InLine;
        assert!(self.machine.retry(now, id, target, now, None));
        if self.machine.claim(now, id) == Claim::Waiting {
            let _none = self.machine.set_waker(id, number);
        }
    }

    fn succeeds(&mut self, number: usize) {
        let (id, (rule, key)) = (self.requests[number].id, self.requests[number].place);
        let At::Running { since, .. } = self.requests[number].at else { return };
        for row in [(0, 0, 0), (1, rule, 0), (2, 0, key), (3, rule, key)] {
            if self.rows.get(&row).is_some_and(|(_, latest)| since > *latest) {
                self.rows.remove(&row);
            }
        }
        self.machine.succeed(id);
        self.leaves(number);
    }

    fn limits(&mut self, random: &mut Rng, number: usize) {
        let At::Running { since, longest: None } = self.requests[number].at else { return };
        let longest = self.now - since + random.below(20);
        self.machine.limit_attempt(self.requests[number].id, Nanos::from_millis(longest));
        let _old = self.machine.set_waker(self.requests[number].id, number);
        self.requests[number].at = At::Running { since, longest: Some(longest) };
    }

    /// Lets the machine and its owner do all that is due, and compares.
    fn settle(&mut self) {
        let now = self.instant();
        let mut overdue = Vec::new();
        loop {
            if self.machine.next_wake().is_some_and(|wake| wake <= now) {
                self.machine.dispatch(now);
            }
            self.machine.take_evicted().clear();
            let woken = std::mem::take(self.machine.take_wakes());
            if woken.is_empty() {
                break;
            }
            for number in woken {
                let id = self.requests[number].id;
                if self.machine.is_overdue(id) {
                    overdue.push(number);
                } else if self.machine.claim(now, id) == Claim::Waiting {
                    let _none = self.machine.set_waker(id, number);
                }
            }
        }
        self.model_settles();
        for number in overdue {
            let At::Running { since, longest: Some(longest) } = self.requests[number].at else {
                panic!("#{number} is overdue as {:?}", self.requests[number].at)
            };
            assert_eq!(self.now, since + longest, "#{number} is woken in time");
        }
        self.compare();
    }

    fn compare(&mut self) {
        for (number, request) in self.requests.iter().enumerate() {
            let (id, at) = (request.id, request.at);
            assert_eq!(self.machine.is_outside(id), at == At::Outside, "#{number} is {at:?} at {}", self.now);
            let is_over = matches!(at, At::Running { since, longest: Some(most) } if since + most <= self.now);
            assert_eq!(self.machine.is_overdue(id), is_over, "#{number} is {at:?} at {}", self.now);
            assert!(!self.machine.is_refused(id), "#{number} knows of its refusal");
        }
        let snapshot = self.machine.snapshot(self.instant());
        let running = self.requests.iter().filter(|request| matches!(request.at, At::Running { .. })).count();
        assert_eq!((snapshot.waiting, snapshot.in_flight), (self.line.len(), running), "at {}", self.now);
    }

    fn step(&mut self, random: &mut Rng) {
        let running = |request: &Request| matches!(request.at, At::Running { .. });
        let here = |request: &Request| !matches!(request.at, At::Gone | At::Displaced);
        match random.below(16) {
            0..=1 => self.comes(random, false, false),
            2..=3 => self.comes(random, true, false),
            4..=7 => self.comes(random, false, true),
            8..=9 => {
                if let Some(number) = self.any(random, here) {
                    self.leaves(number);
                }
            }
            10 => {
                if let Some(number) = self.any(random, running) {
                    self.slowed(random, number);
                }
            }
            11..=12 => {
                if let Some(number) = self.any(random, running) {
                    self.succeeds(number);
                }
            }
            13 => {
                if let Some(number) = self.any(random, running) {
                    self.limits(random, number);
                }
            }
            _ => {
                let until = self.now + if random.below(20) == 0 { 5_000 } else { random.below(15) };
                while self.now < until {
                    self.now += 1;
                    self.settle();
                }
            }
        }
        self.settle();
    }
}

#[test]
fn who_may_wait_where_and_for_how_long_is_as_the_slow_model_says() {
    let mut displaced = 0;
    for seed in 0..150 {
        let mut random = Rng::new(seed);
        let mut history = History::new(&mut random);
        for _ in 0..120 {
            history.step(&mut random);
        }
        displaced += history.requests.iter().filter(|request| request.at == At::Displaced).count();
        while let Some(number) = history.any(&mut random, |request| !matches!(request.at, At::Gone | At::Displaced)) {
            history.leaves(number);
            history.settle();
        }
        // Nothing is kept of all that.
        history.now += 60_000;
        history.settle();
        assert_eq!(
            (history.machine.snapshot(history.instant()).keys, history.machine.next_wake()),
            (0, None),
            "{seed}"
        );
    }
    assert!(displaced > 100, "{displaced}");
}
