//! A request's record. There may be millions, so it is one cache line: 64 bytes, its generation included.

use super::answer::Why;
use super::cost::{Costs, OwnCosts};
use super::list::Links;
use super::pool::{EndpointId, Route};
use super::slab::{Entry, Generation};
use super::time::Instant;

/// One request. It stands on one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Request<W> {
    pub(super) waker: Option<W>,
    /// When it entered the line or was put back; while it runs, when its attempt began. Once it is refused, the instant
    /// zero moved later by its time in line.
    pub(super) since: Instant,
    /// What belongs to the stage; while it runs, when its attempt is overdue.
    word: u64,
    /// What few requests have.
    extra: Option<Box<Extra>>,
    generation: Generation,
    pub(super) queue: u32,
    /// Neighbours in the queue's waiting list or in its list of grants.
    pub(super) links: Links,
    /// Place in line among the requests of its queue, kept for life. Goes round: compare with [`is_before`](Self::is_before).
    pub(super) number: u32,
    /// In requests, unless that is among the extras.
    cost: u16,
    kind: Kind,
    past: Past,
}

/// What became of its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Past {
    /// There was none.
    New,
    /// One started.
    Started,
    /// The response to the running one was read.
    Read,
}

#[derive(Debug)]
struct Extra {
    /// When it is refused if it still stands in line.
    deadline: Instant,
    costs: Option<OwnCosts>,
    /// Its endpoint, and what it knows of endpoints; nothing where there is no pool.
    route: Option<Box<Route>>,
}

impl Extra {
    fn is_nothing(&self) -> bool {
        self.deadline == Instant::NEVER && self.costs.is_none() && self.route.is_none()
    }
}

/// A stage without what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Outside,
    Queued,
    Asked,
    Granted,
    Asleep,
    Out,
    Running,
    Overdue,
    Aborted,
    MaxWait,
    Displaced,
    RuleRemoved,
    CostTooHigh,
    Closed,
    AbortedInLine,
    NoEndpoint,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Before the line, which has no room for it. Its ticket says since when, beside others that wait there.
    Outside { ticket: u64 },
    /// In its queue, not to start before an instant. While it is first, its queue waits for that instant.
    Queued { not_before: Instant },
    /// It has its turn and its place in all limits, and a store is asked for the rest.
    Asked,
    /// It may claim. The lease ends at an instant, and runs only for the first grant of a queue.
    Granted { lease: Instant },
    /// It let its lease pass: out of the queue until its owner asks again.
    Asleep,
    /// Out of the queue until an instant.
    Out { until: Instant },
    /// Its attempt runs.
    Running,
    /// Its attempt has run for as long as it may, and is to be given up.
    Overdue,
    /// Its attempt runs and is to be given up.
    Aborted,
    /// Refused, and its owner does not know yet.
    Refused { why: Why },
}

impl Stage {
    /// Whether it stands in line: waits, or was granted and did not claim.
    pub(super) const fn in_line(self) -> bool {
        match self {
            Self::Queued { .. } | Self::Asked | Self::Granted { .. } | Self::Asleep | Self::Out { .. } => true,
            Self::Outside { .. } | Self::Running | Self::Overdue | Self::Aborted | Self::Refused { .. } => false,
        }
    }

    /// Whether its attempt runs.
    pub(super) const fn runs(self) -> bool {
        match self {
            Self::Running | Self::Overdue | Self::Aborted => true,
            Self::Outside { .. }
            | Self::Queued { .. }
            | Self::Asked
            | Self::Granted { .. }
            | Self::Asleep
            | Self::Out { .. }
            | Self::Refused { .. } => false,
        }
    }

    /// Whether its attempt runs and nothing but its own end ends it.
    pub(super) const fn may_go_on(self) -> bool {
        match self {
            Self::Running | Self::Overdue => true,
            Self::Outside { .. }
            | Self::Queued { .. }
            | Self::Asked
            | Self::Granted { .. }
            | Self::Asleep
            | Self::Out { .. }
            | Self::Aborted
            | Self::Refused { .. } => false,
        }
    }

    /// Whether it is outstanding in a limit, which may let go only when attempts end.
    pub(super) const fn is_outstanding(self, counts_from_end: bool) -> bool {
        match self {
            Self::Asked | Self::Granted { .. } => true,
            Self::Running | Self::Overdue | Self::Aborted => counts_from_end,
            Self::Outside { .. } | Self::Queued { .. } | Self::Asleep | Self::Out { .. } | Self::Refused { .. } => {
                false
            }
        }
    }

    const fn pack(self) -> (Kind, u64) {
        match self {
            Self::Outside { ticket } => (Kind::Outside, ticket),
            Self::Queued { not_before } => (Kind::Queued, not_before.as_nanos()),
            Self::Asked => (Kind::Asked, 0),
            Self::Granted { lease } => (Kind::Granted, lease.as_nanos()),
            Self::Asleep => (Kind::Asleep, 0),
            Self::Out { until } => (Kind::Out, until.as_nanos()),
            Self::Running => (Kind::Running, Instant::NEVER.as_nanos()),
            Self::Overdue => (Kind::Overdue, 0),
            Self::Aborted => (Kind::Aborted, 0),
            Self::Refused { why } => match why {
                Why::MaxWait => (Kind::MaxWait, 0),
                Why::Displaced => (Kind::Displaced, 0),
                Why::RuleRemoved => (Kind::RuleRemoved, 0),
                Why::CostTooHigh { cost, capacity } => (Kind::CostTooHigh, (cost as u64) << 32 | capacity as u64),
                Why::Closed => (Kind::Closed, 0),
                Why::Aborted => (Kind::AbortedInLine, 0),
                Why::NoEndpoint => (Kind::NoEndpoint, 0),
            },
        }
    }

    const fn unpack(kind: Kind, word: u64) -> Self {
        let at = Instant::from_nanos(word);
        let why = match kind {
            Kind::Outside => return Self::Outside { ticket: word },
            Kind::Queued => return Self::Queued { not_before: at },
            Kind::Asked => return Self::Asked,
            Kind::Granted => return Self::Granted { lease: at },
            Kind::Asleep => return Self::Asleep,
            Kind::Out => return Self::Out { until: at },
            Kind::Running => return Self::Running,
            Kind::Overdue => return Self::Overdue,
            Kind::Aborted => return Self::Aborted,
            Kind::MaxWait => Why::MaxWait,
            Kind::Displaced => Why::Displaced,
            Kind::RuleRemoved => Why::RuleRemoved,
            Kind::CostTooHigh => Why::CostTooHigh { cost: (word >> 32) as u32, capacity: word as u32 },
            Kind::Closed => Why::Closed,
            Kind::AbortedInLine => Why::Aborted,
            Kind::NoEndpoint => Why::NoEndpoint,
        };
        Self::Refused { why }
    }
}

impl<W> Request<W> {
    /// One that costs one.
    #[inline]
    pub(super) const fn new(queue: u32, number: u32, since: Instant, stage: Stage, generation: Generation) -> Self {
        let (kind, word) = stage.pack();
        Self {
            waker: None,
            since,
            word,
            extra: None,
            generation,
            queue,
            links: Links::NONE,
            number,
            cost: 1,
            kind,
            past: if matches!(kind, Kind::Running) { Past::Started } else { Past::New },
        }
    }

    pub(super) const fn stage(&self) -> Stage {
        Stage::unpack(self.kind, self.word)
    }

    pub(super) const fn set_stage(&mut self, stage: Stage) {
        (self.kind, self.word) = stage.pack();
    }

    /// Whether an attempt ever started.
    pub(super) const fn started(&self) -> bool {
        match self.past {
            Past::New => false,
            Past::Started | Past::Read => true,
        }
    }

    /// Whether the response to the running attempt was read.
    pub(super) const fn is_read(&self) -> bool {
        match self.past {
            Past::New | Past::Started => false,
            Past::Read => true,
        }
    }

    /// Whether it is granted or runs, and has no response yet.
    pub(super) const fn is_awaited(&self) -> bool {
        self.stage().is_outstanding(!self.is_read())
    }

    /// Its attempt starts.
    pub(super) const fn note_started(&mut self) {
        self.past = Past::Started;
    }

    /// The response to the running attempt was read.
    pub(super) const fn note_read(&mut self) {
        self.past = Past::Read;
    }

    /// Its endpoint, and what it knows of endpoints; nothing where there is no pool.
    pub(super) fn route(&self) -> Option<&Route> {
        self.extra.as_ref()?.route.as_deref()
    }

    /// The endpoints that it may use; empty: all.
    pub(super) fn among(&self) -> &[EndpointId] {
        self.route().map_or(&[], |route| &route.among)
    }

    pub(super) fn route_mut(&mut self) -> Option<&mut Route> {
        self.extra.as_mut()?.route.as_deref_mut()
    }

    pub(super) fn route_or_new(&mut self) -> &mut Route {
        self.extra().route.get_or_insert_default()
    }

    pub(super) fn set_route(&mut self, route: Option<Box<Route>>) {
        if route.is_some() || self.extra.is_some() {
            self.extra().route = route;
        }
    }

    #[inline]
    pub(super) fn costs(&self) -> Costs<'_> {
        match &self.extra {
            Some(extra) => extra.costs.as_ref().map_or_else(|| self.plain_costs(), OwnCosts::get),
            None => self.plain_costs(),
        }
    }

    /// Of one that is in its queue: when it may start at the earliest.
    #[inline]
    pub(super) fn not_before(&self) -> Instant {
        match self.stage() {
            Stage::Queued { not_before } => not_before,
            stage => unreachable!("{stage:?} is in the waiting list"),
        }
    }

    /// Whether it costs one, and has nothing that few requests have.
    #[inline]
    pub(super) const fn is_plain(&self) -> bool {
        self.extra.is_none() && self.cost == 1
    }

    /// Whether both are plain in costs and wait in line for the same: what stops one stops the other.
    #[inline]
    pub(super) fn waits_like(&self, other: &Self) -> bool {
        self.stage() == other.stage() && self.costs().is_plain() && other.costs().is_plain()
    }

    /// The costs as something that changes.
    pub(super) fn own_costs(&mut self) -> &mut OwnCosts {
        let plain = self.plain_costs();
        self.extra().costs.get_or_insert_with(|| OwnCosts::new(plain))
    }

    /// For another attempt: as much as the last one turned out to cost, and no less than was asked for.
    pub(super) fn settle_costs(&mut self) {
        if let Some(costs) = self.extra.as_mut().and_then(|extra| extra.costs.as_mut()) {
            costs.at_least_asked();
        }
    }

    /// When it is refused if it still stands in line; while it runs, when its attempt is overdue. [`Instant::NEVER`] if it
    /// may stand there or run for ever.
    pub(super) fn deadline(&self) -> Instant {
        if self.kind == Kind::Running {
            return Instant::from_nanos(self.word);
        }
        self.extra.as_ref().map_or(Instant::NEVER, |extra| extra.deadline)
    }

    /// The deadline of the stage: one that it is given in line is to be taken away before it runs.
    pub(super) fn set_deadline(&mut self, deadline: Instant) {
        if self.kind == Kind::Running {
            self.word = deadline.as_nanos();
        } else if deadline != self.deadline() {
            self.extra().deadline = deadline;
            self.extra.take_if(|extra| extra.is_nothing());
        }
    }

    /// Whether this one's place in line is before the other's.
    pub(super) const fn is_before(&self, other: &Self) -> bool {
        comes_before(self.number, other.number)
    }

    pub(super) fn set_costs(&mut self, costs: Costs<'_>) {
        match costs.in_requests().and_then(|cost| u16::try_from(cost).ok()) {
            Some(cost) => self.cost = cost,
            None => self.extra().costs = Some(OwnCosts::new(costs)),
        }
    }

    fn plain_costs(&self) -> Costs<'static> {
        Costs::new(self.cost.into(), &[])
    }

    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_with(|| Box::new(Extra { deadline: Instant::NEVER, costs: None, route: None }))
    }
}

impl<W> Entry for Request<W> {
    fn generation(&self) -> Generation {
        self.generation
    }
}

/// Whether a number that goes round comes before another. Requests that are in the machine together are fewer than half
/// of all numbers apart.
pub(super) const fn comes_before(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::slab::Slab;

    #[test]
    fn a_request_in_its_slab_is_one_cache_line() {
        assert_eq!(Slab::<Request<std::task::Waker>>::SLOT, 64);
    }

    #[test]
    fn every_stage_is_what_it_was_packed_as() {
        let at = Instant::from_millis(7);
        let whys = [
            Why::MaxWait,
            Why::Displaced,
            Why::RuleRemoved,
            Why::CostTooHigh { cost: u32::MAX, capacity: 3 },
            Why::Closed,
            Why::Aborted,
            Why::NoEndpoint,
        ];
        let stages = [
            Stage::Outside { ticket: u64::MAX },
            Stage::Queued { not_before: at },
            Stage::Asked,
            Stage::Granted { lease: Instant::NEVER },
            Stage::Asleep,
            Stage::Out { until: at },
            Stage::Running,
            Stage::Overdue,
            Stage::Aborted,
        ];
        for stage in stages.into_iter().chain(whys.map(|why| Stage::Refused { why })) {
            let (kind, word) = stage.pack();
            assert_eq!(Stage::unpack(kind, word), stage);
        }
    }

    #[test]
    fn costs_and_deadlines_are_kept_apart() {
        let units = [5, 0, 9];
        for costs in [Costs::new(1, &[]), Costs::new(65_535, &[]), Costs::new(65_536, &[]), Costs::new(3, &units)] {
            let mut request = Request::<()>::new(0, 0, Instant::ZERO, Stage::Asleep, Generation::MIN);
            request.set_costs(costs);
            for deadline in [Instant::NEVER, Instant::from_millis(5), Instant::NEVER] {
                request.set_deadline(deadline);
                assert_eq!(request.deadline(), deadline);
                assert_eq!(format!("{:?}", request.costs()), format!("{costs:?}"));
            }
        }
    }

    #[test]
    fn numbers_go_round() {
        assert!(comes_before(u32::MAX, 0) && !comes_before(0, u32::MAX));
        assert!(comes_before(1, 2) && !comes_before(2, 2));
    }
}
