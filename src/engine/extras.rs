//! What few queues and few keys have: in most of them it is a word in the record, and no memory beside it.

use super::hold::{HoldCause, longer};
use super::learn::Own;
use super::limit::PaceClock;
use super::pool::KeySeat;
use super::slab::NIL;
use super::time::Instant;

/// A hold and what else few have, if there is any of it. Whatever isn't there is as it is in a new record.
#[derive(Debug, Default)]
pub(super) struct Extras<T>(Option<Box<Extra<T>>>);

/// What few queues have.
pub(super) type QueueExtras = Extras<OfQueue>;

/// What few keys have.
pub(super) type KeyExtras = Extras<OfKey>;

#[derive(Debug, Default)]
struct Extra<T> {
    hold: Instant,
    hold_cause: HoldCause,
    rest: T,
}

/// What few queues have beside a hold.
#[derive(Debug)]
pub(super) struct OfQueue {
    numbers: Option<Box<Own>>,
    awaits_pool: bool,
    pool_place: Option<(usize, i64)>,
    finger: u32,
    passed: u32,
}

/// What few keys have beside a hold.
#[derive(Debug, Default)]
pub(super) struct OfKey {
    /// What paces it.
    clocks: Box<[PaceClock]>,
    /// What it knows of endpoints, if there is a pool and it was there.
    seat: Option<KeySeat>,
    /// What endpoints are chosen by that it stays with, if that is not its tag.
    mark: Option<u64>,
}

impl Default for OfQueue {
    fn default() -> Self {
        Self { numbers: None, awaits_pool: false, pool_place: None, finger: NIL, passed: 0 }
    }
}

impl OfQueue {
    fn is_nothing(&self) -> bool {
        let Self { numbers, awaits_pool, pool_place, finger, passed } = self;
        let stands = *awaits_pool || pool_place.is_some() || *finger != NIL || *passed > 0;
        numbers.is_none() && !stands
    }
}

impl<T: Default> Extras<T> {
    /// The end of its hold.
    #[inline(always)]
    pub(super) fn hold(&self) -> Instant {
        self.0.as_ref().map_or(Instant::ZERO, |extra| extra.hold)
    }

    /// Its hold and who wanted it.
    pub(super) fn held(&self) -> (Instant, HoldCause) {
        self.0.as_ref().map_or((Instant::ZERO, HoldCause::Asked), |extra| (extra.hold, extra.hold_cause))
    }

    /// Where its hold is written down, if there is such a place or one is to be made.
    pub(super) fn hold_mut(&mut self, make: bool) -> Option<(&mut Instant, &mut HoldCause)> {
        let Extra { hold, hold_cause, .. } = if make { self.make() } else { self.0.as_deref_mut()? };
        Some((hold, hold_cause))
    }

    /// Takes over another one's hold where that is the longer one.
    pub(super) fn merge_hold(&mut self, other: (Instant, HoldCause)) {
        if let Some((hold, cause)) = self.hold_mut(other.0 > Instant::ZERO) {
            (*hold, *cause) = longer((*hold, *cause), other);
        }
    }

    #[inline(always)]
    fn known(&self) -> Option<&T> {
        self.0.as_ref().map(|extra| &extra.rest)
    }

    #[inline(always)]
    fn known_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut().map(|extra| &mut extra.rest)
    }

    fn make(&mut self) -> &mut Extra<T> {
        self.0.get_or_insert_default()
    }

    fn rest_or_new(&mut self) -> &mut T {
        &mut self.make().rest
    }
}

impl QueueExtras {
    /// The key's own numbers, where it has other ones than its rule.
    #[inline(always)]
    pub(super) fn numbers(&self) -> Option<&Own> {
        self.known()?.numbers.as_deref()
    }

    pub(super) fn numbers_mut(&mut self) -> Option<&mut Own> {
        self.known_mut()?.numbers.as_deref_mut()
    }

    /// Gives it other numbers. Returns those that it had.
    pub(super) fn set_numbers(&mut self, numbers: Option<Own>) -> Option<Own> {
        if numbers.is_none() && self.0.is_none() {
            return None;
        }
        let old = std::mem::replace(&mut self.rest_or_new().numbers, numbers.map(Box::new));
        old.map(|own| *own)
    }

    /// Whether the queue left its ring for want of an endpoint: it goes back to its old place.
    #[inline]
    pub(super) fn awaits_pool(&self) -> bool {
        self.known().is_some_and(|extra| extra.awaits_pool)
    }

    pub(super) fn set_awaits_pool(&mut self) {
        self.rest_or_new().awaits_pool = true;
    }

    /// It goes back to its place, or needs none. Returns whether it was to.
    #[inline]
    pub(super) fn take_awaits_pool(&mut self) -> bool {
        self.known_mut().is_some_and(|extra| std::mem::take(&mut extra.awaits_pool))
    }

    /// Sets where the queue stands among those that are told when something happens at an endpoint: its lane and its
    /// turn. Returns where it stood before.
    pub(super) fn set_pool_place(&mut self, place: Option<(usize, i64)>) -> Option<(usize, i64)> {
        if place.is_none() && self.0.is_none() {
            return None;
        }
        std::mem::replace(&mut self.rest_or_new().pool_place, place)
    }

    /// The last request that was put back by its number, or a neighbour of it: the next one often belongs beside it.
    #[inline(always)]
    pub(super) fn finger(&self) -> u32 {
        self.known().map_or(NIL, |extra| extra.finger)
    }

    #[inline]
    pub(super) fn set_finger(&mut self, finger: u32) {
        if finger != NIL || self.0.is_some() {
            self.rest_or_new().finger = finger;
        }
    }

    /// Starts of sibling queues that draw on the same limits since its own last start, while it waited.
    pub(super) fn passed(&self) -> u32 {
        self.known().map_or(0, |extra| extra.passed)
    }

    #[inline(always)]
    pub(super) fn set_passed(&mut self, passed: u32) {
        if passed > 0 || self.0.is_some() {
            self.rest_or_new().passed = passed;
        }
    }

    /// Gives back what is needed no more, now that nobody stands in line.
    pub(super) fn rest(&mut self) {
        if let Some(extra) = &mut self.0 {
            (extra.rest.awaits_pool, extra.rest.passed) = (false, 0);
            self.0.take_if(|extra| extra.hold == Instant::ZERO && extra.rest.is_nothing());
        }
    }
}

impl KeyExtras {
    /// With so many clocks.
    pub(super) fn new(clocks: usize, begin: Instant) -> Self {
        let mut extras = Self::default();
        if clocks > 0 {
            extras.rest_or_new().clocks = vec![PaceClock::from(begin); clocks].into();
        }
        extras
    }

    #[inline]
    pub(super) fn clocks(&self) -> &[PaceClock] {
        self.known().map_or(&[], |extra| &extra.clocks)
    }

    #[inline]
    pub(super) fn clocks_mut(&mut self) -> &mut [PaceClock] {
        self.known_mut().map_or(&mut [], |extra| &mut extra.clocks)
    }

    /// So many clocks, which know of nothing.
    pub(super) fn renew_clocks(&mut self, count: usize) {
        if count > 0 || self.0.is_some() {
            self.rest_or_new().clocks = vec![PaceClock::default(); count].into();
        }
    }

    pub(super) fn mark(&self) -> Option<u64> {
        self.known()?.mark
    }

    pub(super) fn set_mark(&mut self, mark: u64) {
        self.rest_or_new().mark = Some(mark);
    }

    pub(super) fn seat(&self) -> Option<&KeySeat> {
        self.known()?.seat.as_ref()
    }

    pub(super) fn seat_mut(&mut self) -> Option<&mut KeySeat> {
        self.known_mut()?.seat.as_mut()
    }

    pub(super) fn seat_or_new(&mut self) -> &mut KeySeat {
        self.rest_or_new().seat.get_or_insert_default()
    }

    pub(super) fn take_seat(&mut self) -> Option<KeySeat> {
        self.known_mut()?.seat.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_as_in_a_new_queue_takes_no_memory() {
        let mut extras = QueueExtras::default();
        extras.set_passed(0);
        extras.set_finger(NIL);
        extras.set_numbers(None);
        assert_eq!((extras.set_pool_place(None), extras.take_awaits_pool()), (None, false));
        assert!(extras.hold_mut(false).is_none());
        extras.rest();
        assert!(extras.0.is_none());
    }

    #[test]
    fn the_box_goes_with_the_last_that_needs_it() {
        let mut extras = QueueExtras::default();
        extras.set_awaits_pool();
        extras.set_passed(3);
        assert_eq!(extras.set_pool_place(Some((0, 7))), None);
        *extras.hold_mut(true).expect("made").0 = Instant::from_millis(5);
        extras.rest();
        assert_eq!((extras.passed(), extras.hold()), (0, Instant::from_millis(5)));
        assert_eq!(extras.set_pool_place(None), Some((0, 7)));
        *extras.hold_mut(false).expect("it is there").0 = Instant::ZERO;
        assert!(extras.0.is_some());
        extras.rest();
        assert!(extras.0.is_none());
    }

    #[test]
    fn boxes_are_no_larger_than_a_cache_line() {
        assert!(size_of::<Extra<OfQueue>>() <= 64, "{}", size_of::<Extra<OfQueue>>());
        assert_eq!(size_of::<(QueueExtras, KeyExtras)>(), 16);
    }
}
