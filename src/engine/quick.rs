//! The short cut of a request that nothing is in the way of: it starts without standing in line, and ends without a turn.
//!
//! It is open to a plain request of a rule whose limits are all windows and which is not paced, where there is no pool,
//! while nobody is ready or waits before the line, and nothing is due. Whatever else there is goes the long way, which
//! comes to the same answer; what the short cut saves is only looking at what cannot matter.

use super::answer::{KeyId, RequestId};
use super::cost::Costs;
use super::limit::{LimitState, LimitStates, Spec, WindowSpec};
use super::plan::{LimitRef, LimitSpec, Plan, RuleId, RulePlan};
use super::queue::{Queue, QueueState};
use super::request::{Request, Stage};
use super::scheduler::Scheduler;
use super::slab::NIL;
use super::time::Instant;

/// What a plain request of a rule takes from its limits, one of each.
#[derive(Debug)]
pub(super) struct Quick {
    own: Box<[Step]>,
    key: Box<[Step]>,
    shared: Box<[Step]>,
}

/// A window that counts the request.
#[derive(Clone, Copy, Debug)]
struct Step {
    limit: u32,
    /// What may be counted already.
    before: u32,
    /// What it leaves to others.
    reserve: u32,
    spec: WindowSpec,
}

impl Quick {
    /// One for each rule that has a short cut.
    pub(super) fn all(plan: &Plan) -> Box<[Option<Self>]> {
        plan.rules.iter().map(|rule| Self::of(plan, rule)).collect()
    }

    fn of(plan: &Plan, rule: &RulePlan) -> Option<Self> {
        let is_paced = !rule.key_pace.is_empty() || !rule.shared_pace.is_empty();
        if rule.removed || is_paced || plan.pool.is_some() || plan.is_shared_by(rule) {
            return None;
        }
        let own = (0..rule.own.len()).map(|limit| LimitRef { limit, reserve: 0 });
        Some(Self {
            own: steps(&rule.own, own)?,
            key: steps(&plan.key_limits, rule.key.iter().copied())?,
            shared: steps(&plan.shared_limits, rule.shared.iter().copied())?,
        })
    }
}

fn steps(specs: &[LimitSpec], refs: impl Iterator<Item = LimitRef>) -> Option<Box<[Step]>> {
    let counted = refs.filter(|bound| Costs::ONE.of(specs[bound.limit].charge) > 0);
    let step = |bound: LimitRef| {
        let spec = Spec::of_window(specs[bound.limit].kind)?;
        let before = spec.count.checked_sub(1)?;
        let before = before.saturating_sub(bound.reserve);
        Some(Step { limit: u32::try_from(bound.limit).ok()?, before, reserve: bound.reserve, spec })
    };
    counted.map(step).collect()
}

/// The windows of one place beside what they take.
type Bound<'a> = (&'a [Step], &'a mut [LimitState]);

impl Quick {
    /// Whether the windows that all keys share have room for a plain request, and leave what it leaves to others.
    #[inline]
    pub(super) fn has_room_for_all(&self, shared: &mut LimitStates, now: Instant) -> bool {
        have_room(&mut [(&*self.shared, shared.as_mut_slice())], now)
    }

    /// The same of the windows of its queue and its key.
    #[inline]
    pub(super) fn has_room_for_key(&self, own: &mut LimitStates, key: &mut LimitStates, now: Instant) -> bool {
        have_room(&mut [(&*self.own, own.as_mut_slice()), (&*self.key, key.as_mut_slice())], now)
    }

    #[inline(always)]
    fn bind<'a>(
        &'a self,
        own: &'a mut LimitStates,
        key: &'a mut LimitStates,
        shared: &'a mut LimitStates,
    ) -> [Bound<'a>; 3] {
        [(&*self.own, own.as_mut_slice()), (&*self.key, key.as_mut_slice()), (&*self.shared, shared.as_mut_slice())]
    }
}

/// Whether every window has room for one more.
#[inline(always)]
fn have_room(bound: &mut [Bound<'_>], now: Instant) -> bool {
    for (steps, states) in bound {
        for step in *steps {
            if !states[step.limit as usize].has_room_for_one(step.spec.period, now, step.before, step.reserve) {
                return false;
            }
        }
    }
    true
}

#[inline(always)]
fn start(bound: &mut [Bound<'_>; 3], now: Instant) {
    for (steps, states) in bound {
        for step in *steps {
            states[step.limit as usize].start_one(&step.spec, now);
        }
    }
}

#[inline(always)]
fn end(bound: &mut [Bound<'_>; 3], now: Instant, is_read: bool) {
    for (steps, states) in bound {
        for step in *steps {
            states[step.limit as usize].end_one(&step.spec, now, is_read);
        }
    }
}

impl<W> Scheduler<W> {
    /// Starts a request that costs one at once if the short cut is open to it, as [`enter`](Self::enter) does. Else it
    /// changes nothing.
    #[inline]
    pub fn start_at_once(&mut self, now: Instant, key: KeyId, rule: RuleId) -> Option<RequestId> {
        let now = self.tick_quietly(now);
        let is_open = !self.closed && !self.paused && self.door.is_empty();
        if !is_open || self.anything_ready() || self.next_due() <= now {
            return None;
        }
        let position = usize::from(rule.0);
        let Self { quick, rules, requests, queues, keys, shared, retries, .. } = self;
        let steps = quick[position].as_ref()?;
        let of_rule = &mut rules[position];
        let of_key = keys.get_mut(key.index, key.generation)?;
        let hold = self.hold.max(of_rule.hold).max(of_key.extras.hold()).max(self.guard.closed_until());
        if of_rule.paused || hold > now || of_key.queues == NIL {
            return None;
        }
        // Most keys have one queue; the others' are found the long way.
        let id = of_key.queues;
        let queue = &mut queues[id];
        if queue.rule != rule.0
            || queue.sibling != id
            || !queue.waiting.is_empty()
            || !queue.granted.is_empty()
            || queue.extras.hold() > now
            || queue.extras.numbers().is_some()
        {
            return None;
        }
        let mut bound = steps.bind(&mut queue.limits, &mut of_key.limits, shared);
        if !have_room(&mut bound, now) {
            return None;
        }
        start(&mut bound, now);
        if let Some(retries) = retries {
            retries.start();
        }
        let number = queue.next_number;
        queue.next_number = number.wrapping_add(1);
        queue.extras.set_passed(0);
        queue.running += 1;
        queue.requests += 1;
        of_rule.running += 1;
        let (index, generation) =
            requests.insert(|generation| Request::new(id, number, now, Stage::Running, generation));
        self.last_start = now;
        Some(RequestId { index, generation })
    }

    /// Ends a running request as [`finish`](Self::finish) does and says whom it would have woken, if the short cut is open
    /// to it and nobody has to know how and when its attempt ended: no limit, no row of "slow down". Else it changes
    /// nothing.
    pub fn end_at_once(&mut self, id: RequestId) -> Option<Option<W>> {
        if self.has_streaks() || self.counts_end(id) {
            return None;
        }
        self.end_quickly(self.now(), id)
    }

    /// Applies `change` to every window that counts a plain request of a rule with a short cut. Returns false, and changes
    /// nothing, for others.
    #[inline(always)]
    pub(super) fn each_window(&mut self, index: u32, mut change: impl FnMut(&WindowSpec, &mut LimitState)) -> bool {
        let Self { quick, requests, queues, keys, shared, .. } = self;
        let request = &requests[index];
        let Queue { rule, key, extras, limits, .. } = &mut queues[request.queue];
        let Some(steps) = quick[usize::from(*rule)].as_ref() else { return false };
        if extras.numbers().is_some() || !request.costs().is_plain() {
            return false;
        }
        for (steps, states) in &mut steps.bind(limits, &mut keys[*key].limits, shared) {
            for step in *steps {
                change(&step.spec, &mut states[step.limit as usize]);
            }
        }
        true
    }

    /// Ends a running request and says whom it would have woken, if the short cut is open to it.
    // In place, as what is returned by memory is copied before it is settled there.
    #[inline(always)]
    pub(super) fn end_quickly(&mut self, now: Instant, id: RequestId) -> Option<Option<W>> {
        let now = self.tick_quietly(now);
        let is_quiet = if self.anything_ready() {
            // Nobody of those could go before, and an end that gives nothing back lets nobody go.
            self.settled && !self.any_end && !self.observes && self.next_wake().is_none_or(|wake| wake > now)
        } else {
            self.opens = None;
            self.next_due() > now
        };
        if !is_quiet || !self.door.is_empty() {
            return None;
        }
        let Self { quick, rules, requests, queues, keys, shared, sweeps, .. } = self;
        let request = requests.get(id.index, id.generation)?;
        let queue = &mut queues[request.queue];
        let is_waited_for = match queue.state() {
            QueueState::Blocked | QueueState::Yielding => true,
            QueueState::Idle | QueueState::Ready | QueueState::Parked { .. } => queue.sibling != request.queue,
        };
        if request.stage() != Stage::Running || request.deadline() != Instant::NEVER || is_waited_for {
            return None;
        }
        let position = usize::from(queue.rule);
        let Queue { key, extras, limits, .. } = &mut *queue;
        let key = *key;
        let of_key = &mut keys[key];
        let steps = quick[position].as_ref()?;
        if extras.numbers().is_some() || !request.costs().is_plain() {
            return None;
        }
        let is_read = request.is_read();
        end(&mut steps.bind(limits, &mut of_key.limits, shared), now, is_read);
        queue.running -= 1;
        queue.requests -= 1;
        rules[position].running -= 1;
        // Siblings go the long way.
        let is_idle = queue.requests == 0 && !sweeps.has(key);
        let waker = requests[id.index].waker.take();
        requests.discard(id.index);
        if is_idle {
            self.note_idle(now, key);
            self.stirred = true;
        }
        Some(waker)
    }
}
