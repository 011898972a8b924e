//! The machine: requests in, grants out. Here is what its owner calls; how a turn goes is in `turn.rs`, how requests
//! join and leave the line in `line.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use super::answer::{Claim, Enter, Entry, Evicted, KeyId, RequestId, Turned};
use super::cost::Costs;
use super::door::Door;
use super::guard::{Guard, Notice};
use super::hold::HoldCause;
use super::lane::{Lane, Ring};
use super::learn::Own;
use super::limit::{self, Days, LimitStates, PaceClock};
use super::observe::{Difference, Spot};
use super::plan::{LimitSpec, Origin, Plan, RuleId, RulePlan};
use super::pool::{EndpointId, Pool};
use super::queue::{KeyRecord, Queue};
use super::quick::Quick;
use super::request::{Request, Stage};
use super::retry_budget::RetryBudget;
use super::slab::Slab;
use super::spots::Spots;
use super::store::Store;
use super::streak::Streaks;
use super::sweeps::Sweeps;
use super::time::{Instant, Nanos};
use super::timers::Timers;

/// Decides which request starts when. `W` wakes the owner of a request.
///
/// After every call that takes `now`, fire what [`take_wakes`](Self::take_wakes) hands out (outside any lock) and see
/// whether [`next_wake`](Self::next_wake) moved.
///
/// ```
/// use std::sync::Arc;
/// use request_balancer::Rules;
/// use request_balancer::engine::{Claim, Enter, Entry, Instant, RuleId, Scheduler};
///
/// let rules: Rules = "per_key = \"1/1s\"".parse()?;
/// let mut scheduler = Scheduler::<&str>::new(rules.plan());
/// let key = scheduler.add_key(Instant::ZERO, 42);
///
/// let first = scheduler.enter(Instant::ZERO, key, RuleId(0), Entry::default());
/// assert!(matches!(first, Ok(Enter::Started(_))));
/// let second = scheduler.enter(Instant::from_millis(10), key, RuleId(0), Entry::default());
/// let Ok(Enter::Waiting(second)) = second else { panic!("{second:?}") };
/// scheduler.set_waker(second, "second");
///
/// let due = Instant::from_millis(1_000);
/// assert_eq!(scheduler.next_wake(), Some(due));
/// scheduler.dispatch(due);
/// assert_eq!(scheduler.take_wakes(), &["second"]);
/// assert!(matches!(scheduler.claim(due, second), Claim::Started { .. }));
/// # Ok::<(), request_balancer::Findings>(())
/// ```
#[derive(Debug)]
pub struct Scheduler<W> {
    pub(super) plan: Arc<Plan>,
    pub(super) requests: Slab<Request<W>>,
    pub(super) queues: Slab<Queue>,
    pub(super) keys: Slab<KeyRecord>,
    pub(super) lanes: Box<[Lane]>,
    pub(super) rings: Box<[Ring]>,
    pub(super) rules: Box<[RuleState]>,
    pub(super) shared: LimitStates,
    pub(super) clocks: Box<[PaceClock]>,
    pub(super) pool: Option<Box<Pool>>,
    pub(super) days: Days,
    pub(super) hold: Instant,
    pub(super) hold_cause: HoldCause,
    /// When the last of all holds ends that were ever set.
    pub(super) last_hold: Instant,
    pub(super) guard: Guard,
    /// When the latest attempt began.
    pub(super) last_start: Instant,
    /// Parked queues, and requests that stepped out.
    pub(super) timers: Timers<Due>,
    /// When requests have stood in line, or attempts have run, for as long as they may.
    pub(super) deadlines: Timers<RequestId>,
    pub(super) sweeps: Sweeps,
    /// Grants by the end of their lease; all leases are of one length.
    pub(super) leases: VecDeque<(Instant, RequestId)>,
    /// When a turn could do more for the queues that are ready.
    pub(super) opens: Option<Instant>,
    /// Whether the last turn did all that could be done, and nothing happened since that could change its answers before
    /// `opens` but what is looked at where it happens.
    pub(super) settled: bool,
    /// Whether all shared limits are windows, whose answers a claim does not change.
    pub(super) only_windows: bool,
    /// Whether it matters to the last turn's answers when what is granted is claimed.
    pub(super) hangs_on_grants: bool,
    /// The short cuts of the rules.
    pub(super) quick: Box<[Option<Quick>]>,
    /// Scratch of a turn: lanes in the order in which they are served.
    pub(super) order: Vec<usize>,
    /// Scratch of a turn: shared limits that a costly request waits for.
    pub(super) reserved: Vec<usize>,
    /// Scratch of an observation: what it told, limit by limit.
    pub(super) told: Vec<(Spot, u16)>,
    pub(super) spots: Spots,
    pub(super) wakes: Vec<W>,
    pub(super) evicted: Vec<Evicted>,
    pub(super) door: Door,
    pub(super) streaks: Streaks,
    /// What there is to know of limits that are kept elsewhere, once there is such a place.
    pub(super) store: Option<Box<Store>>,
    pub(super) retries: Option<RetryBudget>,
    pub(super) notices: Vec<Notice>,
    pub(super) differences: Vec<Difference>,
    /// The limits that any of those was ever about.
    pub(super) differed: Vec<Origin>,
    pub(super) closed: bool,
    /// Nothing starts, whatever the rule.
    pub(super) paused: bool,
    /// Whether any limit counts, or counted, from the end of an attempt.
    pub(super) any_end: bool,
    /// Whether a server ever said anything of its own counters: then it matters when attempts end.
    pub(super) observes: bool,
    /// Whether a call went the long way since the owner found nothing to see to.
    pub(super) stirred: bool,
    /// The first instant that there is.
    begin: Instant,
    now: Instant,
}

/// What changes about a rule.
#[derive(Debug, Default)]
pub(super) struct RuleState {
    pub(super) hold: Instant,
    pub(super) hold_cause: HoldCause,
    pub(super) paused: bool,
    pub(super) in_line: usize,
    pub(super) running: usize,
}

/// What a timer is for, by index: a parked queue or a request that stepped out.
///
/// Whether it is still meant shows in its state, which names the instant. If something else took its place in the slab
/// and waits for the very same instant, then that is due, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due(u32);

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    Queue(u32),
    Request(u32),
}

impl Due {
    /// No slab has as many entries: it would be larger than all memory.
    const REQUEST: u32 = 1 << 31;

    pub(super) const fn queue(index: u32) -> Self {
        Self(index)
    }

    pub(super) const fn request(index: u32) -> Self {
        Self(index | Self::REQUEST)
    }

    pub(super) const fn whom(self) -> Whom {
        if self.0 & Self::REQUEST == 0 { Whom::Queue(self.0) } else { Whom::Request(self.0 & !Self::REQUEST) }
    }
}

impl<W> Scheduler<W> {
    /// An empty machine for these rules. Its time begins at [`Instant::ZERO`].
    #[must_use]
    pub fn new(plan: Arc<Plan>) -> Self {
        Self::beginning_at(Instant::ZERO, plan)
    }

    /// An empty machine for these rules. Its time begins at `begin`; what is before that are instants of earlier machines,
    /// whose starts it may be [told of](Self::import).
    #[must_use]
    pub fn beginning_at(begin: Instant, plan: Arc<Plan>) -> Self {
        let rule_state = |rule: &RulePlan| RuleState { paused: rule.paused, ..RuleState::default() };
        Self {
            requests: Slab::new(),
            queues: Slab::new(),
            keys: Slab::new(),
            lanes: Lane::all(&plan),
            rings: vec![Ring::EMPTY; plan.rules.len()].into_boxed_slice(),
            rules: plan.rules.iter().map(rule_state).collect(),
            shared: LimitStates::new(&plan.shared_limits),
            clocks: vec![PaceClock::from(begin); plan.shared_clocks].into_boxed_slice(),
            pool: plan.pool.as_ref().map(|pool| Box::new(Pool::new(pool))),
            days: Days::new(&plan.zones),
            hold: Instant::ZERO,
            hold_cause: HoldCause::default(),
            last_hold: Instant::ZERO,
            guard: Guard::new(plan.ban_guard),
            last_start: Instant::ZERO,
            timers: Timers::new(),
            deadlines: Timers::new(),
            sweeps: Sweeps::new(begin),
            leases: VecDeque::new(),
            opens: None,
            settled: false,
            hangs_on_grants: false,
            only_windows: plan.shares_only_windows(),
            quick: Quick::all(&plan),
            order: Vec::new(),
            reserved: Vec::new(),
            told: Vec::new(),
            spots: Spots::default(),
            wakes: Vec::new(),
            evicted: Vec::new(),
            door: Door::default(),
            streaks: Streaks::default(),
            store: None,
            retries: plan.retry_budget,
            any_end: plan.counts_any_end(),
            observes: false,
            notices: Vec::new(),
            differences: Vec::new(),
            differed: Vec::new(),
            begin,
            now: begin,
            closed: false,
            paused: false,
            stirred: false,
            plan,
        }
    }

    /// The rules it goes by.
    #[must_use]
    pub const fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Tells what a clock on the wall shows at `now`, in nanoseconds since 1970 in UTC: calendar limits go by it.
    ///
    /// Until then the machine's epoch is 1970. Told again, it goes by the new time from then on; what started on the
    /// same day counts on, and a clock set back over a midnight begins that day anew.
    pub fn set_wall_clock(&mut self, now: Instant, unix_nanos: i128) {
        let now = self.tick(now);
        self.days.set(now, unix_nanos);
        if self.plan.zones.is_empty() {
            return;
        }
        // Whoever waits for a midnight may wait for another one now.
        let keys: Vec<u32> = self.keys.indices().collect();
        for key in keys {
            self.redecide_all(key);
        }
        self.dispatch(now);
    }

    /// Makes a record for a key. `tag` is the owner's name for it, handed back when the record is evicted.
    ///
    /// A record without work is evicted within two seconds of the end of its last window and hold.
    pub fn add_key(&mut self, now: Instant, tag: u64) -> KeyId {
        let now = self.tick(now);
        let (index, generation) =
            self.keys.insert(|generation| KeyRecord::new(tag, &self.plan, self.begin, generation));
        // Not yet: its work comes next.
        self.sweeps.push_fresh(now.saturating_add(Nanos::new(1)), index);
        KeyId { index, generation }
    }

    /// Takes a request in and starts it at once if nothing is in the way: granted and claimed in one.
    ///
    /// # Errors
    /// Says why the request was turned away; nothing is kept of it then.
    pub fn enter(&mut self, now: Instant, key: KeyId, rule: RuleId, entry: Entry<'_>) -> Result<Enter, Turned> {
        let is_plain = entry.cost <= 1 && entry.units.is_empty() && entry.not_before.is_none();
        if is_plain && let Some(id) = self.start_at_once(now, key, rule) {
            return Ok(Enter::Started(id));
        }
        let now = self.tick(now);
        let queue = self.admit(key, rule, entry)?;
        if self.needs_no_wait(now, queue, entry) {
            let costs = Costs::new(entry.cost, entry.units);
            let id = self.start(now, queue, costs);
            if self.anything_ready() {
                // It is one of those that try an endpoint again: others belong elsewhere now.
                self.dispatch(now);
            }
            self.sweep_some(now);
            return Ok(Enter::Started(id));
        }
        let id = self.join(now, queue, entry)?;
        self.dispatch(now);
        Ok(match self.claim_granted(now, id) {
            Claim::Started { .. } => Enter::Started(id),
            Claim::Waiting | Claim::Running | Claim::Refused { .. } | Claim::Unknown => Enter::Waiting(id),
        })
    }

    /// Takes a request in without starting anything: [`dispatch`](Self::dispatch) grants it, its owner claims it.
    ///
    /// # Errors
    /// Says why the request was turned away; nothing is kept of it then.
    pub fn enqueue(&mut self, now: Instant, key: KeyId, rule: RuleId, entry: Entry<'_>) -> Result<RequestId, Turned> {
        let now = self.tick(now);
        let queue = self.admit(key, rule, entry)?;
        self.join(now, queue, entry)
    }

    /// Sets whom to wake when something becomes of the request: a grant, its turn to claim, a refusal, an abort, the end
    /// of the time that its attempt may run.
    ///
    /// Each waker is used once. The one that was set before comes back; for an unknown request, this one.
    pub fn set_waker(&mut self, id: RequestId, waker: W) -> Option<W> {
        if !self.requests.contains(id.index, id.generation) {
            return Some(waker);
        }
        self.requests[id.index].waker.replace(waker)
    }

    /// The waker that is set for a request and not used yet.
    #[must_use]
    pub fn waker(&self, id: RequestId) -> Option<&W> {
        self.requests.get(id.index, id.generation)?.waker.as_ref()
    }

    /// Takes back a waker that is set and not used yet, so that its owner may drop it where that does no harm.
    pub fn take_waker(&mut self, id: RequestId) -> Option<W> {
        if !self.requests.contains(id.index, id.generation) {
            return None;
        }
        self.requests[id.index].waker.take()
    }

    /// Whether a [`claim`](Self::claim) would start the request now.
    #[must_use]
    pub fn is_granted(&self, id: RequestId) -> bool {
        self.requests.get(id.index, id.generation).is_some_and(|request| {
            matches!(request.stage(), Stage::Granted { .. }) && self.queues[request.queue].granted.head == id.index
        })
    }

    /// Wakes the owners of all requests in line, before it, or whose attempts may only run for so long: all that wait
    /// for the machine. They look after themselves. Changes nothing else.
    pub fn wake_waiting(&mut self) {
        self.stirred = true;
        let waits = |request: &Request<W>| match request.stage() {
            Stage::Outside { .. }
            | Stage::Queued { .. }
            | Stage::Asked
            | Stage::Granted { .. }
            | Stage::Asleep
            | Stage::Out { .. } => true,
            Stage::Running => request.deadline() != Instant::NEVER,
            Stage::Overdue | Stage::Aborted | Stage::Refused { .. } => false,
        };
        let waiting: Vec<u32> = self.requests.indices().filter(|&index| waits(&self.requests[index])).collect();
        for index in waiting {
            self.wakes.extend(self.requests[index].waker.take());
        }
    }

    /// Takes up a grant: the attempt begins. Asked too early, it answers [`Claim::Waiting`].
    ///
    /// A request that slept because it let its lease pass is put back in line, in its old place.
    pub fn claim(&mut self, now: Instant, id: RequestId) -> Claim {
        let settled = self.settled;
        let now = self.tick(now);
        let Some(request) = self.requests.get(id.index, id.generation) else { return Claim::Unknown };
        match request.stage() {
            Stage::Outside { .. } | Stage::Queued { .. } | Stage::Asked | Stage::Out { .. } => Claim::Waiting,
            Stage::Running | Stage::Overdue | Stage::Aborted => Claim::Running,
            Stage::Refused { why } => {
                let waited = request.since.since(Instant::ZERO);
                self.retire(now, id.index);
                Claim::Refused { why, waited }
            }
            Stage::Asleep => {
                if self.refuse_if_stranded(now, id.index) {
                    return self.claim(now, id);
                }
                self.requeue(id.index, Instant::ZERO);
                self.dispatch(now);
                match self.requests[id.index].stage() {
                    // Its deadline had passed.
                    Stage::Refused { .. } => self.claim(now, id),
                    Stage::Outside { .. }
                    | Stage::Queued { .. }
                    | Stage::Asked
                    | Stage::Granted { .. }
                    | Stage::Asleep
                    | Stage::Out { .. }
                    | Stage::Running
                    | Stage::Overdue
                    | Stage::Aborted => self.claim_granted(now, id),
                }
            }
            Stage::Granted { .. } => {
                self.settled = settled;
                self.claim_granted(now, id)
            }
        }
    }

    /// Whether the instant at which a running request ends matters to a limit. If not, [`finish`](Self::finish) may be
    /// told any instant that has been, such as the latest that the machine knows.
    #[must_use]
    pub fn counts_end(&self, id: RequestId) -> bool {
        let Some(request) = self.requests.get(id.index, id.generation) else { return false };
        // What a server says of its counters is compared with when responses were read.
        let is_compared = self.observes && !request.is_read();
        is_compared || self.pool.is_some() || self.limits_count_end(id.index)
    }

    /// The attempt ended and so does the request. An unknown request is ignored.
    ///
    /// A waker that is set and not used yet comes back, so that its owner may drop it where that does no harm.
    pub fn finish(&mut self, now: Instant, id: RequestId) -> Option<W> {
        if let Some(waker) = self.end_quickly(now, id) {
            return waker;
        }
        let waker = self.take_waker(id);
        self.withdraw(now, id);
        waker
    }

    /// Whether there may be something for the owner to see to: somebody to wake or to forget, something to tell, an
    /// earlier wake-up. A start or an end that took the short cut leaves nothing.
    #[must_use]
    pub const fn is_stirred(&self) -> bool {
        self.stirred
    }

    /// The owner is to look in any case, as time has passed.
    pub const fn stir(&mut self) {
        self.stirred = true;
    }

    /// The owner looked, and there was nothing: until the next call that takes the long way there is no need to look.
    pub const fn calm(&mut self) {
        self.stirred = false;
    }

    /// The owner dropped the request, in whatever state: what it had not used is refunded. An unknown request is
    /// ignored.
    pub fn withdraw(&mut self, now: Instant, id: RequestId) {
        if self.leave_quickly(now, id) {
            return;
        }
        let settled = self.settled;
        let now = self.tick(now);
        if !self.requests.contains(id.index, id.generation) {
            return;
        }
        // Where it matters for others, that is noted on the way.
        self.settled = settled;
        match self.requests[id.index].stage() {
            Stage::Running | Stage::Overdue | Stage::Aborted => self.end_attempt(now, id.index),
            Stage::Outside { ticket } => self.leave_door(self.requests[id.index].queue, ticket),
            Stage::Asked | Stage::Granted { .. } => self.leave_line(now, id.index),
            Stage::Queued { .. } | Stage::Asleep | Stage::Out { .. } => {
                self.leave_line(now, id.index);
                self.retire(now, id.index);
                return self.after_departure(now);
            }
            Stage::Refused { .. } => {}
        }
        self.retire(now, id.index);
        self.after_minor_event(now);
    }

    /// Gives a key its own numbers under a rule, or with `None` the rule's again. Returns false for a stale key.
    ///
    /// They take the place of the rule's `per_key` and `key_concurrency`. Known starts count under the new numbers; what
    /// waits and can no longer fit is refused with [`Why::CostTooHigh`](super::Why::CostTooHigh), which costs a look at
    /// every request if any waits there. They go with the key's record: one that [`add_key`](Self::add_key) makes later is
    /// to be given them again.
    pub fn set_own(&mut self, now: Instant, key: KeyId, rule: RuleId, numbers: Option<Arc<[LimitSpec]>>) -> bool {
        let now = self.tick(now);
        if !self.keys.contains(key.index, key.generation) {
            return false;
        }
        let queue = self.queue_of(key.index, rule);
        self.renumber_in_store(now, queue, numbers.map(Own::given));
        self.redecide_all(key.index);
        // An idle key is not swept by the very turn that follows its news: its work comes next.
        self.queues[queue].requests += 1;
        self.dispatch(now);
        self.queues[queue].requests -= 1;
        self.note_idle(now, key.index);
        true
    }

    /// Whether another attempt may follow a failed one, as far as the retries go that everybody has together; takes it
    /// out of that budget.
    pub fn take_retry(&mut self) -> bool {
        self.retries.as_mut().is_none_or(RetryBudget::take)
    }

    /// Whether requests of the rule are taken in at all: it is not removed, and the machine is not closed.
    #[must_use]
    pub fn lets_in(&self, rule: RuleId) -> bool {
        !self.closed && !self.plan.rules[usize::from(rule.0)].removed
    }

    /// Whether the key's record is still there.
    #[must_use]
    pub fn knows(&self, key: KeyId) -> bool {
        self.keys.contains(key.index, key.generation)
    }

    /// Whether a key has its own numbers under a rule. False for a stale key.
    #[must_use]
    pub fn has_own(&self, key: KeyId, rule: RuleId) -> bool {
        let own = |queue: &Queue| queue.extras.numbers().is_some_and(|own| own.configured().is_some());
        self.knows(key) && self.find_queue(key.index, rule).is_some_and(|queue| own(&self.queues[queue]))
    }

    /// The key that a request belongs to now: that of another key's record, if the two became one.
    #[must_use]
    pub fn key_of(&self, id: RequestId) -> Option<KeyId> {
        let request = self.requests.get(id.index, id.generation)?;
        let index = self.queues[request.queue].key;
        Some(KeyId { index, generation: self.keys.generation(index) })
    }

    /// Whom to wake, in order. Empty most of the time; the caller drains it.
    pub const fn take_wakes(&mut self) -> &mut Vec<W> {
        &mut self.wakes
    }

    /// Records that were evicted since the list was last drained.
    pub const fn take_evicted(&mut self) -> &mut Vec<Evicted> {
        &mut self.evicted
    }

    /// The latest instant seen.
    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    /// The later of `now` and the latest instant seen: time does not go backwards in here.
    pub(super) fn tick(&mut self, now: Instant) -> Instant {
        self.stirred = true;
        self.settled = false;
        self.tick_quietly(now)
    }

    /// The same for a call that leaves nothing to see to.
    #[inline]
    pub(super) fn tick_quietly(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        if !self.plan.zones.is_empty() {
            self.days.advance(self.now);
        }
        self.now
    }

    /// Finds the request's queue, or says why it may not come in.
    pub(super) fn admit(&mut self, key: KeyId, rule: RuleId, entry: Entry<'_>) -> Result<u32, Turned> {
        if self.closed {
            return Err(Turned::Closed);
        }
        if !self.keys.contains(key.index, key.generation) {
            return Err(Turned::StaleKey);
        }
        if self.plan.rules[usize::from(rule.0)].removed {
            return Err(Turned::RuleRemoved);
        }
        let queue = self.queue_of(key.index, rule);
        let costs = Costs::new(entry.cost, entry.units);
        if !costs.is_plain() {
            let fits = self.must_fit(queue, entry.endpoints, costs);
            fits.map_err(|(cost, capacity)| Turned::CostTooHigh { cost, capacity })?;
        }
        Ok(queue)
    }

    /// Whether a new request may start at once.
    pub(super) fn needs_no_wait(&mut self, now: Instant, queue: u32, entry: Entry<'_>) -> bool {
        entry.not_before.is_none_or(|at| at <= now)
            && (self.pool.is_none() || entry.endpoints.is_empty())
            && self.is_clear(now, queue, Costs::new(entry.cost, entry.units))
    }

    /// What a request costs and what there is room for, if one of its limits never has room for it, or none of the
    /// endpoints that it may use.
    pub(super) fn must_fit(&self, queue: u32, endpoints: &[EndpointId], costs: Costs<'_>) -> Result<(), (u32, u32)> {
        let queue = &self.queues[queue];
        let rule = &self.plan.rules[usize::from(queue.rule)];
        let key = rule.key.iter().map(|bound| &self.plan.key_limits[bound.limit]);
        let shared = rule.shared.iter().map(|bound| &self.plan.shared_limits[bound.limit]);
        for spec in Queue::own(&queue.extras, rule).iter().chain(key).chain(shared) {
            let (cost, capacity) = (costs.of(spec.charge), limit::capacity(spec.kind));
            if cost > capacity {
                return Err((cost, capacity));
            }
        }
        self.plan.must_fit_pool(endpoints, costs)
    }
}
