//! Who is served how often: counted at every grant, over the stretches of time in which those concerned are ready.
//!
//! A queue is ready while its first request has no obstacle. Whatever makes a comparison doubtful starts it anew.

use std::collections::BTreeMap;

use super::books::{Books, Obstacle, Stage, Wrong};
use super::history::Entry;

/// A rule and a key.
pub(crate) type QueueId = (usize, u64);

/// What was counted, and the largest values seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    pairs: BTreeMap<(QueueId, QueueId), Gap>,
    turns: BTreeMap<QueueId, Turn>,
    bypassed: BTreeMap<usize, u64>,
    passed: BTreeMap<QueueId, u64>,
    pub(crate) largest: Largest,
}

/// Service of one queue less that of another, each by the other's weight, with its extremes.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    now: i64,
    least: i64,
    most: i64,
    /// Which of the two was served last, and how often it was another one than before: queues that weigh more than one
    /// are compared from a whole turn on.
    last: Option<QueueId>,
    switches: u32,
}

/// Grants of a lane that a ready queue lets pass.
#[derive(Clone, Debug)]
struct Turn {
    passed: u64,
    /// Those that waited when it became ready: it may let each have one turn.
    before: Vec<QueueId>,
}

/// The largest values seen, each beside what it is compared with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Largest {
    /// Gap between two queues, in thousandths of what it may be.
    pub(crate) gap: u64,
    pub(crate) pairs: u64,
    /// Grants that a ready queue let pass, beyond one turn of each that waited before it.
    pub(crate) turn: i64,
    pub(crate) turns: u64,
    /// Grants that a ready lane let pass, beyond its allowance.
    pub(crate) bypass: i64,
    pub(crate) bypasses: u64,
    /// Starts of siblings that a queue let pass, beyond what it has patience for.
    pub(crate) sibling: i64,
    pub(crate) siblings: u64,
}

impl Largest {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            gap: self.gap.max(other.gap),
            pairs: self.pairs + other.pairs,
            turn: larger((self.turn, self.turns), (other.turn, other.turns)),
            turns: self.turns + other.turns,
            bypass: larger((self.bypass, self.bypasses), (other.bypass, other.bypasses)),
            bypasses: self.bypasses + other.bypasses,
            sibling: larger((self.sibling, self.siblings), (other.sibling, other.siblings)),
            siblings: self.siblings + other.siblings,
        }
    }
}

/// The larger of two values, of which each was seen so many times.
fn larger((one, seen): (i64, u64), (other, also_seen): (i64, u64)) -> i64 {
    match (seen, also_seen) {
        (0, _) => other,
        (_, 0) => one,
        _ => one.max(other),
    }
}

impl Shares {
    /// The order of grants is not certain: everything is counted anew.
    pub(crate) fn reset(&mut self) {
        *self = Self { largest: self.largest, ..Self::default() };
    }
}

impl Books {
    /// Counts a grant that is about to be written down.
    pub(crate) fn count_grant(&mut self, number: usize) -> Result<(), Wrong> {
        let entry = &self.requests[number].entry;
        let (served, cost) = ((entry.rule, entry.key), self.spec.cost_of_turn(entry.cost));
        if self.blind || self.requests.iter().any(|request| request.stage == Stage::Perhaps) {
            self.shares.reset();
            return Ok(());
        }
        let waiting = self.waiting_queues();
        let trickles = |&(rule, key): &QueueId| self.may_trickle(rule, key);
        // With a costly one waits whoever needs the same room, and nobody else.
        if self.a_costly_one_waits(&waiting) || waiting.iter().any(trickles) {
            self.shares.reset();
            return Ok(());
        }
        let ready: Vec<QueueId> = waiting
            .iter()
            .copied()
            .filter(|&(rule, key)| self.head(rule, key).is_some_and(|head| self.obstacles(head, true).is_empty()))
            .collect();
        if !self.has_siblings() {
            // One clock for all of a lane is in nobody's way more than in another's.
            let ready: Vec<QueueId> = ready.iter().copied().filter(|&(rule, _)| self.is_paced_alike(rule)).collect();
            self.count_pairs(served, cost, &ready)?;
            self.count_turns(served, cost, &ready, &waiting)?;
        }
        if self.requests.iter().any(|request| !request.entry.cost.is_plain()) {
            return Ok(());
        }
        let ready: Vec<QueueId> = ready.into_iter().filter(|&(rule, _)| !self.is_paced(rule)).collect();
        self.count_lanes(served, &ready)?;
        self.count_siblings(served, &waiting)
    }

    /// Forgets what was counted of a queue that is no longer ready, were it only for a moment: it lost its place.
    pub(crate) fn forget_unready(&mut self, queue: QueueId) {
        let own_affairs = |obstacle: &Obstacle| match obstacle {
            Obstacle::Paused | Obstacle::Until(_) => true,
            Obstacle::Full { limit, .. } => self.limits[*limit].each_key,
        };
        let head = self.head(queue.0, queue.1);
        if head.is_none_or(|head| self.obstacles(head, true).iter().any(own_affairs)) {
            self.shares.pairs.retain(|&(a, b), _| a != queue && b != queue);
            self.shares.turns.remove(&queue);
        }
        let lane = self.spec.rules[queue.0].lane;
        let in_lane = |rule: usize| self.spec.rules[rule].lane == lane;
        if !self.requests.iter().any(|request| request.stage.in_line() && in_lane(request.entry.rule)) {
            self.shares.bypassed.remove(&lane);
        }
    }

    /// Whether a key has requests of several rules.
    fn has_siblings(&self) -> bool {
        let mut rules = BTreeMap::new();
        self.requests
            .iter()
            .any(|request| *rules.entry(request.entry.key).or_insert(request.entry.rule) != request.entry.rule)
    }

    /// Whether the first of a queue costs so much that it waits for room in a limit of several keys.
    fn a_costly_one_waits(&self, waiting: &[QueueId]) -> bool {
        let heads = waiting.iter().filter_map(|&(rule, key)| self.head(rule, key));
        heads.filter(|&head| !self.requests[head].entry.cost.is_plain()).any(|head| {
            self.obstacles(head, true).iter().any(|obstacle| match obstacle {
                Obstacle::Full { limit, .. } => !self.limits[*limit].each_key,
                Obstacle::Paused | Obstacle::Until(_) => false,
            })
        })
    }

    /// The largest costs of a turn: of a lane, and of each queue.
    fn largest_costs(&self) -> (Vec<u64>, BTreeMap<QueueId, u64>) {
        let mut of_lanes = vec![1; self.spec.lanes.len()];
        let mut of_queues = BTreeMap::new();
        for request in &self.requests {
            let Entry { rule, key, .. } = request.entry;
            let cost = self.spec.cost_of_turn(request.entry.cost).max(self.spec.cost_of_turn(request.asked));
            let of_lane = &mut of_lanes[self.spec.rules[rule].lane];
            *of_lane = cost.max(*of_lane);
            let of_queue = of_queues.entry((rule, key)).or_insert(1);
            *of_queue = cost.max(*of_queue);
        }
        (of_lanes, of_queues)
    }

    /// Two ready queues of a lane differ by one request per weight at most, or with costs by the lane's largest and what
    /// each may have left of a turn.
    fn count_pairs(&mut self, served: QueueId, cost: u64, ready: &[QueueId]) -> Result<(), Wrong> {
        let (of_lanes, of_queues) = self.largest_costs();
        let Self { shares, spec, .. } = self;
        let cost = cost as i64;
        let largest = |queue: QueueId| of_queues.get(&queue).map_or(1, |&cost| cost as i64);
        let weight = |queue: QueueId| spec.rules[queue.0].weight as i64;
        let lane = |queue: QueueId| spec.rules[queue.0].lane;
        shares.pairs.retain(|&(a, b), _| ready.contains(&a) && ready.contains(&b));
        for (position, &a) in ready.iter().enumerate() {
            for &b in ready[position + 1..].iter().filter(|&&b| lane(a) == lane(b)) {
                let gap = shares.pairs.entry((a, b)).or_default();
                if served == a || served == b {
                    gap.switches += u32::from(gap.last.is_some_and(|last| last != served));
                    gap.last = Some(served);
                }
                if weight(a) * weight(b) > 1 && gap.switches < 2 {
                    continue;
                }
                if served == a {
                    gap.now += cost * weight(b);
                } else if served == b {
                    gap.now -= cost * weight(a);
                }
                gap.least = gap.least.min(gap.now);
                gap.most = gap.most.max(gap.now);
                let left = (largest(a) - 1) * weight(b) + (largest(b) - 1) * weight(a);
                let bound = of_lanes[lane(a)] as i64 * weight(a) * weight(b) + left;
                let width = gap.most - gap.least;
                shares.largest.gap = shares.largest.gap.max((width * 1_000 / bound) as u64);
                shares.largest.pairs += 1;
                if width > bound {
                    return Err(format!("{a:?} and {b:?}, both ready, differ by {width}/{bound} of a request"));
                }
            }
        }
        Ok(())
    }

    /// A ready queue lets pass one turn of each queue that waited when it became ready, and no more.
    fn count_turns(&mut self, served: QueueId, cost: u64, ready: &[QueueId], waiting: &[QueueId]) -> Result<(), Wrong> {
        let (of_lanes, of_queues) = self.largest_costs();
        let Self { shares, spec, .. } = self;
        let lane = |queue: QueueId| spec.rules[queue.0].lane;
        shares.turns.retain(|queue, _| ready.contains(queue));
        for &queue in ready.iter().filter(|&&queue| lane(queue) == lane(served)) {
            let others = waiting.iter().copied().filter(|&other| other != queue && lane(other) == lane(queue));
            let turn = shares.turns.entry(queue).or_insert_with(|| Turn { passed: 0, before: others.collect() });
            if queue == served {
                shares.turns.remove(&queue);
                continue;
            }
            turn.passed += cost;
            // The turn of one whose first request became a costlier one than all had been is worth what one is by then: no
            // turn is worth more than the largest cost of now.
            let turn_of = |other: &QueueId| spec.rules[other.0].weight * of_lanes[lane(queue)] + of_queues[other] - 1;
            let bound: u64 = turn.before.iter().map(turn_of).sum();
            let beyond = turn.passed as i64 - bound as i64;
            shares.largest.turn = larger((shares.largest.turn, shares.largest.turns), (beyond, 1));
            shares.largest.turns += 1;
            if turn.passed > bound {
                return Err(format!("{queue:?}, ready, let {} pass, of {bound} at most", turn.passed));
            }
        }
        Ok(())
    }

    /// A ready lane is served once in K + L grants.
    fn count_lanes(&mut self, served: QueueId, ready: &[QueueId]) -> Result<(), Wrong> {
        let lanes = self.spec.lanes.len();
        let lane_of = |rule: usize| self.spec.rules[rule].lane;
        let own = lane_of(served.0);
        let is_ready =
            |lane| ready.iter().any(|&(rule, key)| lane_of(rule) == lane && !self.has_waiting_sibling((rule, key)));
        let ready_lanes: Vec<bool> = (0..lanes).map(is_ready).collect();
        for (lane, is_ready) in ready_lanes.into_iter().enumerate() {
            if lane == own || !is_ready {
                self.shares.bypassed.remove(&lane);
                continue;
            }
            let Some(allowance) = self.spec.lanes[lane].allowance(lanes) else { continue };
            let bypassed = self.shares.bypassed.entry(lane).or_default();
            *bypassed += 1;
            let beyond = *bypassed as i64 - allowance as i64;
            let largest = &mut self.shares.largest;
            largest.bypass = if largest.bypasses == 0 { beyond } else { largest.bypass.max(beyond) };
            largest.bypasses += 1;
            if beyond > lanes as i64 - 1 {
                return Err(format!("lane {lane}, ready, let {bypassed} pass, {allowance} allowed, {lanes} lanes"));
            }
        }
        Ok(())
    }

    fn has_waiting_sibling(&self, (rule, key): QueueId) -> bool {
        self.requests.iter().any(|request| {
            request.entry.key == key
                && request.entry.rule != rule
                && request.stage.in_line()
                && request.stage != Stage::Asleep
        })
    }

    /// A queue that waits for room that its siblings use is served once in so many starts of theirs.
    fn count_siblings(&mut self, served: QueueId, waiting: &[QueueId]) -> Result<(), Wrong> {
        let lanes = self.spec.lanes.len();
        for &queue in waiting.iter().filter(|&&(_, key)| key == served.1) {
            let shares = |limit: &super::limits::Limit| {
                limit.each_key && limit.binds(queue.0, queue.1) && limit.binds(served.0, served.1)
            };
            let alone = self.requests.iter().all(|request| request.entry.key == served.1);
            let only_siblings = self.head(queue.0, queue.1).is_some_and(|head| {
                self.obstacles(head, true).iter().all(|obstacle| match obstacle {
                    Obstacle::Full { limit, .. } => shares(&self.limits[*limit]),
                    Obstacle::Paused | Obstacle::Until(_) => false,
                })
            });
            let allowance = self.spec.lanes[self.spec.rules[queue.0].lane].allowance(lanes);
            let only_siblings = only_siblings && !self.is_paced(queue.0);
            let (true, true, true, Some(allowance)) =
                (alone, only_siblings, queue != served && self.limits.iter().any(shares), allowance)
            else {
                self.shares.passed.remove(&queue);
                continue;
            };
            let passed = self.shares.passed.entry(queue).or_default();
            *passed += 1;
            let beyond = *passed as i64 - allowance.max(1) as i64;
            let largest = &mut self.shares.largest;
            largest.sibling = if largest.siblings == 0 { beyond } else { largest.sibling.max(beyond) };
            largest.siblings += 1;
            // Each of the others may be owed its own turn first, of K + L starts.
            let weights: u64 = self.spec.rules.iter().map(|rule| rule.weight).sum();
            if *passed > weights * (allowance.max(1) + lanes as u64) {
                return Err(format!("{queue:?} let {passed} starts of its siblings pass, {allowance} allowed"));
            }
        }
        Ok(())
    }
}
