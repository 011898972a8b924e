//! Limits that processes share: whether a store can keep them, and what is left of them for one process alone.

use super::Checker;
use crate::engine::{Anchor, LimitKind, Nanos};
use crate::rules::builder::{At, Caps};
use crate::rules::duration;
use crate::rules::finding::{Finding, FindingCode, Place};
use crate::rules::model::{CheckedCaps, Model};
use crate::rules::quota::{CountFrom, Quota, QuotaKind};
use crate::rules::shared::{CheckedShared, OnOutage};
use crate::rules::toml::join;
use crate::rules::wording;

/// The shortest lease: it is renewed three times in it.
const SHORTEST: Nanos = Nanos::from_secs(1);

/// By what a store counts, in microseconds.
#[derive(PartialEq, Eq)]
enum Counted {
    Window(u64),
    Spaced(u64),
    Bucket(u64),
}

impl Checker<'_> {
    pub(super) fn shared(&mut self) -> CheckedShared {
        let mut checked = CheckedShared::default();
        let Some(shared) = &self.builder.shared else { return checked };
        if let Some(At { value, place }) = &shared.prefix {
            if value.is_empty() || value.chars().any(|c| c.is_control() || c.is_whitespace() || matches!(c, '{' | '}'))
            {
                let allowed = "a name of visible characters without `{`, `}` and spaces";
                let finding = Finding::new(FindingCode::InvalidName, wording::quote(value), allowed);
                self.push(finding, "shared.prefix", *place);
            }
            checked.prefix.clone_from(value);
        }
        if let Some(At { value, place }) = &shared.lease {
            if *value < SHORTEST {
                let finding =
                    Finding::new(FindingCode::OutOfRange, wording::quote(&duration::format(*value)), "at least `1s`");
                self.push(finding, "shared.lease", *place);
            }
            checked.lease = *value;
        }
        if let Some(url) = &shared.url {
            if url.value.is_empty() {
                let finding = wording::empty("empty text", "an address such as `redis://127.0.0.1:6379`");
                self.push(finding, "shared.url", url.place);
            }
            checked.url = Some(url.value.clone());
        }
        if let Some(processes) = self.at_least_one(shared.processes.as_ref(), "shared.processes") {
            checked.processes = processes;
        }
        checked.on_outage = shared.on_outage;
        checked.version = shared.version.as_ref().map(|at| at.value);
        checked
    }

    /// What is said to be shared and cannot be.
    pub(super) fn shared_caps(&mut self, caps: &Caps, path: &str) {
        for (shared, quotas, name) in
            [(&caps.share_overall, &caps.overall, "overall"), (&caps.share_per_key, &caps.per_key, "per_key")]
        {
            let Some(place) = shared.filter(|at| at.value).map(|at| at.place) else { continue };
            self.any_shared = true;
            self.shared_quotas(quotas, &join(path, name), place);
        }
    }

    /// Quotas that a store is to keep.
    pub(super) fn shared_quotas(&mut self, quotas: &[At<Quota>], path: &str, place: Option<Place>) {
        let reasons: Vec<&str> = quotas.iter().filter_map(|quota| self.not_shareable(&quota.value)).collect();
        for found in reasons {
            self.push_not_shareable(found, path, place);
        }
        let alike = |one: &Quota, other: &Quota| {
            let counted = self.counted(other);
            one.own_unit() == other.own_unit() && self.counted(one).iter().any(|by| counted.contains(by))
        };
        let twice = |(at, quota): (usize, &At<Quota>)| quotas[..at].iter().any(|one| alike(&one.value, &quota.value));
        if quotas.iter().enumerate().any(twice) {
            self.push_not_shareable("two quotas of one length", path, place);
        }
    }

    /// Limits of each key on an endpoint, which no store keeps.
    pub(super) fn shared_seat(&mut self, caps: &Caps, path: &str) {
        if let Some(At { value: true, place }) = caps.share_per_key {
            self.push_not_shareable("a limit of each key on an endpoint", &join(path, "per_key"), place);
        }
    }

    /// Once all is read: a store that keeps nothing, and limits of which one process alone gets nothing.
    pub(super) fn shared_as_a_whole(&mut self, model: &Model) {
        if self.builder.shared.is_some() && !self.any_shared && !self.unsure {
            let allowed = "`shared = true` at a limit, or no such table";
            self.push(
                Finding::new(FindingCode::UnusedShared, "`[shared]` where no limit is shared", allowed),
                "shared",
                None,
            );
        }
        if model.shared.on_outage != OnOutage::LocalShare {
            return;
        }
        for (path, kind, text) in model.shared_kinds() {
            if model.shared.part(kind).is_none() {
                let found = format!("{text} among {} processes", model.shared.processes);
                let allowed =
                    "as many as there are processes, or `on_outage = \"closed\"`: alone none of them starts anything";
                self.push(Finding::new(FindingCode::NothingAlone, found, allowed), path, None);
            }
        }
    }

    fn not_shareable(&self, quota: &Quota) -> Option<&'static str> {
        let from_response = quota.own_count_from().or(self.builder.count_from) == Some(CountFrom::Response);
        match quota.kind() {
            QuotaKind::Calendar { .. } => Some("a quota of a calendar day"),
            QuotaKind::Window if from_response => Some("a quota that counts from the response"),
            QuotaKind::Window | QuotaKind::Smooth | QuotaKind::Bucket { .. } => None,
        }
    }

    /// By what a store counts a quota: as many of one name would be one limit to it.
    fn counted(&self, quota: &Quota) -> Vec<Counted> {
        let micros = |span: Nanos| span.get().div_ceil(1_000);
        let margin = quota.margin_nanos().or_else(|| self.builder.margin.as_ref().map(|at| at.value));
        let margin = margin.unwrap_or(Nanos::ZERO);
        let period = quota.nanos().saturating_add(margin);
        let spaced = |period: Nanos| micros(period.div_ceil(u64::from(quota.count().max(1))));
        match quota.kind() {
            QuotaKind::Window => vec![Counted::Window(micros(period))],
            QuotaKind::Smooth => vec![Counted::Window(micros(period)), Counted::Spaced(spaced(period))],
            QuotaKind::Bucket { .. } => vec![Counted::Bucket(spaced(quota.nanos()))],
            QuotaKind::Calendar { .. } => Vec::new(),
        }
    }

    fn push_not_shareable(&mut self, found: &str, path: &str, place: Option<Place>) {
        let allowed = "windows that count from the start, `smooth`, `burst` and concurrency, of all or of each key";
        self.push(Finding::new(FindingCode::NotShareable, format!("{found}, shared"), allowed), path, place);
    }
}

impl Model {
    /// The counts that processes share, with where and how the rules say so.
    fn shared_kinds(&self) -> Vec<(String, LimitKind, String)> {
        let mut kinds = Vec::new();
        let mut level = |caps: &CheckedCaps, path: &str| {
            for (shared, quotas, cap, name) in [
                (caps.share_overall, &caps.overall, caps.concurrency, "overall"),
                (caps.share_per_key, &caps.per_key, caps.key_concurrency, "per_key"),
            ] {
                if !shared {
                    continue;
                }
                let path = join(path, name);
                for quota in quotas {
                    let count = match quota.kind() {
                        QuotaKind::Bucket { burst } => *burst,
                        QuotaKind::Window | QuotaKind::Smooth | QuotaKind::Calendar { .. } => quota.count(),
                    };
                    kinds.push((path.clone(), cap_of(count), wording::quote(&quota.to_string())));
                }
                kinds.extend(cap.map(|cap| (path.clone(), cap_of(cap), format!("a concurrency of `{cap}`"))));
            }
        };
        level(&self.caps, "");
        for limit in &self.limits {
            level(&limit.caps, &join("limits", &limit.name));
        }
        for lane in &self.lanes {
            level(&lane.caps, &join("lanes", &lane.priority.to_string()));
        }
        for rule in &self.rules {
            level(&rule.caps, &join("rules", &rule.name));
        }
        if let Some(pool) = &self.pool {
            level(&CheckedCaps { share_per_key: false, ..pool.caps.clone() }, "pool");
        }
        kinds
    }
}

/// A limit of this count.
fn cap_of(count: u32) -> LimitKind {
    LimitKind::Window { count, period: Nanos::ZERO, anchor: Anchor::End, grain: Nanos::ZERO }
}
