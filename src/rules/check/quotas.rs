//! Quotas: what keeps one from being one, and what is doubtful about it.

use std::collections::BTreeSet;

use super::Checker;
use crate::engine::{Nanos, Zone};
use crate::rules::builder::{At, Caps};
use crate::rules::duration;
use crate::rules::finding::{Finding, FindingCode};
use crate::rules::model::CheckedCaps;
use crate::rules::quota::{CountFrom, DAY, Quota, QuotaKind};
use crate::rules::toml::join;
use crate::rules::wording::{self, quote};

pub(in crate::rules) const COUNTS: &str = "a count from 1 to 4294967295";

/// What timers resolve.
const GRAIN: Nanos = Nanos::from_millis(1);

/// The longest time that the arithmetic of spacing and of buckets holds: 73 years.
const LONGEST: Nanos = Nanos::new(u64::MAX / 8);

/// Says what keeps a quota from being one, wherever it stands. `margin` is that of the rules.
pub(in crate::rules) fn quota(quota: &Quota, margin: Nanos, push: &mut dyn FnMut(Finding)) {
    let shown = short(quota);
    if quota.count() == 0 {
        push(wording::zero(format!("{shown}, a count of zero"), COUNTS));
    }
    if quota.nanos().is_zero() {
        push(wording::zero(format!("{shown}, a period of zero"), "a period longer than zero"));
    }
    if quota.nanos() == Nanos::MAX {
        push(wording::too_long_in_code("a period"));
    }
    if quota.margin_nanos() == Some(Nanos::MAX) {
        push(wording::too_long_in_code("a margin"));
    }
    match quota.kind() {
        QuotaKind::Window => {}
        QuotaKind::Smooth => {
            from_the_start(quota, "`smooth`", push);
            let period = quota.nanos().saturating_add(quota.margin_nanos().unwrap_or(margin));
            if quota.count() > 1 && !holds(period, quota.count(), quota.count()) && quota.nanos() != Nanos::MAX {
                push(Finding::new(FindingCode::OutOfRange, shown, "a period of less than 73 years, margin included"));
            }
        }
        QuotaKind::Bucket { burst } => {
            let words = format!("`burst {burst}`");
            no_margin(quota, &words, push);
            from_the_start(quota, &words, push);
            if *burst == 0 {
                push(wording::zero(format!("{shown}, a burst of zero"), "a burst from 1 to 4294967295"));
            }
            if !holds(quota.nanos(), quota.count(), *burst) && quota.nanos() != Nanos::MAX {
                push(Finding::new(FindingCode::OutOfRange, shown, "a burst that is full again in less than 73 years"));
            }
        }
        QuotaKind::Calendar { zone } => {
            let words = format!("the time zone {}", quote(zone));
            no_margin(quota, &words, push);
            from_the_start(quota, &words, push);
            if quota.nanos() != DAY {
                let found = format!("{words} with a period of {}", duration::format(quota.nanos()));
                push(Finding::new(FindingCode::OutOfRange, found, "a period of `1day` with a time zone"));
            }
            push_zone(zone, push);
        }
    }
}

fn no_margin(quota: &Quota, words: &str, push: &mut dyn FnMut(Finding)) {
    if quota.margin_nanos().is_some() {
        push(wording::two_meanings(words, "`margin`"));
    }
}

fn from_the_start(quota: &Quota, words: &str, push: &mut dyn FnMut(Finding)) {
    match quota.own_count_from() {
        Some(CountFrom::Response) => push(wording::two_meanings(words, "`count_from = \"response\"`")),
        Some(CountFrom::Start) | None => {}
    }
}

/// Whether so many units at a rate can be reckoned with.
fn holds(period: Nanos, count: u32, units: u32) -> bool {
    period.div_ceil(count.into()).saturating_mul(units.into()) <= LONGEST
}

fn push_zone(zone: &str, push: &mut dyn FnMut(Finding)) {
    if !cfg!(feature = "calendar") {
        let allowed = "calendar days if the cargo feature `calendar` of request-balancer is on, else a period of 24 \
                       hours such as `100/day`";
        let found = format!("the time zone {}", quote(zone));
        push(Finding::new(FindingCode::UnsupportedQuota, found, allowed));
        return;
    }
    if Zone::named(zone).is_some() {
        return;
    }
    let mut names = Vec::new();
    Zone::names(&mut |name| names.push(name.to_owned()));
    let nearest = wording::nearest_in_any_case(zone, names.iter().map(String::as_str));
    let allowed = "`UTC`, or a name of the IANA time zone database such as `Europe/Berlin`";
    push(Finding::new(FindingCode::UnknownZone, quote(zone), allowed).did_you_mean(nearest));
}

fn short(quota: &Quota) -> String {
    quote(&quota.clone().with(None, None).to_string())
}

/// Whether limits are shared, if there are any.
fn is_said(shared: &Option<At<bool>>, quotas: &[At<Quota>], cap: &Option<At<u32>>) -> bool {
    shared.is_some_and(|at| at.value) && !(quotas.is_empty() && cap.is_none())
}

impl Checker<'_> {
    pub(super) fn caps(&mut self, caps: &Caps, path: &str) -> CheckedCaps {
        self.shared_caps(caps, path);
        CheckedCaps {
            // What says nothing is not shared, either.
            share_overall: is_said(&caps.share_overall, &caps.overall, &caps.concurrency),
            share_per_key: is_said(&caps.share_per_key, &caps.per_key, &caps.key_concurrency),
            overall: self.quotas(&caps.overall, &join(path, "overall")),
            per_key: self.quotas(&caps.per_key, &join(path, "per_key")),
            concurrency: self.at_least_one(caps.concurrency.as_ref(), &join(path, "concurrency")),
            key_concurrency: self.at_least_one(caps.key_concurrency.as_ref(), &join(path, "key_concurrency")),
        }
    }

    /// The quotas of one list, in which a margin or an anchor that is that of the file anyhow is not said.
    pub(super) fn quotas(&mut self, quotas: &[At<Quota>], path: &str) -> Vec<Quota> {
        let margin = self.builder.margin.map_or(Nanos::ZERO, |at| at.value);
        let mut seen = BTreeSet::new();
        let mut checked = Vec::with_capacity(quotas.len());
        for (number, At { value, place }) in quotas.iter().enumerate() {
            let path = if quotas.len() > 1 { format!("{path}[{number}]") } else { path.to_owned() };
            let plain = self.plain(value);
            let before = self.findings.len();
            quota(&plain, margin, &mut |finding| self.findings.push(finding.at(&path, *place)));
            self.unit_of(&plain, &path, *place);
            if self.findings.len() == before {
                for finding in doubts(&plain, plain.margin_nanos().unwrap_or(margin)) {
                    self.push(finding, &path, *place);
                }
            }
            if !seen.insert(plain.to_string()) {
                let finding =
                    Finding::new(FindingCode::DuplicateQuota, format!("{} twice", short(value)), "each quota once");
                self.push(finding, &path, *place);
            }
            match plain.kind() {
                QuotaKind::Calendar { zone } => drop(self.zones.insert(zone.clone())),
                QuotaKind::Window | QuotaKind::Smooth | QuotaKind::Bucket { .. } => {}
            }
            checked.push(plain);
        }
        checked
    }

    /// The quota without what it would mean anyhow.
    fn plain(&self, quota: &Quota) -> Quota {
        let of_file = self.builder.count_from.unwrap_or_default();
        let count_from = match quota.kind() {
            QuotaKind::Window => of_file,
            QuotaKind::Smooth | QuotaKind::Bucket { .. } | QuotaKind::Calendar { .. } => CountFrom::Start,
        };
        let margin = match quota.kind() {
            QuotaKind::Window | QuotaKind::Smooth => Some(self.builder.margin.map_or(Nanos::ZERO, |at| at.value)),
            QuotaKind::Bucket { .. } | QuotaKind::Calendar { .. } => None,
        };
        quota.clone().with(
            quota.margin_nanos().filter(|own| Some(*own) != margin),
            quota.own_count_from().filter(|own| *own != count_from),
        )
    }
}

/// What is doubtful about a quota that works.
fn doubts(quota: &Quota, margin: Nanos) -> Vec<Finding> {
    let (shown, period, mut found) = (short(quota), quota.nanos(), Vec::new());
    let margin = match quota.kind() {
        QuotaKind::Window | QuotaKind::Smooth => margin,
        QuotaKind::Bucket { .. } => Nanos::ZERO,
        QuotaKind::Calendar { .. } => return found,
    };
    let with_margin = period.saturating_add(margin);
    if with_margin == Nanos::MAX {
        found.push(wording::too_long(format!("{shown} with a margin of {}", duration::format(margin))));
    } else if margin >= period {
        let long = format!("a margin of {} for {shown}", duration::format(margin));
        let allowed = format!("less than {}", duration::format(period));
        found.push(Finding::new(FindingCode::MarginTooLong, long, allowed));
    }
    let spread_over = match quota.kind() {
        QuotaKind::Smooth => with_margin,
        QuotaKind::Window | QuotaKind::Bucket { .. } | QuotaKind::Calendar { .. } => period,
    };
    // A request costs many of another unit: how many come in one start is not known.
    if quota.own_unit().is_none() && spread_over < GRAIN.saturating_mul(quota.count().into()) {
        let apart = duration::format(spread_over.div_ceil(quota.count().into()));
        let fine = format!("{shown}, one start in {apart}");
        found.push(Finding::new(FindingCode::BeyondTimers, fine, "one start in 1ms or more: timers resolve 1 ms"));
    }
    found
}
