//! Other rules and other numbers: limits that the store keeps stand elsewhere then, or are new to it.

use std::mem::{discriminant, take};

use super::{Given, LISTED, Site};
use crate::engine::answer::KeyId;
use crate::engine::plan::{LimitKind, LimitSpec, Plan, RuleId};
use crate::engine::pool::EndpointId;
use crate::engine::queue::Queue;
use crate::engine::request::Stage;
use crate::engine::scheduler::Scheduler;
use crate::engine::time::{Instant, Nanos};

/// Where no limit stands.
const GONE: Site = Site::Shared(usize::MAX);

impl LimitSpec {
    /// Whether a store counts both under one name.
    fn is_counted_with(&self, other: &Self) -> bool {
        self.is_shared()
            && other.is_shared()
            && self.origin == other.origin
            && self.charge == other.charge
            && discriminant(&self.kind) == discriminant(&other.kind)
            && span(self) == span(other)
    }
}

/// What a store counts by: the length of a window, and whether it lists starts; the time that spacing and buckets take for one.
fn span(spec: &LimitSpec) -> (Nanos, bool) {
    match spec.kind {
        LimitKind::Window { period, count, .. } => (period, !period.is_zero() && count <= LISTED),
        LimitKind::Spaced { interval, .. } | LimitKind::Bucket { interval, .. } => (interval, false),
        LimitKind::Calendar { .. } => (Nanos::ZERO, false),
    }
}

impl<W> Scheduler<W> {
    /// Whatever is asked for goes back to its place: what the answer gives to it is lost.
    pub(in crate::engine) fn recall_asked(&mut self, now: Instant) {
        self.recall_where(now, |_| true);
    }

    /// The same of those queues. The batch stays as it is: its answer says more than what it gives.
    pub(in crate::engine) fn recall_where(&mut self, now: Instant, which: impl Fn(u32) -> bool) {
        let Some(store) = &mut self.store else { return };
        let asked = take(&mut store.asked);
        for asked in asked.iter().rev() {
            if self.is_asked_for(asked.id) && which(self.requests[asked.id.index].queue) {
                self.put_in_front(now, asked);
            }
        }
        if let Some(store) = &mut self.store {
            store.asked = asked;
        }
    }

    /// After other rules: what is known of limits is known where they stand now, and the store is told of those that it has
    /// not kept so far. Slots are written down anew.
    pub(in crate::engine) fn review_store(&mut self, old: &Plan) {
        let Some(store) = &mut self.store else { return };
        store.rules = self.plan.rules.iter().map(|rule| self.plan.is_shared_by(rule)).collect();
        store.closed.clear();
        store.ends.clear();
        store.servers.clear();
        store.changed.extend(store.held.keys());
        let (changed, counted, untold) = (take(&mut store.changed), take(&mut store.counted), take(&mut store.untold));
        let (telling, mut lines) = (take(&mut store.telling), take(&mut store.lines));
        let moved = |site: &Site| moved(old, &self.plan, *site);
        let [changed, counted] = [changed, counted].map(|sites| sites.iter().filter_map(moved).collect());
        let untold = untold.iter().filter_map(|(site, since)| Some((moved(site)?, *since))).collect();
        let telling = telling.iter().filter_map(|(site, since)| Some((moved(site)?, *since))).collect();
        for line in &mut lines {
            line.site = moved(&line.site).unwrap_or(GONE);
        }
        let fresh = self.fresh_sites(old);
        if let Some(store) = &mut self.store {
            (store.changed, store.counted) = (changed, counted);
            (store.untold, store.telling, store.lines) = (untold, telling, lines);
            for site in fresh {
                store.untold.insert(site, Instant::ZERO);
            }
        }
        self.review_slots(|_| true, |_| false);
    }

    /// The numbers of a queue, if there is a store that may have to hear of others.
    pub(in crate::engine) fn own_of_store(&self, queue: u32) -> Vec<LimitSpec> {
        let Queue { rule, ref extras, .. } = self.queues[queue];
        let own = || Queue::own(extras, &self.plan.rules[usize::from(rule)]).to_vec();
        self.store.as_ref().map_or_else(Vec::new, |_| own())
    }

    /// After other numbers of a queue, which had these: the same for them.
    pub(in crate::engine) fn review_store_of(&mut self, queue: u32, old: &[LimitSpec]) {
        if self.store.is_none() {
            return;
        }
        let Queue { rule, key, ref extras, .. } = self.queues[queue];
        let key = KeyId { index: key, generation: self.keys.generation(key) };
        let own = Queue::own(extras, &self.plan.rules[usize::from(rule)]);
        let fresh: Vec<Site> = fresh(old, own).map(|limit| Site::Own(RuleId(rule), key, limit)).collect();
        if let Some(store) = &mut self.store {
            store.untold.extend(fresh.into_iter().map(|site| (site, Instant::ZERO)));
            for limit in 0..old.len() {
                let site = Site::Own(RuleId(rule), key, limit);
                store.reopen(site);
                store.servers.forget(site);
            }
        }
        self.review_slots(
            |other| other == queue,
            |site| !matches!(site, Site::Own(of, id, _) if (of.0, id) == (rule, key)),
        );
    }

    /// Writes anew down who of these queues holds which slots, and has the store told of them. Which start of a limit a request
    /// is stays known where that limit stands as before.
    pub(in crate::engine) fn review_slots(&mut self, which: impl Fn(u32) -> bool, stays: impl Fn(Site) -> bool) {
        if self.store.is_none() {
            return;
        }
        let holds = |index: &u32| {
            let request = &self.requests[*index];
            let stage = request.stage();
            which(request.queue) && (stage.runs() || matches!(stage, Stage::Granted { .. }))
        };
        let holders: Vec<u32> = self.requests.indices().filter(holds).collect();
        for index in holders {
            let Some(store) = &mut self.store else { return };
            let given = store.given.remove(&index);
            for site in given.iter().flat_map(|given| &given.caps) {
                store.release(*site);
                store.changed.insert(*site);
            }
            self.note_alone(index);
            let Some(Given { usable_until, mut serials, .. }) = given else { continue };
            serials.retain(|(site, _)| stays(*site));
            if let Some(store) = self.store.as_mut().filter(|_| usable_until.is_some() || !serials.is_empty()) {
                let given = store.given.entry(index).or_default();
                (given.usable_until, given.serials) = (usable_until, serials);
            }
        }
        if let Some(store) = &mut self.store {
            store.wanted = true;
        }
        self.stirred = true;
    }

    /// The limits of the present plan that no store kept under the old one.
    fn fresh_sites(&self, old: &Plan) -> Vec<Site> {
        let plan = &self.plan;
        let mut sites: Vec<Site> = fresh(&old.shared_limits, &plan.shared_limits).map(Site::Shared).collect();
        let of_keys: Vec<usize> = fresh(&old.key_limits, &plan.key_limits).collect();
        let id = |index: u32| KeyId { index, generation: self.keys.generation(index) };
        if !of_keys.is_empty() {
            let keys = self.keys.indices().map(id);
            sites.extend(keys.flat_map(|key| of_keys.iter().map(move |&limit| Site::Key(key, limit))));
        }
        for queue in self.queues.indices() {
            let Queue { rule, key, .. } = self.queues[queue];
            let before = old.rules.get(usize::from(rule)).map_or(&[][..], |rule| &rule.own);
            let own = fresh(before, &plan.rules[usize::from(rule)].own);
            sites.extend(own.map(|limit| Site::Own(RuleId(rule), id(key), limit)));
        }
        for (position, endpoint) in plan.pool.iter().flat_map(|pool| &pool.endpoints).enumerate() {
            let before = old.pool.as_ref().and_then(|pool| pool.endpoints.get(position));
            let limits = fresh(before.map_or(&[], |endpoint| &endpoint.limits), &endpoint.limits);
            sites.extend(
                (0..=u16::MAX)
                    .nth(position)
                    .into_iter()
                    .flat_map(|id| limits.clone().map(move |limit| Site::Endpoint(EndpointId(id), limit))),
            );
        }
        sites
    }
}

/// The positions of limits that a store keeps and did not keep before.
fn fresh<'a>(old: &'a [LimitSpec], new: &'a [LimitSpec]) -> impl Iterator<Item = usize> + Clone + 'a {
    let is_fresh = |spec: &LimitSpec| spec.is_shared() && !old.iter().any(|old| old.is_counted_with(spec));
    new.iter().enumerate().filter(move |(_, spec)| is_fresh(spec)).map(|(limit, _)| limit)
}

/// Where a limit of the old plan stands in the new one.
fn moved(old: &Plan, new: &Plan, site: Site) -> Option<Site> {
    let find = |old: &[LimitSpec], new: &[LimitSpec], limit: usize| {
        let spec = old.get(limit)?;
        new.iter().position(|other| other.is_counted_with(spec))
    };
    match site {
        Site::Shared(limit) => find(&old.shared_limits, &new.shared_limits, limit).map(Site::Shared),
        Site::Key(key, limit) => find(&old.key_limits, &new.key_limits, limit).map(|limit| Site::Key(key, limit)),
        // Numbers of single keys are set anew, each with a look at what changes.
        Site::Own(..) => Some(site),
        Site::Endpoint(endpoint, limit) => {
            let at = usize::from(endpoint.0);
            let [old, new] = [old, new].map(|plan| plan.pool.as_ref().and_then(|pool| pool.endpoints.get(at)));
            find(&old?.limits, &new?.limits, limit).map(|limit| Site::Endpoint(endpoint, limit))
        }
    }
}
