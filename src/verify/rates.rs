//! Even spacing, token buckets and calendar days: what was taken when, in the order of time.

use std::time::Duration;

/// When something was taken, and how much.
pub(super) type Taken = (Duration, u64);

/// Lateness of a timer that even spacing may catch up.
const CAUGHT_UP: Duration = Duration::from_millis(2);

/// Starts before they were due, and when that was. `taken` is in order.
pub(super) fn too_early(taken: &[Taken], interval: Duration) -> Vec<(Duration, Duration)> {
    let mut due = 0;
    let mut found = Vec::new();
    // What takes nothing waits for nobody.
    for &(at, cost) in taken.iter().filter(|&&(_, cost)| cost > 0) {
        let nanos = at.as_nanos();
        if nanos + CAUGHT_UP.as_nanos() < due {
            found.push((at, Duration::from_nanos(u64::try_from(due).unwrap_or(u64::MAX))));
        }
        due = due.max(nanos).saturating_add(interval.as_nanos().saturating_mul(u128::from(cost)));
    }
    found
}

/// A stretch of time in which more was taken from a bucket than was in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overdraft {
    pub(super) at: Duration,
    /// Since when the bucket was not full.
    pub(super) within: Duration,
    pub(super) count: u64,
    pub(super) allowed: u64,
}

impl Overdraft {
    const fn excess(&self) -> u64 {
        self.count - self.allowed
    }
}

/// What was taken beyond a bucket that holds `burst` and gets back `count` per `period`. `taken` is in order.
pub(super) fn overdrafts(taken: &[Taken], burst: u32, count: u32, period: Duration) -> Vec<Overdraft> {
    let mut found: Vec<Overdraft> = Vec::new();
    let mut full = Duration::ZERO;
    let mut since_full = 0;
    let mut is_over = false;
    for &(at, cost) in taken {
        // Whole tokens: parts of one are of no use to anybody.
        let elapsed = at.saturating_sub(full).as_nanos();
        let mut back = elapsed.saturating_mul(u128::from(count)) / period.as_nanos().max(1);
        if back >= u128::from(since_full) {
            (full, since_full, is_over, back) = (at, 0, false, 0);
        }
        since_full += cost;
        let allowed = u64::try_from(u128::from(burst).saturating_add(back)).unwrap_or(u64::MAX);
        if since_full <= allowed {
            is_over = false;
            continue;
        }
        let overdraft = Overdraft { at, within: at.saturating_sub(full), count: since_full, allowed };
        match found.last_mut() {
            Some(last) if is_over => {
                if overdraft.excess() > last.excess() {
                    *last = overdraft;
                }
            }
            Some(_) | None => found.push(overdraft),
        }
        is_over = true;
    }
    found
}

/// How long one unit of a bucket takes to come back.
pub(super) fn interval(period: Duration, count: u32) -> Duration {
    let nanos = period.as_nanos().div_ceil(u128::from(count.max(1)));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// When all is paid for that was taken from a bucket, one unit in each interval. `taken` is in order.
pub(super) fn paid(taken: &[Taken], interval: Duration) -> Duration {
    paid_for(taken, interval, Duration::ZERO)
}

/// The same of evenly spaced starts: a little lateness is caught up.
pub(super) fn due(taken: &[Taken], interval: Duration) -> Duration {
    paid_for(taken, interval, CAUGHT_UP)
}

fn paid_for(taken: &[Taken], interval: Duration, caught_up: Duration) -> Duration {
    // What takes nothing owes nothing.
    taken.iter().filter(|&&(_, cost)| cost > 0).fold(Duration::ZERO, |paid, &(at, cost)| {
        let from = if at.saturating_sub(paid) <= caught_up { paid } else { at };
        from.saturating_add(interval.saturating_mul(u32::try_from(cost).unwrap_or(u32::MAX)))
    })
}

/// How many units are not paid for yet, those in part included.
pub(super) fn unpaid(paid: Duration, now: Duration, interval: Duration) -> u64 {
    let units = paid.saturating_sub(now).as_nanos().div_ceil(interval.as_nanos().max(1));
    u64::try_from(units).unwrap_or(u64::MAX)
}

/// What was taken on the day that an instant belongs to, and when the next day begins.
#[cfg(feature = "calendar")]
pub(super) fn today(taken: &[Taken], now: Duration, zone: &str) -> (u64, Duration) {
    use jiff::tz::{TimeZone, TimeZoneDatabase};

    let zone = TimeZoneDatabase::bundled().get(zone).unwrap_or(TimeZone::UTC);
    let date = |at: Duration| moment(at).to_zoned_datetime(zone.clone()).date();
    let today = date(now);
    let used = taken.iter().filter(|&&(at, _)| date(at) == today).map(|&(_, cost)| cost).sum();
    let midnight =
        today.tomorrow().and_then(|date| date.to_zoned_datetime(zone.clone())).map(|midnight| midnight.timestamp());
    let nanos = midnight.map_or(i128::MAX, |midnight| midnight.as_nanosecond());
    (used, Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// Without the feature `calendar` no rules with such a quota load.
#[cfg(not(feature = "calendar"))]
pub(super) const fn today(_: &[Taken], now: Duration, _: &str) -> (u64, Duration) {
    (0, now)
}

/// The instant so long after 1970 in UTC.
#[cfg(feature = "calendar")]
fn moment(at: Duration) -> jiff::Timestamp {
    let moment = i128::try_from(at.as_nanos()).ok().and_then(|nanos| jiff::Timestamp::from_nanosecond(nanos).ok());
    moment.unwrap_or(jiff::Timestamp::MAX)
}

/// Days on which more than `allowed` was taken: the last start, how far into the day it was, and what was taken.
#[cfg(feature = "calendar")]
pub(super) fn days(taken: &[Taken], allowed: u64, zone: &str) -> Vec<(Duration, Duration, u64)> {
    use jiff::civil::Date;
    use jiff::tz::{TimeZone, TimeZoneDatabase};

    let zone = TimeZoneDatabase::bundled().get(zone).unwrap_or(TimeZone::UTC);
    let mut days: Vec<(Date, (Duration, Duration, u64))> = Vec::new();
    for &(at, cost) in taken {
        let moment = moment(at);
        let date = moment.to_zoned_datetime(zone.clone()).date();
        let midnight = date.to_zoned_datetime(zone.clone()).map_or(moment, |midnight| midnight.timestamp());
        let into = moment.as_nanosecond() - midnight.as_nanosecond();
        let into = Duration::from_nanos(u64::try_from(into).unwrap_or_default());
        match days.last_mut() {
            Some((day, (last, within, count))) if *day == date => (*last, *within, *count) = (at, into, *count + cost),
            Some(_) | None => days.push((date, (at, into, cost))),
        }
    }
    days.into_iter().map(|(_, day)| day).filter(|&(_, _, count)| count > allowed).collect()
}

/// Without the feature `calendar` no rules with such a quota load.
#[cfg(not(feature = "calendar"))]
pub(super) const fn days(_: &[Taken], _: u64, _: &str) -> Vec<(Duration, Duration, u64)> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn what_is_caught_up_is_not_too_early_and_idle_time_earns_nothing() {
        let spaced = [(ms(0), 1), (ms(102), 1), (ms(200), 1), (ms(1_000), 2), (ms(1_198), 1)];
        assert_eq!(too_early(&spaced, ms(100)), []);
        assert_eq!(too_early(&[(ms(0), 1), (ms(97), 1)], ms(100)), [(ms(97), ms(100))]);
        assert_eq!(too_early(&[(ms(5_000), 2), (ms(5_101), 1)], ms(100)), [(ms(5_101), ms(5_200))]);
    }

    #[test]
    fn who_takes_nothing_is_never_too_early() {
        assert_eq!(too_early(&[(ms(0), 1), (ms(50), 0), (ms(100), 1)], ms(100)), []);
    }

    #[test]
    fn a_bucket_gives_what_it_holds_and_what_came_back() {
        let taken = |instants: &[u64]| instants.iter().map(|&at| (ms(at), 1)).collect::<Vec<_>>();
        assert_eq!(overdrafts(&taken(&[0, 0, 0, 100, 200]), 3, 10, ms(1_000)), []);
        let over = overdrafts(&taken(&[0, 0, 0, 99, 100, 5_000, 5_000, 5_000]), 3, 10, ms(1_000));
        assert_eq!(over, [Overdraft { at: ms(99), within: ms(99), count: 4, allowed: 3 }]);
    }
}
