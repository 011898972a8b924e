//! Quotas of a calendar day: what started since midnight, and what is outstanding.
//!
//! The machine is told once what a clock on the wall shows; from then on each zone's running day is a pair of instants,
//! looked up again when it ends. A limit's state is the day that it counts, so that the first question of a new day finds
//! it empty. A start counts on the day of its claim.

use std::cmp::Ordering;

use super::{Alone, Ask};
use crate::engine::time::Instant;
use crate::engine::zone::{Day, Zone};

/// The numbers of a limit, as the plan has them, and the days that it goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec<'a> {
    pub(crate) count: u32,
    pub(crate) zone: usize,
    pub(crate) days: &'a Days,
}

impl<'a> Spec<'a> {
    /// The name of its time zone.
    pub(crate) fn zone_name(self) -> &'a str {
        self.days.zones[self.zone].0.name()
    }
}

/// The state of one limit.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    /// The day that `used` belongs to.
    day: i32,
    used: u32,
    outstanding: u64,
    /// The last start.
    latest: Instant,
}

/// The running day of each zone.
#[derive(Debug)]
pub(crate) struct Days {
    /// Nanoseconds from 1970 in UTC to the machine's epoch.
    epoch: i128,
    zones: Box<[(Zone, Day)]>,
    /// What limits are asked with beside the time.
    pub(crate) alone: Alone,
}

impl Days {
    /// Until the wall clock is told, the machine's epoch is 1970.
    pub(crate) fn new(zones: &[Zone]) -> Self {
        Self { epoch: 0, zones: zones.iter().map(|zone| (zone.clone(), zone.day(0))).collect(), alone: Alone::No }
    }

    /// At `now` a clock on the wall shows so many nanoseconds since 1970 in UTC.
    pub(crate) fn set(&mut self, now: Instant, unix: i128) {
        self.epoch = unix.saturating_sub(now.as_nanos().into());
        for (zone, day) in &mut self.zones {
            *day = zone.day(unix);
        }
    }

    /// The same wall clock for other zones.
    pub(crate) fn of(&self, now: Instant, zones: &[Zone]) -> Self {
        let mut days = Self { alone: self.alone, ..Self::new(zones) };
        days.set(now, self.epoch.saturating_add(now.as_nanos().into()));
        days
    }

    /// Time went on.
    pub(crate) fn advance(&mut self, now: Instant) {
        let unix = self.epoch.saturating_add(now.as_nanos().into());
        for (zone, day) in self.zones.iter_mut().filter(|(_, day)| day.end <= unix) {
            *day = zone.day(unix);
        }
    }

    fn day(&self, zone: usize) -> Day {
        self.zones[zone].1
    }

    /// When the running day began, the machine's epoch at the earliest.
    fn begin(&self, zone: usize) -> Instant {
        self.instant(self.day(zone).begin)
    }

    /// The midnight that ends the running day.
    fn end(&self, zone: usize) -> Instant {
        self.instant(self.day(zone).end)
    }

    /// The midnight after so many more days.
    fn midnight(&self, zone: usize, days: u64) -> Instant {
        let (zone, day) = &self.zones[zone];
        self.instant(zone.midnight(day.begin, days))
    }

    fn instant(&self, unix: i128) -> Instant {
        let nanos = unix.saturating_sub(self.epoch).max(0);
        u64::try_from(nanos).map_or(Instant::NEVER, Instant::from_nanos)
    }
}

impl Calendar {
    /// Whether `cost` fits now.
    pub(crate) fn ask(&self, spec: Spec<'_>, cost: u32) -> Ask {
        let wanted = self.outstanding + u64::from(cost);
        let count = u64::from(spec.count);
        if wanted + u64::from(self.used(spec)) <= count {
            Ask::Room
        } else if wanted > count {
            // What is outstanding is claimed today at the earliest.
            Ask::Unclaimed(spec.days.end(spec.zone))
        } else {
            Ask::At(spec.days.end(spec.zone))
        }
    }

    /// A request is granted: its cost is outstanding.
    pub(crate) const fn grant(&mut self, cost: u32) {
        self.outstanding += cost as u64;
    }

    /// Its attempt begins.
    pub(crate) fn claim(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        self.outstanding -= cost as u64;
        self.count(spec, now, cost);
    }

    /// The grant was not used.
    pub(crate) const fn refund(&mut self, cost: u32) {
        self.outstanding -= cost as u64;
    }

    /// A start at `at`, if it was today, cost `actual` instead of `cost`.
    pub(crate) fn settle(&mut self, spec: Spec<'_>, at: Instant, cost: u32, actual: u32) {
        if at >= spec.days.begin(spec.zone) {
            self.used = self.used(spec).saturating_sub(cost).saturating_add(actual);
            // It may be the first of today that costs anything.
            self.day = spec.days.day(spec.zone).number;
        }
    }

    /// A lower bound for the start of a request that comes after `ahead` others of unit cost.
    pub(crate) fn earliest(&self, spec: Spec<'_>, ahead: u64, cost: u32) -> Ask {
        let count = u64::from(spec.count);
        // However many were used, none of them counts tomorrow.
        let place = u64::from(self.used(spec)).min(count) + self.outstanding + ahead + u64::from(cost);
        match place.saturating_sub(1) / count.max(1) {
            0 => Ask::Room,
            days => Ask::At(spec.days.midnight(spec.zone, days)),
        }
    }

    /// Counts what another state of the same numbers knows and has outstanding, too.
    pub(crate) fn merge(&mut self, other: &Self) {
        match self.day.cmp(&other.day) {
            Ordering::Less => (self.day, self.used) = (other.day, other.used),
            Ordering::Equal => self.used = self.used.saturating_add(other.used),
            Ordering::Greater => {}
        }
        self.outstanding += other.outstanding;
        self.latest = self.latest.max(other.latest);
    }

    /// The starts that it knows, all counted as the last of them.
    pub(crate) fn starts(&self, spec: Spec<'_>) -> Vec<(Instant, u32)> {
        let used = self.used(spec);
        if used > 0 { vec![(self.latest, used)] } else { Vec::new() }
    }

    /// Counts those of the starts that another limit knows which were today.
    pub(crate) fn remember(&mut self, spec: Spec<'_>, starts: &[(Instant, u32)]) {
        let begin = spec.days.begin(spec.zone);
        for &(at, cost) in starts.iter().filter(|&&(at, _)| at >= begin) {
            self.count(spec, at, cost);
        }
    }

    /// Counts those of the starts that another run of the program knew which were today, beside what it counts itself.
    pub(crate) fn recall(&mut self, spec: Spec<'_>, starts: &[(Instant, u32)]) {
        let mut other = Self::default();
        other.remember(spec, starts);
        self.merge(&other);
    }

    /// When nothing is left of it. `None` while something is outstanding.
    pub(crate) fn free_at(&self, spec: Spec<'_>) -> Option<Instant> {
        let free = || if self.used(spec) > 0 { spec.days.end(spec.zone) } else { Instant::ZERO };
        (self.outstanding == 0).then(free)
    }

    /// What started today.
    fn used(&self, spec: Spec<'_>) -> u32 {
        if self.day == spec.days.day(spec.zone).number { self.used } else { 0 }
    }

    fn count(&mut self, spec: Spec<'_>, now: Instant, cost: u32) {
        self.used = self.used(spec).saturating_add(cost);
        self.day = spec.days.day(spec.zone).number;
        self.latest = now;
    }
}

#[cfg(all(test, feature = "calendar"))]
mod tests {
    use super::*;
    use crate::engine::time::Nanos;

    const HOUR: u64 = 3_600;
    const DAY: u64 = 24 * HOUR;
    /// 2026-03-28 00:00 in Berlin, the day before the clocks go forward there.
    const MARCH_28: i128 = 1_774_652_400;
    /// 2026-10-25 00:00 in Berlin, when the clocks go back.
    const OCTOBER_25: i128 = 1_792_879_200;

    fn days(zone: &str, unix_secs: i128) -> Days {
        let mut days = Days::new(&[Zone::named(zone).expect("a zone of the database")]);
        days.set(Instant::ZERO, unix_secs * 1_000_000_000);
        days
    }

    fn at(secs: u64) -> Instant {
        Instant::ZERO.saturating_add(Nanos::from_secs(secs))
    }

    fn spec(days: &Days, count: u32) -> Spec<'_> {
        Spec { count, zone: 0, days }
    }

    fn start(calendar: &mut Calendar, spec: Spec<'_>, now: Instant, cost: u32) {
        assert_eq!(calendar.ask(spec, cost), Ask::Room);
        calendar.grant(cost);
        calendar.claim(spec, now, cost);
    }

    #[test]
    fn a_day_is_as_long_as_its_zone_makes_it() {
        let mut days = days("Europe/Berlin", MARCH_28);
        for (now, begin, end) in [
            (0, 0, DAY),
            (DAY - 1, 0, DAY),
            (DAY, DAY, DAY + 23 * HOUR),
            (DAY + 23 * HOUR, DAY + 23 * HOUR, 2 * DAY + 23 * HOUR),
        ] {
            days.advance(at(now));
            assert_eq!((days.begin(0), days.end(0)), (at(begin), at(end)), "at {now}");
        }
        let days = self::days("Europe/Berlin", OCTOBER_25);
        assert_eq!((days.begin(0), days.end(0), days.midnight(0, 2)), (at(0), at(25 * HOUR), at(49 * HOUR)));
    }

    #[test]
    fn a_midnight_that_a_zone_skips_is_when_its_clock_goes_on() {
        // 2018-11-03 12:00 in Sao Paulo: the next day begins at 01:00, one hour after what would be midnight.
        let mut days = days("America/Sao_Paulo", 1_541_257_200);
        assert_eq!(days.end(0), at(12 * HOUR));
        days.advance(at(12 * HOUR));
        assert_eq!((days.begin(0), days.end(0)), (at(12 * HOUR), at(35 * HOUR)));
    }

    #[test]
    fn room_is_what_the_day_has_left() {
        let mut days = days("UTC", 0);
        let mut calendar = Calendar::default();
        start(&mut calendar, spec(&days, 5), at(0), 3);
        assert_eq!(calendar.ask(spec(&days, 5), 3), Ask::At(at(DAY)));
        calendar.grant(2);
        assert_eq!(calendar.ask(spec(&days, 5), 1), Ask::At(at(DAY)));
        assert_eq!(calendar.ask(spec(&days, 5), 4), Ask::Unclaimed(at(DAY)));
        assert_eq!(calendar.free_at(spec(&days, 5)), None);
        days.advance(at(DAY));
        // Granted yesterday, claimed today: it counts today.
        assert_eq!(calendar.ask(spec(&days, 5), 4), Ask::Unclaimed(at(2 * DAY)));
        calendar.claim(spec(&days, 5), at(DAY), 2);
        assert_eq!(calendar.ask(spec(&days, 5), 4), Ask::At(at(2 * DAY)));
        assert_eq!(calendar.free_at(spec(&days, 5)), Some(at(2 * DAY)));
        days.advance(at(2 * DAY));
        assert_eq!(calendar.free_at(spec(&days, 5)), Some(Instant::ZERO));
    }

    #[test]
    fn the_earliest_start_behind_others_is_a_midnight() {
        let days = days("Europe/Berlin", MARCH_28);
        let mut calendar = Calendar::default();
        start(&mut calendar, spec(&days, 5), at(0), 2);
        for (ahead, answer) in [
            (2, Ask::Room),
            (3, Ask::At(at(DAY))),
            (7, Ask::At(at(DAY))),
            (8, Ask::At(at(DAY + 23 * HOUR))),
            (13, Ask::At(at(2 * DAY + 23 * HOUR))),
            (u64::MAX / 2, Ask::At(Instant::NEVER)),
        ] {
            assert_eq!(calendar.earliest(spec(&days, 5), ahead, 1), answer, "{ahead} ahead");
        }
    }

    #[test]
    fn settled_is_what_started_today() {
        let mut days = days("UTC", 0);
        let mut calendar = Calendar::default();
        start(&mut calendar, spec(&days, 10), at(5), 4);
        calendar.settle(spec(&days, 10), at(5), 4, 9);
        assert_eq!(calendar.ask(spec(&days, 10), 2), Ask::At(at(DAY)));
        days.advance(at(DAY));
        start(&mut calendar, spec(&days, 10), at(DAY), 8);
        calendar.settle(spec(&days, 10), at(5), 9, 1);
        assert_eq!(calendar.ask(spec(&days, 10), 3), Ask::At(at(2 * DAY)));
    }

    #[test]
    fn starts_that_others_know_count_if_they_were_today() {
        let mut days = days("UTC", 0);
        days.advance(at(DAY));
        let mut calendar = Calendar::default();
        calendar.remember(spec(&days, 5), &[(at(DAY - 1), 5), (at(DAY), 1), (at(DAY + 1), 2)]);
        assert_eq!(calendar.ask(spec(&days, 5), 3), Ask::At(at(2 * DAY)));
        assert_eq!(calendar.starts(spec(&days, 5)), [(at(DAY + 1), 3)]);
    }

    #[test]
    fn a_wall_clock_out_of_reach_does_no_harm() {
        for unix in [i128::MIN, i128::MAX, i128::from(i64::MIN), i128::from(i64::MAX)] {
            let mut days = days("Europe/Berlin", 0);
            days.set(Instant::from_millis(1), unix);
            days.advance(Instant::NEVER);
            let mut calendar = Calendar::default();
            start(&mut calendar, spec(&days, 1), Instant::NEVER, 1);
            assert!(matches!(calendar.ask(spec(&days, 1), 1), Ask::At(_)));
            assert!(matches!(calendar.earliest(spec(&days, 1), 99, 1), Ask::At(_)));
        }
    }
}
