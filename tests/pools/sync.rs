//! What the machine did: who was granted, woken, refused, and whether that was right.

use request_balancer::engine::{Claim, EndpointId, Why};

use super::{LEASE, Refused, Seat, Stage, World};

impl World {
    /// Looks at what the last call of the machine brought.
    pub(crate) fn sync(&mut self) {
        let woken: Vec<usize> = self.machine.take_wakes().drain(..).collect();
        for number in woken {
            self.requests[number].woken = true;
        }
        self.machine.take_evicted().clear();
        self.machine.take_notices().clear();
        self.note_refusals();
        // What was taken back first: it makes room.
        for number in 0..self.requests.len() {
            let Stage::Granted(seat) = self.requests[number].stage else { continue };
            match self.machine.endpoint_of(self.requests[number].id) {
                Some(at) if at == seat.at => {}
                Some(_) => {
                    self.upheavals += 1;
                    self.requests[number].stage = Stage::Waits;
                }
                None => {
                    self.upheavals += 1;
                    self.tally.lost_leases += usize::from(seat.since + LEASE <= self.now);
                    self.requests[number].stage = Stage::Asleep;
                }
            }
        }
        for number in 0..self.requests.len() {
            if matches!(self.requests[number].stage, Stage::Waits | Stage::Asleep | Stage::Out(_))
                && let Some(at) = self.machine.endpoint_of(self.requests[number].id)
            {
                let seat = self.granted(number, at);
                self.requests[number].stage = Stage::Granted(seat);
            }
        }
    }

    /// A request has got an endpoint: it may.
    fn granted(&mut self, number: usize, at: EndpointId) -> Seat {
        // A probe that was given up for lost makes place for another.
        if let Some(open) = self.endpoint(at).open
            && open.until <= self.now
            && self.probing(number, at).count() as u32 + self.endpoints[usize::from(at.0)].passed >= open.probes
        {
            let last = self.probing(number, at).max();
            let patience = open.length.max(self.setup.reset);
            assert!(last.is_some_and(|last| last + patience <= self.now), "probed too often");
            self.give_up_probes(at);
        }
        let objection = self.objection(number, at);
        assert_eq!(objection, None, "request {number} on {at:?} at {}: {:?}", self.now, self.requests[number]);
        self.note_home(number, at);
        let endpoint = &self.endpoints[usize::from(at.0)];
        let probe = endpoint.open.map(|_| self.now);
        self.tally.probes += usize::from(probe.is_some());
        Seat { at, epoch: endpoint.epoch, life: endpoint.life, probe, since: self.now }
    }

    /// Others take the places of probes that do not report.
    fn give_up_probes(&mut self, at: EndpointId) {
        for request in &mut self.requests {
            match &mut request.stage {
                Stage::Granted(seat) | Stage::Runs(seat) if seat.at == at => seat.probe = None,
                Stage::Granted(_) | Stage::Runs(_) | Stage::Waits | Stage::Asleep | Stage::Out(_) | Stage::Over => {}
            }
        }
    }

    pub(crate) fn dispatch(&mut self) {
        self.machine.dispatch(self.at());
        self.sync();
    }

    /// Those who were woken and do not come late look how it stands, until nobody is left.
    pub(crate) fn settle(&mut self) {
        let mut late = vec![false; self.requests.len()];
        loop {
            self.dispatch();
            let in_time = |&number: &usize| self.requests[number].woken && !late[number];
            let Some(number) = (0..self.requests.len()).find(in_time) else { break };
            late[number] = self.random.below(10) < self.setup.late;
            if !late[number] {
                self.poll(number);
            }
        }
        if self.machine.next_wake().is_none_or(|at| at > self.at()) {
            self.judge();
        }
    }

    /// A request looks how it stands.
    pub(crate) fn poll(&mut self, number: usize) {
        self.requests[number].woken = false;
        if matches!(self.requests[number].stage, Stage::Runs(_) | Stage::Over) {
            return;
        }
        let before = self.requests[number].stage;
        let was_first = self.machine.is_granted(self.requests[number].id);
        match self.machine.claim(self.at(), self.requests[number].id) {
            Claim::Started { .. } => {
                let at = self.machine.endpoint_of(self.requests[number].id).expect("every start has an endpoint");
                let seat = match before {
                    Stage::Granted(seat) if seat.at == at && self.is_well_seated(seat) => seat,
                    Stage::Granted(_) | Stage::Waits | Stage::Asleep | Stage::Out(_) | Stage::Runs(_) | Stage::Over => {
                        self.granted(number, at)
                    }
                };
                self.started(number, seat);
            }
            Claim::Waiting => {
                // The first grant of a queue is taken up, or was no good any more: what it has now is a new one.
                let stays = matches!(before, Stage::Out(_)) || matches!(before, Stage::Granted(_)) && !was_first;
                self.requests[number].stage = if stays { before } else { Stage::Waits };
                let _none = self.machine.set_waker(self.requests[number].id, number);
            }
            Claim::Refused { why, .. } => {
                // It may have been refused by this very call.
                self.note_refusal_of(number);
                self.refused(number, why);
            }
            claim @ (Claim::Running | Claim::Unknown) => panic!("{claim:?} for {:?}", self.requests[number]),
        }
        self.sync();
    }

    /// Looks who is refused, at the moment at which it happens.
    fn note_refusals(&mut self) {
        for number in 0..self.requests.len() {
            let request = &self.requests[number];
            if request.stage != Stage::Over && self.machine.is_refused(request.id) {
                self.note_refusal_of(number);
                // It has no place any more, whatever it had, and nobody waits behind it.
                self.upheavals += 1;
                self.requests[number].stage = Stage::Asleep;
                self.requests[number].woken = true;
            }
        }
    }

    fn note_refusal_of(&mut self, number: usize) {
        let request = &self.requests[number];
        let (usable, fits) = (self.usable_ever(request), self.fits(request.cost, &request.among));
        let now = Refused { at: self.now, usable, fits };
        self.requests[number].refused.get_or_insert(now);
    }

    /// A request hears of its refusal.
    fn refused(&mut self, number: usize, why: Why) {
        let request = &self.requests[number];
        let Refused { at, usable, fits } = request.refused.expect("it was seen to be refused");
        match why {
            Why::NoEndpoint => {
                assert!(!usable, "refused although an endpoint comes back: {request:?}");
                self.tally.refusals += 1;
            }
            Why::MaxWait => {
                assert!(request.deadline.is_some_and(|deadline| deadline <= at), "refused too early: {request:?}");
                self.tally.too_late += 1;
            }
            Why::CostTooHigh { cost: 2, capacity: 1 } => assert!(!fits, "it fits: {request:?}"),
            why => panic!("{why:?} for {request:?}"),
        }
        self.requests[number].stage = Stage::Over;
    }

    /// Whether what was granted may still be taken up.
    fn is_well_seated(&self, seat: Seat) -> bool {
        let endpoint = &self.endpoints[usize::from(seat.at.0)];
        let current = endpoint.open.is_none() || endpoint.epoch == seat.epoch && seat.probe.is_some();
        !self.is_out(seat.at) && endpoint.held <= self.now && current
    }

    pub(crate) fn started(&mut self, number: usize, mut seat: Seat) {
        seat.life = self.endpoint(seat.at).life;
        let (now, request) = (self.now, &mut self.requests[number]);
        let earlier = request.earliest.take().filter(|(at, upheavals)| *upheavals == self.upheavals && *at > now);
        assert_eq!(earlier, None, "request {number} was to start later than at {now}: {request:?}");
        request.stage = Stage::Runs(seat);
        request.again = None;
        request.woken = false;
        request.deadline = None;
        let start = (now, request.key, request.cost);
        self.endpoint(seat.at).starts.push(start);
        self.tally.starts += 1;
    }
}
