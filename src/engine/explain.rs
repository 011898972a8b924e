//! Why a request does not start: facts, limit by limit.

use super::answer::{KeyId, RequestId, Target};
use super::cost::{Costs, OwnCosts};
use super::gate::pace_due;
use super::hold::Held;
use super::limit::{Ask, Days, LimitStates};
use super::plan::{Charge, LimitKind, LimitRef, LimitSpec, Origin, RuleId};
use super::pool::EndpointAnswer;
use super::queue::{Queue, QueueState};
use super::request::Stage;
use super::scheduler::Scheduler;
use super::slab::NIL;
use super::time::Instant;

/// What there is to say about a request, that is in the machine or might come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Where it stands.
    pub standing: Standing,
    /// Requests of its queue that are before it.
    pub ahead: usize,
    /// Other queues whose turn comes before that of its own: of its lane and of those above.
    pub turns: usize,
    /// What else than a limit is in its way.
    pub hindrances: Vec<Hindrance>,
    /// Every limit that binds it.
    pub limits: Vec<LimitAnswer>,
    /// What the endpoints say that it may use.
    pub endpoints: Vec<EndpointAnswer>,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is not in the machine.
    New,
    /// Before the line, which has no room for it.
    Outside,
    /// In its queue.
    Waiting,
    /// It was granted and has yet to claim.
    Granted,
    /// It let its grant pass, and waits for its owner to ask again.
    Asleep,
    /// It stepped out of line until an instant.
    Out(Instant),
    /// Its attempt runs.
    Running,
    /// It was refused.
    Refused,
}

/// What is in a request's way beside limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// The machine is closed.
    Closed,
    /// Its rule is gone.
    RuleRemoved,
    /// Its rule is paused.
    Paused,
    /// Too many attempts were invalid.
    BanGuard(Instant),
    /// A target that it belongs to is held.
    Held(Target, Held),
    /// It is not to start before this.
    NotBefore(Instant),
    /// The key's next room is owed to its queue of another rule.
    Owed(RuleId),
    /// Its lane leaves room for more urgent ones.
    Paced(Instant),
}

/// What one limit says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitAnswer {
    /// Whose words the limit is.
    pub origin: Origin,
    /// What it enforces.
    pub kind: LimitKind,
    /// What it counts.
    pub charge: Charge,
    /// Whether there is room.
    pub room: Room,
    /// How many the server leaves, if it said so: what is under way is taken off.
    pub left_at_server: Option<u32>,
}

/// Whether a limit has room for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It has.
    Now,
    /// At this instant, if nobody else comes first.
    At(Instant),
    /// Not before this instant, and not before what was granted is taken up or given back.
    Unclaimed(Instant),
    /// When a running attempt ends.
    WhenOneEnds,
}

/// A key and a queue of it, as far as there are records of them.
#[derive(Clone, Copy)]
struct Place {
    key: Option<u32>,
    queue: Option<u32>,
}

impl<W> Scheduler<W> {
    /// What is in the way of a new request of cost 1. Without a key (or with a stale one): of a key that nothing is
    /// known of.
    pub fn explain(&mut self, now: Instant, rule: RuleId, key: Option<KeyId>) -> Explained {
        let mut explained = self.obstacles(now, rule, key);
        let queue = self.place(rule, key).queue;
        explained.ahead = queue.map_or(0, |queue| self.queues[queue].in_line as usize);
        explained.turns = self.turns_before(rule, queue);
        explained
    }

    /// The same without who is before it, for whom nobody is looked at: 0 as far as that goes.
    pub fn obstacles(&mut self, now: Instant, rule: RuleId, key: Option<KeyId>) -> Explained {
        let now = self.tick(now);
        let endpoints = self.explain_endpoints(now, None, key);
        let standing = Standing::New;
        let mut explained =
            Explained { standing, ahead: 0, turns: 0, hindrances: Vec::new(), limits: Vec::new(), endpoints };
        if self.closed {
            explained.hindrances.push(Hindrance::Closed);
        }
        if self.plan.rules[usize::from(rule.0)].removed {
            explained.hindrances.push(Hindrance::RuleRemoved);
        }
        let place = self.place(rule, key);
        self.explain_place(&mut explained, now, rule, place, Costs::ONE);
        explained
    }

    fn place(&self, rule: RuleId, key: Option<KeyId>) -> Place {
        let key = key.filter(|key| self.keys.contains(key.index, key.generation)).map(|key| key.index);
        Place { key, queue: key.and_then(|key| self.find_queue(key, rule)) }
    }

    /// What is in the way of a request; `None` if the machine knows no such request.
    pub fn explain_request(&mut self, now: Instant, id: RequestId) -> Option<Explained> {
        let mut explained = self.obstacles_of(now, id)?;
        let queue = self.requests.get(id.index, id.generation)?.queue;
        explained.ahead = match explained.standing {
            Standing::Waiting | Standing::Granted => self.before(queue, id.index),
            Standing::Outside => self.queues[queue].in_line as usize,
            Standing::New | Standing::Asleep | Standing::Out(_) | Standing::Running | Standing::Refused => 0,
        };
        explained.turns = match explained.standing {
            Standing::Granted | Standing::Running | Standing::Refused => 0,
            Standing::New | Standing::Outside | Standing::Waiting | Standing::Asleep | Standing::Out(_) => {
                self.turns_before(RuleId(self.queues[queue].rule), Some(queue))
            }
        };
        Some(explained)
    }

    /// The same without who is before it, for whom nobody is looked at: 0 as far as that goes.
    pub fn obstacles_of(&mut self, now: Instant, id: RequestId) -> Option<Explained> {
        let now = self.tick(now);
        let request = self.requests.get(id.index, id.generation)?;
        let (queue, mut hindrances) = (request.queue, Vec::new());
        let standing = match request.stage() {
            Stage::Outside { .. } => Standing::Outside,
            Stage::Queued { not_before } => {
                if not_before > now {
                    hindrances.push(Hindrance::NotBefore(not_before));
                }
                Standing::Waiting
            }
            Stage::Asked => Standing::Waiting,
            Stage::Granted { .. } => Standing::Granted,
            Stage::Asleep => Standing::Asleep,
            Stage::Out { until } => Standing::Out(until),
            Stage::Running | Stage::Overdue | Stage::Aborted => Standing::Running,
            Stage::Refused { .. } => Standing::Refused,
        };
        let mut explained =
            Explained { standing, ahead: 0, turns: 0, hindrances, limits: Vec::new(), endpoints: Vec::new() };
        match standing {
            // A grant has its room already.
            Standing::Granted | Standing::Running | Standing::Refused => return Some(explained),
            Standing::New | Standing::Outside | Standing::Waiting | Standing::Asleep | Standing::Out(_) => {}
        }
        let costs = OwnCosts::new(request.costs());
        let (rule, key) = (RuleId(self.queues[queue].rule), self.queues[queue].key);
        self.explain_place(&mut explained, now, rule, Place { key: Some(key), queue: Some(queue) }, costs.get());
        explained.endpoints = self.explain_endpoints(now, Some(id), None);
        Some(explained)
    }

    fn explain_place(&mut self, explained: &mut Explained, now: Instant, rule: RuleId, at: Place, costs: Costs<'_>) {
        let hindrances = &mut explained.hindrances;
        if self.is_paused(usize::from(rule.0)) {
            hindrances.push(Hindrance::Paused);
        }
        if self.guard.closed_until() > now {
            hindrances.push(Hindrance::BanGuard(self.guard.closed_until()));
        }
        let mut targets = vec![Target::Overall, Target::Rule(rule)];
        if let Some(index) = at.key {
            let key = KeyId { index, generation: self.keys.generation(index) };
            targets.extend([Target::Key(key), Target::Queue(rule, key)]);
        }
        let held = targets.into_iter().filter_map(|target| Some(Hindrance::Held(target, self.held(now, target)?)));
        hindrances.extend(held);
        if let Some(owed) = at.queue.and_then(|queue| self.owed_to(queue)) {
            hindrances.push(Hindrance::Owed(owed));
        }
        let lane = self.plan.rules[usize::from(rule.0)].lane;
        let waived = self.lanes[lane].overdue().is_some();
        let mut due = Instant::ZERO;
        let Self { plan, queues, keys, shared, clocks, days, .. } = self;
        let plan_of_rule = &plan.rules[usize::from(rule.0)];
        if !waived {
            due = pace_due(&plan_of_rule.shared_pace, clocks, costs);
        }
        let mut owed = false;
        let mut fresh_own;
        let mut fresh_key;
        let (numbers, own) = match at.queue.map(|queue| &mut queues[queue]) {
            Some(queue) => {
                owed = queue.owed;
                (Queue::own(&queue.extras, plan_of_rule), &mut queue.limits)
            }
            None => {
                fresh_own = LimitStates::new(&plan_of_rule.own);
                (&*plan_of_rule.own, &mut fresh_own)
            }
        };
        let of_key = match at.key.map(|key| &mut keys[key]) {
            Some(key) => {
                if !waived && !owed {
                    due = due.max(pace_due(&plan_of_rule.key_pace, key.extras.clocks(), costs));
                }
                &mut key.limits
            }
            None => {
                fresh_key = LimitStates::new(&plan.key_limits);
                &mut fresh_key
            }
        };
        if due > now {
            hindrances.push(Hindrance::Paced(due));
        }
        let answers = &mut explained.limits;
        for limit in 0..numbers.len() {
            let bound = LimitRef { limit, reserve: 0 };
            answers.extend(answer(own, numbers, bound, days, now, costs));
        }
        let reserved =
            |bound: &LimitRef, waived| LimitRef { reserve: if waived { 0 } else { bound.reserve }, ..*bound };
        for bound in &plan_of_rule.key {
            answers.extend(answer(of_key, &plan.key_limits, reserved(bound, waived || owed), days, now, costs));
        }
        for bound in &plan_of_rule.shared {
            answers.extend(answer(shared, &plan.shared_limits, reserved(bound, waived), days, now, costs));
        }
    }

    /// How many of its queue start before a request that is waiting or granted.
    fn before(&self, queue: u32, request: u32) -> usize {
        let queue = &self.queues[queue];
        let first = (!queue.waiting.is_empty()).then_some(queue.waiting.head);
        let next = |&index: &u32| Some(self.requests[index].links.next).filter(|&next| next != NIL);
        let waiting = std::iter::successors(first, next);
        queue.granted.iter(&self.requests).chain(waiting).take_while(|&index| index != request).count()
    }

    /// How many ready queues are served before one: those before it in its lane, all of its lane if it is not ready,
    /// and those of the lanes above.
    fn turns_before(&self, rule: RuleId, queue: Option<u32>) -> usize {
        let own_lane = self.plan.rules[usize::from(rule.0)].lane;
        let ready = queue.filter(|&queue| self.queues[queue].state() == QueueState::Ready);
        let mut turns = 0;
        for lane in 0..=own_lane {
            for &rule in &self.lanes[lane].rules {
                let mut other = self.rings[rule].head;
                while other != NIL {
                    let later = ready
                        .is_some_and(|own| lane == own_lane && self.queues[other].ticket >= self.queues[own].ticket);
                    turns += usize::from(!later && Some(other) != queue);
                    other = self.queues[other].ring.next;
                }
            }
        }
        turns
    }

    /// To which of the key's other queues the next room is owed that this one would need, too.
    fn owed_to(&self, queue: u32) -> Option<RuleId> {
        let own = &self.queues[queue];
        if own.owed {
            return None;
        }
        let mut sibling = own.sibling;
        while sibling != queue {
            let record = &self.queues[sibling];
            if record.owed && self.plan.common_key_limits(record.rule, own.rule).next().is_some() {
                return Some(RuleId(record.rule));
            }
            sibling = record.sibling;
        }
        None
    }
}

/// What one of several limits says, if it counts anything of the costs.
fn answer(
    states: &mut LimitStates,
    specs: &[LimitSpec],
    bound: LimitRef,
    days: &Days,
    now: Instant,
    costs: Costs<'_>,
) -> Option<LimitAnswer> {
    let LimitSpec { origin, kind, charge, .. } = &specs[bound.limit];
    if costs.of(*charge) == 0 {
        return None;
    }
    let room = match states.ask_refs(specs, std::slice::from_ref(&bound), days, now, costs, false) {
        Ask::Room => Room::Now,
        Ask::At(at) => Room::At(at),
        Ask::Unclaimed(at) => Room::Unclaimed(at),
        Ask::Busy => Room::WhenOneEnds,
    };
    let left_at_server = states.as_mut_slice()[bound.limit].left_at_server(now);
    Some(LimitAnswer { origin: origin.clone(), kind: *kind, charge: *charge, room, left_at_server })
}
