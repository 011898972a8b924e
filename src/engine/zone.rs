//! Time zones: where a day begins and ends, on jiff. Without the feature `calendar` there is no zone at all.

use std::fmt;

/// A time zone, with the feature `calendar`. Without it no value of this type can be made.
#[derive(Clone)]
pub struct Zone(imp::Zone);

/// One day of a zone, in nanoseconds since 1970 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Day {
    /// Year, month and day as one number, such as `20260329`.
    pub(super) number: i32,
    pub(super) begin: i128,
    /// Midnight: the begin of the next day.
    pub(super) end: i128,
}

impl Zone {
    /// The zone of this name in the IANA database, such as `UTC` or `Europe/Berlin`. `None`: there is none, or the
    /// feature `calendar` is off.
    ///
    /// The database is part of the program: what the machine has installed does not matter.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        imp::named(name).map(Self)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        imp::name(&self.0)
    }

    /// Calls `visit` with the name of every zone there is.
    pub(crate) fn names(visit: &mut dyn FnMut(&str)) {
        imp::names(visit);
    }

    /// The day that a moment falls on. Beyond the year 9999 a day never ends.
    pub(super) fn day(&self, unix: i128) -> Day {
        imp::day(&self.0, unix)
    }

    /// The begin of the day that comes so many days after the one that a moment falls on.
    pub(super) fn midnight(&self, unix: i128, days: u64) -> i128 {
        imp::midnight(&self.0, unix, days)
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Zone").field(&self.name()).finish()
    }
}

#[cfg(feature = "calendar")]
mod imp {
    use jiff::civil::Date;
    use jiff::tz::{TimeZone, TimeZoneDatabase};
    use jiff::{Span, Timestamp};

    use super::Day;

    pub(super) type Zone = TimeZone;

    pub(super) fn named(name: &str) -> Option<Zone> {
        TimeZoneDatabase::bundled().get(name).ok()
    }

    pub(super) fn names(visit: &mut dyn FnMut(&str)) {
        for name in TimeZoneDatabase::bundled().available() {
            visit(name.as_str());
        }
    }

    pub(super) fn name(zone: &Zone) -> &str {
        zone.iana_name().unwrap_or_default()
    }

    pub(super) fn day(zone: &Zone, unix: i128) -> Day {
        let date = date(zone, unix);
        let number = i32::from(date.year()) * 10_000 + i32::from(date.month()) * 100 + i32::from(date.day());
        let begin = begin(zone, date).unwrap_or(i128::MIN);
        let end = date.tomorrow().ok().and_then(|date| self::begin(zone, date)).unwrap_or(i128::MAX);
        Day { number, begin, end }
    }

    pub(super) fn midnight(zone: &Zone, unix: i128, days: u64) -> i128 {
        let days = i64::try_from(days).ok().and_then(|days| Span::new().try_days(days).ok());
        let date = days.and_then(|days| date(zone, unix).checked_add(days).ok());
        date.and_then(|date| begin(zone, date)).unwrap_or(i128::MAX)
    }

    fn date(zone: &Zone, unix: i128) -> Date {
        let unix = unix.clamp(Timestamp::MIN.as_nanosecond(), Timestamp::MAX.as_nanosecond());
        Timestamp::from_nanosecond(unix).unwrap_or(Timestamp::MAX).to_zoned_datetime(zone.clone()).date()
    }

    /// Where a zone skips midnight, the day begins when the clock goes on.
    fn begin(zone: &Zone, date: Date) -> Option<i128> {
        Some(date.to_zoned_datetime(zone.clone()).ok()?.timestamp().as_nanosecond())
    }
}

#[cfg(not(feature = "calendar"))]
mod imp {
    use super::Day;

    #[derive(Clone, Copy)]
    pub(super) enum Zone {}

    pub(super) const fn named(_: &str) -> Option<Zone> {
        None
    }

    pub(super) fn names(_: &mut dyn FnMut(&str)) {}

    pub(super) const fn name(zone: &Zone) -> &str {
        match *zone {}
    }

    pub(super) const fn day(zone: &Zone, _: i128) -> Day {
        match *zone {}
    }

    pub(super) const fn midnight(zone: &Zone, _: i128, _: u64) -> i128 {
        match *zone {}
    }
}
