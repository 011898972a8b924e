//! What a server says of its own counters: which limit each of its windows narrows, and what follows.

use std::sync::Arc;

use super::answer::{KeyId, RequestId, Target};
use super::guard::Notice;
use super::limit::{self, Word};
use super::plan::{Charge, LimitKind, LimitRef, LimitSpec, Narrows, Origin, RuleId, RulePlan};
use super::pool::{EndpointId, EndpointPlan};
use super::queue::Queue;
use super::scheduler::Scheduler;
use super::store::Site;
use super::time::{Instant, Nanos};

/// What a response says of one of the server's windows.
#[derive(Clone, Copy, Debug)]
pub struct ServerWindow<'a> {
    /// What the server calls it. Together with [`per`](Self::per), it tells the window from the server's other ones.
    pub name: &'a str,
    /// What it counts.
    pub charge: Charge,
    /// For whom it counts; `None`: not told.
    pub side: Option<Side>,
    /// How many it allows.
    pub limit: Option<u32>,
    /// How many are left.
    pub left: Option<u32>,
    /// How long it is; `None`: not told.
    pub per: Option<Nanos>,
    /// When it begins anew.
    pub reset: Option<ServerReset>,
}

/// For whom a server's window counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The key of the request.
    Key,
    /// All keys.
    All,
}

/// When a server's window begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerReset {
    /// How long after the response was written.
    pub after: Nanos,
    /// How exactly that is told.
    pub grain: Nanos,
}

/// A limit that the server has other numbers for than the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Whose words the limit is.
    pub origin: Origin,
    /// What it counts.
    pub charge: Charge,
    /// The name of the server's window.
    pub window: Arc<str>,
    /// How many the rules allow.
    pub configured: u32,
    /// In how long, margin included.
    pub period: Nanos,
    /// How many the server allows.
    pub reported: u32,
    /// How often it said so.
    pub seen: u64,
}

/// Differences that are told apart; the one that was not seen for longest goes.
const DIFFERENCES: usize = 64;

/// What stands in the rules for the windows that they do not name.
const ALL_OTHERS: &str = "*";

/// Where a limit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    Own(usize),
    Key(usize),
    Shared(usize),
    /// Of the endpoint.
    Endpoint(usize),
    /// Of the key on the endpoint.
    Seat(usize),
}

/// Whose limits they may be.
#[derive(Clone, Copy)]
struct Circle {
    rule: Option<u16>,
    key: Option<u32>,
    queue: Option<u32>,
    /// In a pool servers count for each endpoint.
    endpoint: Option<EndpointId>,
}

impl<W> Scheduler<W> {
    /// Takes in what the response to a running attempt says, before anything else is granted.
    ///
    /// It only ever narrows: until its reset, and no longer than [`Plan::max_hold`](super::Plan::max_hold) or the limit's
    /// period, each window lets no more of its limit start than it has left, less what is granted or runs and less what
    /// ended without a word about it since the request was sent. Returns false, and takes
    /// nothing in, if no such attempt runs.
    pub fn observe<'a>(
        &mut self,
        now: Instant,
        id: RequestId,
        windows: impl IntoIterator<Item = ServerWindow<'a>>,
    ) -> bool {
        let now = self.tick_quietly(now);
        let running = self.requests.get(id.index, id.generation).filter(|request| request.stage().may_go_on());
        let Some(request) = running else { return false };
        let (queue, sent, was_read) = (request.queue, request.since, request.is_read());
        let (rule, key) = (self.queues[queue].rule, self.queues[queue].key);
        let endpoint = request.route().and_then(|route| route.at);
        // What the server says of a token that was renewed since is not about the new one.
        let is_about_endpoint = self.lasting_endpoint_of(id).is_some();
        let circle = Circle { rule: Some(rule), key: Some(key), queue: Some(queue), endpoint };
        let mut told = std::mem::take(&mut self.told);
        told.clear();
        let mut is_any = false;
        for window in windows {
            is_any = true;
            self.observes = true;
            let Some((spot, window)) = self.aim(circle, window) else { continue };
            if spot.is_of_endpoint() && !is_about_endpoint {
                continue;
            }
            self.compare(circle, spot, &window);
            self.learn(now, queue, spot, &window);
            if let Some(windows) = self.narrow(now, Some((id.index, sent)), circle, spot, &window) {
                match told.iter_mut().find(|(at, _)| *at == spot) {
                    Some((_, bits)) => *bits |= windows,
                    None => told.push((spot, windows)),
                }
            }
        }
        if is_any && !was_read {
            self.requests[id.index].note_read();
            self.read_all(now, id.index, &told);
        }
        self.told = told;
        self.settled = false;
        self.redecide_all(key);
        self.pool_event();
        // While nobody stands in line there is nothing that it could be a turn for.
        if self.anything_ready() || self.is_due(now) || self.pool.is_some() || !self.door.is_empty() {
            self.stirred = true;
            self.after_event(now);
        }
        true
    }

    /// Takes in what the server says of a target's limits by other ways than a response to a request: as of now.
    ///
    /// Returns false for a stale key. [`Target::Request`] has no limits.
    pub fn observe_target<'a>(
        &mut self,
        now: Instant,
        target: Target,
        windows: impl IntoIterator<Item = ServerWindow<'a>>,
    ) -> bool {
        let now = self.tick(now);
        let circle = match target {
            Target::Overall => Circle { rule: None, key: None, queue: None, endpoint: None },
            Target::Endpoint(endpoint) => Circle { rule: None, key: None, queue: None, endpoint: Some(endpoint) },
            Target::Rule(rule) => Circle { rule: Some(rule.0), key: None, queue: None, endpoint: None },
            Target::Key(KeyId { index, generation }) | Target::Queue(_, KeyId { index, generation })
                if !self.keys.contains(index, generation) =>
            {
                return false;
            }
            Target::Key(key) => Circle { rule: None, key: Some(key.index), queue: None, endpoint: None },
            Target::Queue(rule, key) => {
                let queue = self.queue_of(key.index, rule);
                Circle { rule: Some(rule.0), key: Some(key.index), queue: Some(queue), endpoint: None }
            }
            Target::Request => return true,
        };
        for window in windows {
            self.observes = true;
            if let Some((spot, window)) = self.aim(circle, window) {
                self.compare(circle, spot, &window);
                self.narrow(now, None, circle, spot, &window);
            }
        }
        if let Some(key) = circle.key {
            self.redecide_all(key);
            self.note_idle(now, key);
        }
        self.pool_event();
        self.dispatch(now);
        true
    }

    /// The limit that a window narrows, and how. One that counts what no limit does says nothing of requests while
    /// something is left of it, and stops them all where nothing is.
    fn aim<'a>(&mut self, circle: Circle, window: ServerWindow<'a>) -> Option<(Spot, ServerWindow<'a>)> {
        if let Some(spot) = self.spot_again(circle, &window) {
            return Some((spot, window));
        }
        let is_counted = || self.candidates(circle).any(|(_, spec)| spec.charge == window.charge);
        if window.left != Some(0) || window.charge == Charge::Requests || is_counted() {
            return None;
        }
        let window = ServerWindow { charge: Charge::Requests, limit: None, ..window };
        self.spot_again(circle, &window).map(|spot| (spot, window))
    }

    /// The limit that a window narrows, looked up where it went before.
    fn spot_again(&mut self, circle: Circle, window: &ServerWindow<'_>) -> Option<Spot> {
        let (Some(rule), Some(queue)) = (circle.rule, circle.queue) else { return self.spot(circle, window) };
        if self.queues[queue].extras.numbers().is_some() {
            return self.spot(circle, window);
        }
        if let Some(spot) = self.spots.get(rule, circle.endpoint, window) {
            return spot;
        }
        let spot = self.spot(circle, window);
        self.spots.note(rule, circle.endpoint, window, spot);
        spot
    }

    /// The limit that a window narrows: of those that count the same, on its side if there are any, the one whose period
    /// and count are most like its own; of equals the one that binds fewest. What an endpoint's server says, unless the
    /// rules say what it is about, is about the endpoint and nothing else.
    fn spot(&self, circle: Circle, window: &ServerWindow<'_>) -> Option<Spot> {
        let rule = circle.rule.map(|rule| &self.plan.rules[usize::from(rule)]);
        let mapped = rule.and_then(|rule| {
            let of = |name: &str| rule.observe.iter().find(|known| known.window.eq_ignore_ascii_case(name));
            of(window.name).or_else(|| of(ALL_OTHERS)).map(|known| &known.narrows)
        });
        let of_endpoint = circle.endpoint.is_some() && mapped.is_none();
        let best = |side: Option<Side>| {
            let candidates = self.candidates(circle).filter(|(spot, spec)| {
                let counts = spec.charge == window.charge && !matches!(spec.kind, LimitKind::Spaced { .. });
                counts
                    && spot.is_of_endpoint() == of_endpoint
                    && mapped.is_none_or(|narrows| narrows.names(&spec.origin))
                    && side.is_none_or(|side| spot.side() == side)
            });
            candidates.min_by_key(|(_, spec)| unlikeness(spec.kind, window)).map(|(spot, _)| spot)
        };
        match (mapped, window.side) {
            (Some(Narrows::Nothing), _) => None,
            (Some(_), _) | (None, None) => best(None),
            (None, Some(side)) => best(Some(side)).or_else(|| best(None)),
        }
    }

    /// The limits of a circle, those that bind fewest first.
    fn candidates(&self, circle: Circle) -> impl Iterator<Item = (Spot, &LimitSpec)> {
        let plan = &self.plan;
        let rule = circle.rule.map(|rule| &plan.rules[usize::from(rule)]);
        let own = circle.queue.zip(rule).map_or(&[][..], |(queue, rule)| Queue::own(&self.queues[queue].extras, rule));
        let bound = |all: usize, refs: fn(&RulePlan) -> &[LimitRef]| {
            let (of_rule, of_all) = match rule {
                Some(rule) => (refs(rule), 0),
                None => (&[][..], all),
            };
            of_rule.iter().map(|bound| bound.limit).chain(0..of_all)
        };
        let has_key = circle.key.is_some();
        // A key without a rule is not about everybody.
        let all = if has_key && rule.is_none() { 0 } else { plan.shared_limits.len() };
        let own = own.iter().enumerate().map(|(position, spec)| (Spot::Own(position), spec));
        let key = bound(plan.key_limits.len(), |rule| &rule.key).filter(move |_| has_key);
        let shared = bound(all, |rule| &rule.shared);
        let endpoint = self.endpoint_plan(circle);
        let seat = endpoint.filter(|_| has_key).map_or(&[][..], |endpoint| &endpoint.key_limits);
        let seat = seat.iter().enumerate().map(|(position, spec)| (Spot::Seat(position), spec));
        let endpoint = endpoint.map_or(&[][..], |endpoint| &endpoint.limits);
        let endpoint = endpoint.iter().enumerate().map(|(position, spec)| (Spot::Endpoint(position), spec));
        let own = own.chain(seat).chain(endpoint);
        own.chain(key.map(|limit| (Spot::Key(limit), &plan.key_limits[limit])))
            .chain(shared.map(|limit| (Spot::Shared(limit), &plan.shared_limits[limit])))
    }

    fn endpoint_plan(&self, circle: Circle) -> Option<&EndpointPlan> {
        self.plan.pool.as_ref()?.endpoints.get(usize::from(circle.endpoint?.0))
    }

    /// Lays a window over its limit, and has the store told if one keeps it. `answered`: the request whose response says so,
    /// and when it was sent. Returns the window as a bit, if it told what is left.
    fn narrow(
        &mut self,
        now: Instant,
        answered: Option<(u32, Instant)>,
        circle: Circle,
        spot: Spot,
        window: &ServerWindow<'_>,
    ) -> Option<u16> {
        let left = window.left?;
        let spec = self.spec_at(circle, spot)?;
        let period = limit::period(spec.kind);
        let word = Word {
            window: window.name,
            per: window.per,
            limit: window.limit,
            left,
            sent: answered.map_or(now, |(_, sent)| sent),
            read: now,
            reset: window.reset.map(|reset| (reset.after, reset.grain)),
            else_for: window.per.unwrap_or(period),
            at_most: self.plan.max_hold.max(period),
        };
        let state = match spot {
            Spot::Own(position) => self.queues[circle.queue?].limits.as_mut_slice().get_mut(position)?,
            Spot::Key(limit) => &mut self.keys[circle.key?].limits.as_mut_slice()[limit],
            Spot::Shared(limit) => &mut self.shared.as_mut_slice()[limit],
            Spot::Endpoint(position) => {
                let endpoint = self.endpoint_mut(circle.endpoint?)?;
                endpoint.limits.as_mut_slice().get_mut(position)?
            }
            Spot::Seat(position) => {
                let seat = self.keys[circle.key?].extras.seat_mut()?;
                seat.limits.get_mut(usize::from(circle.endpoint?.0))?.as_mut_slice().get_mut(position)?
            }
        };
        let bit = state.observe(word);
        if self.store.is_some()
            && let Some(site) = self.site_of(circle, spot)
        {
            self.note_for_store(site, answered.map(|(index, _)| index), &word);
        }
        Some(bit)
    }

    /// Where a limit stands as a store has it.
    fn site_of(&self, circle: Circle, spot: Spot) -> Option<Site> {
        let key = || {
            let index = circle.key?;
            Some(KeyId { index, generation: self.keys.generation(index) })
        };
        match spot {
            Spot::Own(position) => Some(Site::Own(RuleId(circle.rule?), key()?, position)),
            Spot::Key(limit) => Some(Site::Key(key()?, limit)),
            Spot::Shared(limit) => Some(Site::Shared(limit)),
            Spot::Endpoint(position) => Some(Site::Endpoint(circle.endpoint?, position)),
            // No store keeps limits of a key on an endpoint.
            Spot::Seat(_) => None,
        }
    }

    fn spec_at(&self, circle: Circle, spot: Spot) -> Option<&LimitSpec> {
        match spot {
            Spot::Own(position) => {
                let queue = &self.queues[circle.queue?];
                Queue::own(&queue.extras, &self.plan.rules[usize::from(queue.rule)]).get(position)
            }
            Spot::Key(limit) => self.plan.key_limits.get(limit),
            Spot::Shared(limit) => self.plan.shared_limits.get(limit),
            Spot::Endpoint(position) => self.endpoint_plan(circle)?.limits.get(position),
            Spot::Seat(position) => self.endpoint_plan(circle)?.key_limits.get(position),
        }
    }

    /// The response to a running attempt was read: it is in what the server told of these limits.
    fn read_all(&mut self, now: Instant, index: u32, told: &[(Spot, u16)]) {
        let Self { plan, requests, queues, keys, shared, pool, .. } = self;
        let request = &requests[index];
        let costs = request.costs();
        let Queue { rule, key, extras, limits, .. } = &mut queues[request.queue];
        let rule = &plan.rules[usize::from(*rule)];
        let bits = |spot: Spot| told.iter().find(|(at, _)| *at == spot).map_or(0, |(_, bits)| *bits);
        for (position, (spec, state)) in Queue::own(extras, rule).iter().zip(limits.as_mut_slice()).enumerate() {
            state.read(now, costs.of(spec.charge), bits(Spot::Own(position)));
        }
        for &LimitRef { limit, .. } in &rule.key {
            let cost = costs.of(plan.key_limits[limit].charge);
            keys[*key].limits.as_mut_slice()[limit].read(now, cost, bits(Spot::Key(limit)));
        }
        for &LimitRef { limit, .. } in &rule.shared {
            let cost = costs.of(plan.shared_limits[limit].charge);
            shared.as_mut_slice()[limit].read(now, cost, bits(Spot::Shared(limit)));
        }
        let (Some(pool), Some(at)) = (pool, request.route().and_then(|route| route.at)) else { return };
        let of_pool = &plan.pooled().endpoints[usize::from(at.0)];
        let states = pool.endpoints[usize::from(at.0)].limits.as_mut_slice();
        for (position, (spec, state)) in of_pool.limits.iter().zip(states).enumerate() {
            state.read(now, costs.of(spec.charge), bits(Spot::Endpoint(position)));
        }
        let seat = keys[*key].extras.seat_mut().and_then(|seat| seat.limits.get_mut(usize::from(at.0)));
        let states = seat.map_or(&mut [][..], |limits| limits.as_mut_slice());
        for (position, (spec, state)) in of_pool.key_limits.iter().zip(states).enumerate() {
            state.read(now, costs.of(spec.charge), bits(Spot::Seat(position)));
        }
    }

    /// Forgets differences from numbers that the rules no longer have.
    pub(super) fn review_differences(&mut self) {
        let Self { plan, differences, differed, .. } = self;
        let rules = plan.rules.iter().filter(|rule| !rule.removed).flat_map(|rule| &rule.own);
        let endpoints = plan.pool.iter().flat_map(|pool| &pool.endpoints);
        let endpoints = endpoints.flat_map(|endpoint| endpoint.limits.iter().chain(&endpoint.key_limits));
        let all = || plan.shared_limits.iter().chain(&plan.key_limits).chain(rules.clone()).chain(endpoints.clone());
        let is_same = |known: &Difference, spec: &LimitSpec| {
            let (count, period) = (limit::capacity(spec.kind), limit::period(spec.kind));
            (&spec.origin, spec.charge, count, period) == (&known.origin, known.charge, known.configured, known.period)
        };
        differences.retain(|known| all().any(|spec| is_same(known, spec)));
        differed.retain(|origin| all().any(|spec| spec.origin == *origin));
    }

    /// Takes a note if the server has another count for a window as long as the limit's.
    fn compare(&mut self, circle: Circle, spot: Spot, window: &ServerWindow<'_>) {
        let Some(reported) = window.limit else { return };
        // What was learnt is not what the rules say.
        let configured = match (spot, circle.queue) {
            (Spot::Own(position), Some(queue)) => {
                let queue = &self.queues[queue];
                queue.configured(&self.plan.rules[usize::from(queue.rule)]).get(position)
            }
            (Spot::Own(_) | Spot::Key(_) | Spot::Shared(_) | Spot::Endpoint(_) | Spot::Seat(_), _) => {
                self.spec_at(circle, spot)
            }
        };
        let Some(LimitSpec { origin, kind, charge, .. }) = configured else { return };
        let is_as_long = window.per.is_none_or(|per| alike(per, limit::period(*kind)));
        let count = limit::capacity(*kind);
        if count == reported || !is_as_long {
            return;
        }
        let is_it = |known: &Difference| {
            known.reported == reported
                && known.configured == count
                && known.origin == *origin
                && *known.window == *window.name
        };
        // The one that was seen last stands last.
        if let Some(known) = self.differences.iter().rposition(is_it) {
            self.differences[known].seen += 1;
            self.differences[known..].rotate_left(1);
        } else {
            let difference = Difference {
                origin: origin.clone(),
                charge: *charge,
                window: window.name.into(),
                configured: count,
                period: limit::period(*kind),
                reported,
                seen: 1,
            };
            let is_full = self.differences.len() == DIFFERENCES;
            let is_of_window =
                |known: &Difference| known.origin == difference.origin && known.window == difference.window;
            let was_told_of = self.differed.contains(origin);
            if !was_told_of {
                self.differed.push(origin.clone());
            }
            // Of numbers that change all the time, and of more windows than can be told apart, the first one is news.
            let is_old = if is_full { was_told_of } else { self.differences.iter().any(is_of_window) };
            if !is_old {
                self.stirred = true;
                self.notices.push(Notice::LimitDiffers(Box::new(difference.clone())));
            }
            if is_full {
                self.differences.remove(0);
            }
            self.differences.push(difference);
        }
    }
}

impl Spot {
    const fn side(self) -> Side {
        match self {
            Self::Own(_) | Self::Key(_) | Self::Seat(_) => Side::Key,
            Self::Shared(_) | Self::Endpoint(_) => Side::All,
        }
    }

    const fn is_of_endpoint(self) -> bool {
        match self {
            Self::Endpoint(_) | Self::Seat(_) => true,
            Self::Own(_) | Self::Key(_) | Self::Shared(_) => false,
        }
    }
}

impl Narrows {
    fn names(&self, origin: &Origin) -> bool {
        match (self, origin) {
            (Self::PerKey, Origin::PerKey | Origin::RulePerKey(_))
            | (Self::Overall, Origin::Overall | Origin::RuleOverall(_) | Origin::Lane(_)) => true,
            (Self::Named(name), Origin::NamedOverall(of) | Origin::NamedPerKey(of)) => name == of,
            (Self::Nothing | Self::PerKey | Self::Overall | Self::Named(_), _) => false,
        }
    }
}

/// Periods that differ by no more are of one window: a tenth is a margin.
const LIKE: u64 = SAME * 11 / 10;
/// The ratio of equals.
const SAME: u64 = 1 << 20;

/// How little a limit is like a server's window: by period, then by count. What was not told makes no difference.
fn unlikeness(kind: LimitKind, window: &ServerWindow<'_>) -> (u64, u64) {
    let period = window.per.map_or(SAME, |per| ratio(per.get(), limit::period(kind).get()));
    let count = window.limit.map_or(SAME, |count| ratio(count.into(), limit::capacity(kind).into()));
    (if period <= LIKE { SAME } else { period }, count)
}

/// Whether two lengths are of one window.
pub(crate) fn alike(one: Nanos, other: Nanos) -> bool {
    ratio(one.get(), other.get()) <= LIKE
}

/// The larger in terms of the smaller.
fn ratio(one: u64, other: u64) -> u64 {
    if one == other {
        return SAME;
    }
    let (larger, smaller) = (one.max(other), one.min(other).max(1));
    // Most numbers are small enough for the division that costs less.
    let exactly = || u64::try_from(u128::from(larger) * u128::from(SAME) / u128::from(smaller)).unwrap_or(u64::MAX);
    larger.checked_mul(SAME).map_or_else(exactly, |larger| larger / smaller)
}
