//! What must be true whenever the machine has nothing to do at an instant.

use std::collections::BTreeSet;

use request_balancer::engine::{Instant, KeySnapshot, Snapshot, Why};

use super::books::{Books, Obstacle, Request, Stage, Wrong};
use super::history::Entry;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

impl Books {
    /// Applies what follows from nothing being left to do at this instant.
    pub(crate) fn settle(&mut self) {
        self.advance();
        for number in 0..self.requests.len() {
            let request = &self.requests[number];
            // Nobody woke it: its owner had let its lease pass.
            if request.stage == Stage::Asleep && request.deadline.is_some_and(|deadline| deadline <= self.now) {
                self.left(number, Stage::Refused(Why::MaxWait));
            }
        }
        self.resolve();
        let queues: BTreeSet<(usize, u64)> =
            self.requests.iter().map(|request| (request.entry.rule, request.entry.key)).collect();
        queues.into_iter().for_each(|queue| self.forget_unready(queue));
    }

    /// Behind no grant nothing can have been granted without being woken.
    pub(crate) fn resolve(&mut self) {
        for number in 0..self.requests.len() {
            let request = &self.requests[number];
            let (rule, key) = (request.entry.rule, request.entry.key);
            if request.stage == Stage::Perhaps && self.first_granted(rule, key).is_none() {
                self.requests[number].stage = Stage::Queued;
            }
        }
    }

    /// Compares the machine's numbers.
    pub(crate) fn counts(&self, snapshot: &Snapshot) -> Result<(), Wrong> {
        let count = |within: &dyn Fn(usize) -> bool| {
            let mut counts = (0, 0);
            for request in self.requests.iter().filter(|request| within(request.entry.rule)) {
                counts.0 += usize::from(request.stage.in_line());
                counts.1 += usize::from(matches!(request.stage, Stage::Running(_)));
            }
            counts
        };
        let compare = |what: String, said: (usize, usize), known: (usize, usize)| {
            if said == known { Ok(()) } else { Err(format!("{what}: {said:?} in line and in flight, not {known:?}")) }
        };
        compare("overall".to_owned(), (snapshot.waiting, snapshot.in_flight), count(&|_| true))?;
        for (rule, said) in snapshot.rules.iter().enumerate() {
            compare(format!("rule {rule}"), (said.waiting, said.in_flight), count(&|other| other == rule))?;
            if said.held_until != self.still(self.rule_holds[rule]) || said.paused != self.paused[rule] {
                return Err(format!("rule {rule}: {said:?}, held until {}", self.rule_holds[rule]));
            }
        }
        for (lane, said) in snapshot.lanes.iter().enumerate() {
            let known = count(&|rule| self.spec.rules[rule].lane == lane);
            compare(format!("lane {lane}"), (said.waiting, said.in_flight), known)?;
        }
        if snapshot.held_until != self.still(self.hold) {
            return Err(format!("held until {:?}, not {}", snapshot.held_until, self.hold));
        }
        let busy = self.keys().filter(|&key| self.free_at(key).is_none_or(|free| free > self.now)).count();
        if snapshot.keys < busy {
            return Err(format!("{} keys, of which {busy} are in use", snapshot.keys));
        }
        Ok(())
    }

    pub(crate) fn key_counts(&self, key: u64, said: &KeySnapshot) -> Result<(), Wrong> {
        let of_key = self.requests.iter().filter(|request| request.entry.key == key);
        let known = KeySnapshot {
            waiting: of_key.clone().filter(|request| request.stage.in_line()).count(),
            in_flight: of_key.filter(|request| matches!(request.stage, Stage::Running(_))).count(),
            held_until: self.still(self.key_holds.get(&key).copied().unwrap_or(0)),
        };
        if *said == known { Ok(()) } else { Err(format!("key {key}: {said:?}, not {known:?}")) }
    }

    /// Nobody waits who could start, and nobody will: the machine wants to be called when somebody can.
    pub(crate) fn nobody_waits_for_nothing(&self, snapshot: &Snapshot) -> Result<(), Wrong> {
        let wake = snapshot.next_wake.map(Instant::as_nanos);
        let overdue: Vec<bool> = std::iter::zip(&self.spec.lanes, &snapshot.lanes)
            .map(|(lane, said)| {
                lane.allowance(self.spec.lanes.len()).is_some_and(|allowance| u64::from(said.bypassed) >= allowance)
            })
            .collect();
        let heads: Vec<(usize, Vec<Obstacle>)> = self
            .waiting_queues()
            .into_iter()
            .filter_map(|(rule, key)| self.queue(rule, key).find(|&number| self.is_queued(&self.requests[number])))
            .map(|head| (head, self.obstacles(head, true)))
            .collect();
        // Who may have been granted or not may be one whose turn it is, and may have taken room or not.
        let waits = |number: &usize| {
            let request = &self.requests[*number];
            request.stage == Stage::Perhaps || heads.iter().any(|(head, _)| head == number)
        };
        let turns: Vec<(usize, Vec<Obstacle>)> = (0..self.requests.len())
            .filter(waits)
            .flat_map(|number| [true, false].map(|perhaps| (number, self.obstacles(number, perhaps))))
            .collect();
        for (head, obstacles) in &heads {
            let Request { entry: Entry { rule, key, .. }, .. } = self.requests[*head];
            let Some(can_start) = self.can_start(obstacles) else { continue };
            if wake.is_some() && self.may_trickle(rule, key) {
                continue;
            }
            if self.head(rule, key).is_none() {
                // One before it may have been granted or not.
                continue;
            }
            if wake.is_some_and(|wake| wake <= can_start)
                || self.has_excuse(*head, &turns, can_start > self.now, &overdue)
            {
                continue;
            }
            return Err(if can_start <= self.now {
                format!("#{head} waits, and nothing is in its way; next wake-up {wake:?}")
            } else {
                format!("#{head} can start at {can_start}; next wake-up {wake:?}")
            });
        }
        for (number, request) in self.requests.iter().enumerate().filter(|(_, request)| request.stage.in_line()) {
            let due = match request.stage {
                Stage::Granted => request.lease,
                Stage::Out(until) => Some(until.min(request.deadline.unwrap_or(u64::MAX))),
                Stage::Queued | Stage::Asleep => request.deadline,
                Stage::Perhaps | Stage::Running(_) | Stage::Refused(_) | Stage::Gone => None,
            };
            if let Some(due) = due
                && wake.is_none_or(|wake| wake > due)
            {
                return Err(format!("#{number} is due at {due} as {:?}; next wake-up {wake:?}", request.stage));
            }
        }
        Ok(())
    }

    /// When a request could start if nothing else happens. `None`: not before an event.
    fn can_start(&self, obstacles: &[Obstacle]) -> Option<u64> {
        let opens = obstacles.iter().map(|obstacle| match obstacle {
            Obstacle::Paused => None,
            Obstacle::Until(until) => Some(*until),
            Obstacle::Full { opens, .. } => *opens,
        });
        opens.chain([Some(self.now)]).try_fold(0, |latest, at| at.map(|at| latest.max(at)))
    }

    /// Whether a request that could start, now or `later`, may have to wait for its turn, by DESIGN 7.3 and 7.4.
    fn has_excuse(&self, number: usize, heads: &[(usize, Vec<Obstacle>)], later: bool, overdue: &[bool]) -> bool {
        let entry = &self.requests[number].entry;
        // The key's next room may be owed to a sibling that cannot use it yet.
        let owed = heads.iter().filter(|(other, _)| *other != number).any(|(other, obstacles)| {
            let theirs = &self.requests[*other].entry;
            let waits = || self.is_paced(theirs.rule) || self.is_behind_a_costly(*other, heads, later, overdue);
            theirs.key == entry.key && (!obstacles.is_empty() || waits())
        });
        self.is_paced(entry.rule) || owed || self.is_behind_a_costly(number, heads, later, overdue)
    }

    /// Whether a costly one of this lane or one above, or of one that is overdue, may wait for room in a limit that both
    /// draw on. Later there may be room for less than it costs.
    ///
    /// With it waits whoever stands in the ring of its rule, or behind one who draws on the same.
    fn is_behind_a_costly(
        &self,
        number: usize,
        heads: &[(usize, Vec<Obstacle>)],
        later: bool,
        overdue: &[bool],
    ) -> bool {
        let entry = &self.requests[number].entry;
        let lane = self.spec.rules[entry.rule].lane;
        let entries = heads.iter().map(|(other, _)| &self.requests[*other].entry);
        let ring: Vec<&Entry> = entries.filter(|other| other.rule == entry.rule).chain([entry]).collect();
        heads.iter().filter(|(other, _)| *other != number).any(|(other, obstacles)| {
            let theirs = &self.requests[*other].entry;
            let their_lane = self.spec.rules[theirs.rule].lane;
            !theirs.cost.is_plain()
                && (their_lane <= lane || overdue[their_lane])
                && (theirs.rule == entry.rule
                    || ring.iter().any(|entry| {
                        let mut shared = self.limits.iter().filter(|limit| !limit.each_key);
                        shared.any(|limit| limit.is_taken_by(theirs) && limit.is_taken_by(entry))
                    }))
                && obstacles.iter().any(|obstacle| match obstacle {
                    Obstacle::Full { limit, fits_one, .. } => (later || *fits_one) && !self.limits[*limit].each_key,
                    Obstacle::Paused | Obstacle::Until(_) => false,
                })
        })
    }

    /// Whether a rule leaves room for more urgent ones in some limit that both draw on.
    pub(crate) fn is_paced(&self, rule: usize) -> bool {
        self.limits.iter().any(|limit| self.leaves_room(limit, rule))
    }

    /// Whether the rules of a rule's lane leave room for more urgent ones in the same limits, and in none that each key
    /// has or of which a part stays free.
    pub(crate) fn is_paced_alike(&self, rule: usize) -> bool {
        let lane = self.spec.rules[rule].lane;
        let paced_by = |rule: usize| {
            let limits = self.limits.iter().enumerate().filter(|(_, limit)| self.leaves_room(limit, rule));
            limits
                .map(|(position, limit)| (!limit.each_key && limit.count < 50 && !limit.tokens).then_some(position))
                .collect::<Option<Vec<usize>>>()
        };
        let mut all = (0..self.spec.rules.len()).filter(|&other| self.spec.rules[other].lane == lane).map(paced_by);
        let first = all.next().flatten();
        first.is_some() && all.all(|other| other == first)
    }

    /// Whether a rule leaves room for more urgent ones in a limit that both draw on.
    fn leaves_room(&self, limit: &super::limits::Limit, rule: usize) -> bool {
        let lane = self.spec.rules[rule].lane;
        let others =
            || (0..self.spec.rules.len()).any(|other| limit.binds_rule(other) && self.spec.rules[other].lane < lane);
        let within = |horizon| limit.period <= horizon || limit.count >= 50;
        !limit.private
            && limit.binds_rule(rule)
            && limit.period > 0
            && self.spec.lanes[lane].horizon().is_some_and(within)
            && others()
    }

    /// All keys that were ever used.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u64> {
        let requests = self.requests.iter().map(|request| request.entry.key);
        let held = self.key_holds.keys().copied().chain(self.queue_holds.keys().map(|&(_, key)| key));
        requests.chain(held).collect::<BTreeSet<u64>>().into_iter()
    }

    /// When nothing is left of a key; `None` while it has requests.
    pub(crate) fn free_at(&self, key: u64) -> Option<u64> {
        if self.requests.iter().any(|request| request.entry.key == key && request.stage != Stage::Gone) {
            return None;
        }
        let mut free = self.key_holds.get(&key).copied().unwrap_or(0).max(self.told_until(key));
        for (&(_, of), &hold) in &self.queue_holds {
            free = free.max(if of == key { hold } else { 0 });
        }
        for limit in self.limits.iter().filter(|limit| limit.each_key) {
            free = free.max(limit.free_at(&self.attempts, key)?);
        }
        Some(free)
    }

    /// Everything came to its end, and each request was answered once.
    pub(crate) fn finished(&self) -> Result<(), Wrong> {
        for (number, request) in self.requests.iter().enumerate() {
            if request.stage != Stage::Gone || request.answers != 1 {
                return Err(format!("#{number} is left as {:?}, answered {} times", request.stage, request.answers));
            }
        }
        Ok(())
    }

    fn still(&self, hold: u64) -> Option<Instant> {
        (hold > self.now).then(|| at(hold))
    }
}
