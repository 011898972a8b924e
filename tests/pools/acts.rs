//! What may happen: requests come and leave, attempts end, endpoints change.

use request_balancer::engine::{
    Elsewhere, EndpointId, Enter, Entry, Instant, NextStart, Report, RuleId, Target, Turned,
};

use super::{EXHAUSTED, FAILURES, KEYS, Open, RULES, Request, SECOND, Stage, World};

impl World {
    pub(crate) fn enter(&mut self) {
        let key = self.random.below(KEYS);
        let rule = self.random.below(RULES.into()) as u16;
        let mut among: Vec<EndpointId> = Vec::new();
        if self.random.below(4) == 0 {
            among = self.ids().filter(|_| self.random.below(2) == 0).collect();
            among.truncate(2);
        }
        let cost = if self.setup.costly { self.random.between(1, 2) } else { 1 };
        let deadline = (self.random.below(4) == 0).then(|| self.now + self.random.between(1, 5 * SECOND));
        let id = self.key(key);
        let number = self.requests.len();
        let entry = Entry {
            cost: cost as u32,
            endpoints: &among,
            deadline: deadline.map(Instant::from_millis),
            ..Entry::default()
        };
        let is_alone = self.requests.iter().all(|request| matches!(request.stage, Stage::Runs(_) | Stage::Over));
        let next = self.machine.next_start_of(self.at(), RuleId(rule), Some(id), &entry);
        let entered = match self.machine.enter(self.at(), id, RuleId(rule), entry) {
            Err(Turned::CostTooHigh { cost: 2, capacity: 1 }) => {
                assert!(!self.fits(cost, &among), "{cost} fits on one of {among:?}");
                return self.sync();
            }
            entered => entered.expect("there is room in line"),
        };
        // What is foretold is never later than what happens, and right where nobody else is in line.
        match entered {
            Enter::Started(_) => assert_eq!(next, NextStart::Now, "but it started at {}", self.now),
            Enter::Waiting(_) => assert!(!is_alone || next != NextStart::Now, "but it waits at {}", self.now),
        }
        self.tally.foretold += usize::from(next != NextStart::Now);
        let earliest = match next {
            // Whoever stays elsewhere when its endpoint gets into trouble may start at once.
            NextStart::At(at) if !self.setup.sticky => Some((at.as_nanos() / 1_000_000, self.upheavals)),
            NextStart::At(_) | NextStart::Now | NextStart::WhenOneEnds | NextStart::Never => None,
        };
        let (Enter::Started(id) | Enter::Waiting(id)) = entered;
        self.requests.push(Request {
            id,
            key,
            rule,
            cost,
            among,
            tried: Vec::new(),
            barred: 0,
            again: None,
            charged: None,
            deadline,
            earliest,
            stage: Stage::Waits,
            woken: false,
            refused: None,
        });
        match entered {
            Enter::Started(_) => {
                let could: Vec<EndpointId> = self.ids().filter(|at| self.objection(number, *at).is_none()).collect();
                self.sync();
                let Stage::Granted(seat) = self.requests[number].stage else { panic!("it has no endpoint") };
                // A probe given up for lost is nothing that could be foretold, nor what is kept for a costly request.
                let waits =
                    |request: &Request| request.cost > 1 && matches!(request.stage, Stage::Waits | Stage::Asleep);
                if could.contains(&seat.at) && !self.setup.sticky && !self.requests.iter().any(waits) {
                    self.assert_choice(number, &could, seat.at);
                }
                self.started(number, seat);
            }
            Enter::Waiting(_) => {
                self.sync();
                self.poll(number);
            }
        }
    }

    /// One of the requests that are meant.
    fn any(&mut self, is_meant: impl Fn(&Request) -> bool) -> Option<usize> {
        let meant: Vec<usize> = (0..self.requests.len()).filter(|number| is_meant(&self.requests[*number])).collect();
        (!meant.is_empty()).then(|| meant[self.random.below(meant.len() as u64) as usize])
    }

    /// Somebody who came late comes, or somebody looks for no reason.
    pub(crate) fn poll_any(&mut self) {
        let waits = |request: &Request| !matches!(request.stage, Stage::Runs(_) | Stage::Over);
        if let Some(number) = self.any(waits) {
            self.poll(number);
        }
    }

    /// Somebody loses patience, whatever became of it.
    pub(crate) fn leave_any(&mut self) {
        let Some(number) = self.any(|request| request.stage != Stage::Over) else { return };
        let is_granted = matches!(self.requests[number].stage, Stage::Granted(_));
        self.tally.killed_grants += usize::from(is_granted);
        self.upheavals += 1;
        self.requests[number].stage = Stage::Over;
        self.machine.withdraw(self.at(), self.requests[number].id);
        self.sync();
    }

    pub(crate) fn open(&mut self, id: EndpointId, length: u64, probes: u32) {
        let until = self.now + length;
        let endpoint = self.endpoint(id);
        endpoint.open = Some(Open { until, length, probes });
        endpoint.epoch += 1;
        (endpoint.failed_in_a_row, endpoint.passed) = (0, 0);
    }

    pub(crate) fn close(&mut self, id: EndpointId) {
        self.upheavals += 1;
        let endpoint = self.endpoint(id);
        endpoint.open = None;
        endpoint.epoch += 1;
        (endpoint.failed_in_a_row, endpoint.passed) = (0, 0);
    }

    /// The attempt of a request ends so, as far as its endpoint is concerned.
    fn report(&mut self, number: usize, report: Report) {
        let Stage::Runs(seat) = self.requests[number].stage else { return };
        let at = seat.at;
        self.machine.report(self.at(), self.requests[number].id, report, 0);
        let elsewhere = self.requests[number].charged.is_some_and(|charged| charged != at);
        if report == Report::Failure && !elsewhere {
            self.requests[number].charged = Some(at);
        }
        if self.endpoint(at).epoch != seat.epoch {
            return;
        }
        let half_open = self.endpoint(at).open;
        match report {
            Report::Success => match half_open {
                None => self.endpoint(at).failed_in_a_row = 0,
                Some(open) => {
                    self.endpoint(at).passed += 1;
                    if self.endpoint(at).passed >= open.probes {
                        self.close(at);
                    }
                }
            },
            Report::Failure if elsewhere => self.gone_as_probe(number),
            Report::Failure => {
                self.endpoint(at).failed_in_a_row += 1;
                match half_open {
                    Some(Open { length: 0, probes, .. }) => self.open(at, self.setup.reset, probes),
                    Some(open) => self.open(at, open.length, open.probes),
                    None if self.endpoint(at).failed_in_a_row >= FAILURES => {
                        self.open(at, self.setup.reset, self.setup.probes);
                    }
                    None => {}
                }
            }
            Report::Neutral => self.gone_as_probe(number),
        }
        if report == Report::Success {
            self.gone_as_probe(number);
        }
    }

    /// What has reported is no probe under way any more, even while it runs.
    fn gone_as_probe(&mut self, number: usize) {
        if let Stage::Runs(seat) = &mut self.requests[number].stage {
            seat.probe = None;
        }
    }

    pub(crate) fn end_any(&mut self) {
        if let Some(number) = self.any(|request| matches!(request.stage, Stage::Runs(_))) {
            self.end(number);
        }
    }

    /// A running attempt ends in some way.
    fn end(&mut self, number: usize) {
        let Stage::Runs(seat) = self.requests[number].stage else { return };
        let (now, id, at) = (self.at(), self.requests[number].id, seat.at);
        match self.random.below(12) {
            0..4 => self.succeed(number),
            // It ends in silence: dropped, or with an error that says nothing.
            4 => {
                self.requests[number].stage = Stage::Over;
                self.machine.withdraw(now, id);
            }
            5 | 6 => {
                self.report(number, Report::Neutral);
                let until = self.now + self.random.below(4) * SECOND;
                let request = &mut self.requests[number];
                if !request.tried.contains(&at) {
                    request.tried.push(at);
                }
                self.retry(number, Target::Endpoint(at), until);
            }
            // Another scope of the same.
            7 => {
                self.report(number, Report::Neutral);
                let until = self.now + self.random.below(2_000);
                let (key, rule) = (self.requests[number].key, RuleId(self.requests[number].rule));
                let record = self.key(key);
                let target = match self.random.below(5) {
                    0 => Target::Request,
                    1 => Target::Queue(rule, record),
                    2 => Target::Key(record),
                    3 => Target::Rule(rule),
                    _ => Target::Overall,
                };
                self.retry(number, target, until);
            }
            8 => {
                self.report(number, Report::Neutral);
                if self.is_the_same(number) {
                    self.open(at, EXHAUSTED, 1);
                    self.machine.exhaust_endpoint(now, at);
                }
                self.fail_over(number, at, self.now);
            }
            9 => {
                self.report(number, Report::Neutral);
                if self.is_the_same(number) {
                    self.endpoint(at).disabled = true;
                    self.machine.disable_endpoint(now, at);
                }
                self.fail_over(number, at, self.now);
            }
            _ => {
                self.report(number, Report::Failure);
                let until = self.now + self.random.between(100, 2_000);
                match self.machine.elsewhere(now, id) {
                    Elsewhere::AtOnce => self.fail_over(number, at, until),
                    Elsewhere::Nowhere => {
                        let request = &mut self.requests[number];
                        (request.stage, request.barred) = (Stage::Out(until), 0);
                        request.tried.clear();
                        assert!(self.machine.back_off(now, id, Instant::from_millis(until), None));
                        self.sync();
                        self.poll(number);
                    }
                }
            }
        }
        self.sync();
    }

    fn succeed(&mut self, number: usize) {
        self.report(number, Report::Success);
        self.requests[number].stage = Stage::Over;
        let (now, id) = (self.at(), self.requests[number].id);
        self.machine.finish(now, id);
        // Whoever says so twice is not heard.
        self.machine.report(now, id, Report::Failure, 0);
        self.machine.finish(now, id);
        self.sync();
    }

    fn retry(&mut self, number: usize, target: Target, until: u64) {
        let (now, id, key) = (self.at(), self.requests[number].id, self.requests[number].key);
        let is_about = !matches!(target, Target::Endpoint(_)) || self.is_the_same(number);
        if is_about {
            self.note_hold(target, key, until);
        }
        let request = &mut self.requests[number];
        request.stage = if target == Target::Request { Stage::Out(until) } else { Stage::Waits };
        if until > self.now && is_about {
            self.taken_back(target, key);
        }
        assert!(self.machine.retry(now, id, target, Instant::from_millis(until), None));
        self.sync();
        self.poll(number);
    }

    /// A hold takes back what it means of what is granted: whoever has a grant after it has a new one.
    pub(crate) fn taken_back(&mut self, target: Target, of_key: u64) {
        self.upheavals += 1;
        for request in &mut self.requests {
            let is_meant = match target {
                Target::Overall | Target::Endpoint(_) => true,
                Target::Rule(rule) => request.rule == rule.0,
                Target::Key(_) => request.key == of_key,
                Target::Queue(rule, _) => (request.rule, request.key) == (rule.0, of_key),
                Target::Request => false,
            };
            if let (true, Stage::Granted(_)) = (is_meant, request.stage) {
                request.stage = Stage::Asleep;
            }
        }
    }

    fn fail_over(&mut self, number: usize, at: EndpointId, until: u64) {
        let (now, id) = (self.at(), self.requests[number].id);
        let request = &mut self.requests[number];
        request.again = (self.setup.same_first && !request.tried.contains(&at)).then_some(at);
        if !request.tried.contains(&at) {
            request.tried.push(at);
        }
        (request.barred, request.stage) = (until, Stage::Waits);
        assert!(self.machine.fail_over(now, id, Instant::from_millis(until), None));
        self.sync();
        self.poll(number);
    }

    /// All endpoints are there again, everything succeeds, and nothing is left.
    pub(crate) fn drain(&mut self) {
        let all = self.endpoints.iter().map(|endpoint| (endpoint.name.clone(), endpoint.numbers)).collect();
        self.replace(all);
        for id in self.ids() {
            self.endpoint(id).disabled = false;
            self.machine.enable_endpoint(self.at(), id);
            self.sync();
        }
        self.setup.late = 0;
        for _ in 0..10_000 {
            self.settle();
            for number in 0..self.requests.len() {
                if matches!(self.requests[number].stage, Stage::Runs(_)) {
                    self.succeed(number);
                } else if self.requests[number].stage != Stage::Over {
                    self.poll(number);
                }
            }
            if self.requests.iter().all(|request| request.stage == Stage::Over) {
                break;
            }
            let Some(wake) = self.machine.next_wake() else { continue };
            self.now = self.now.max(wake.as_nanos().div_ceil(1_000_000));
        }
        assert!(self.requests.iter().all(|request| request.stage == Stage::Over), "something is left");
        let snapshot = self.machine.snapshot(self.at());
        assert_eq!((snapshot.waiting, snapshot.in_flight), (0, 0));
        assert!(snapshot.endpoints.iter().all(|endpoint| endpoint.live == 0 && endpoint.in_flight == 0));
        // Nothing is kept of keys without work, of what they did on endpoints neither.
        self.machine.dispatch(Instant::from_millis(self.now + 3_600_000));
        self.machine.dispatch(Instant::from_millis(self.now + 3_600_001));
        assert_eq!(self.machine.snapshot(self.at()).keys, 0);
    }
}
