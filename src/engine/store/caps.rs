//! Slots of concurrency caps that the store keeps: who holds them, and that it is told so.

use super::{Given, MOST, Site, Store, Told, is_cap};
use crate::engine::answer::KeyId;
use crate::engine::limit::LimitState;
use crate::engine::plan::{LimitKind, LimitSpec, RuleId};
use crate::engine::queue::Queue;
use crate::engine::scheduler::Scheduler;
use crate::engine::time::{Instant, Nanos};

/// Numbers that tell of the starts of one limit.
const EACH: usize = 1_024;
/// Limits and numbers in one batch that tell, beside those of limits that are asked for: the store does nothing else meanwhile.
const LINES: usize = 1_024;
const NUMBERS: usize = 4_096;

impl<W> Scheduler<W> {
    /// The store is to hear again of all slots that are in use: its leases run out otherwise.
    pub fn renew_leases(&mut self) {
        let Some(store) = &mut self.store else { return };
        store.changed.extend(store.held.keys());
        store.wanted |= !store.changed.is_empty();
    }

    /// The store forgot a limit, and is to be told what the machine knows of it.
    pub fn recount(&mut self, site: Site) {
        let is_cap = self.shared_spec(site).is_some_and(|spec| is_cap(spec.kind));
        let Some(store) = &mut self.store else { return };
        if is_cap {
            store.changed.insert(site);
        } else {
            store.untold.insert(site, Instant::ZERO);
        }
        store.wanted = true;
        self.stirred = true;
    }

    /// Whether any slot of the store is in use, or it does not know yet of one that is not.
    #[must_use]
    pub fn holds_slots(&self) -> bool {
        self.store.as_ref().is_some_and(|store| !store.held.is_empty() || !store.changed.is_empty())
    }

    /// The store is to be told how many of these are in use, unless those are none and it never heard of any.
    pub(super) fn tell_caps(&mut self, caps: Vec<Site>) {
        let Some(store) = &mut self.store else { return };
        for site in caps {
            if store.held.contains_key(&site) || store.counted.contains(&site) {
                store.changed.insert(site);
                store.wanted = true;
                self.stirred = true;
            } else {
                store.changed.remove(&site);
            }
        }
    }

    /// An attempt began without the store: its slots are in use all the same, and its start is to be told.
    pub(in crate::engine) fn note_alone(&mut self, index: u32) {
        let Some(store) = &self.store else { return };
        if !store.rules[usize::from(self.queues[self.requests[index].queue].rule)] {
            return;
        }
        let since = store.alone_since;
        let draws = self.draws(index, true);
        let Some(store) = &mut self.store else { return };
        let mut caps = Vec::new();
        for draw in draws {
            if is_cap(draw.kind) {
                *store.held.entry(draw.site).or_default() += 1;
                store.changed.insert(draw.site);
                caps.push(draw.site);
            } else if let Some(since) = since {
                store.untold.entry(draw.site).or_insert(since);
            }
        }
        if !caps.is_empty() {
            store.given.insert(index, Given { usable_until: None, caps, serials: Vec::new() });
        }
    }

    /// Whether what the store gave to a granted request may still be used.
    pub(in crate::engine) fn is_usable(&mut self, now: Instant, index: u32) -> bool {
        let Some(store) = &mut self.store else { return true };
        let until = store.given.get(&index).and_then(|given| given.usable_until);
        let is_usable = until.is_none_or(|until| now <= until);
        store.late += u32::from(!is_usable);
        is_usable
    }

    /// How many could not use what they were given since this was last asked, as they were too late.
    pub fn take_late(&mut self) -> u32 {
        self.store.as_mut().map_or(0, |store| std::mem::take(&mut store.late))
    }

    /// The limits that the store had nothing of, and that are not known to have room again.
    #[must_use]
    pub fn closed_sites(&self) -> Vec<Site> {
        self.store.as_ref().map_or_else(Vec::new, |store| store.closed.keys().copied().collect())
    }

    /// Until when the store has nothing for a rule and a key, as far as it said.
    pub(in crate::engine) fn closed_in_store(&self, rule: usize, key: Option<u32>, queue: Option<u32>) -> Instant {
        let Some(store) = self.store.as_deref().filter(|store| store.closes_any()) else { return Instant::ZERO };
        let plan = &self.plan.rules[rule];
        let overall = plan.shared.iter().map(|bound| (Site::Shared(bound.limit), bound.reserve));
        let id = key.map(|key| KeyId { index: key, generation: self.keys.generation(key) });
        let of_key =
            id.into_iter().flat_map(|id| plan.key.iter().map(move |bound| (Site::Key(id, bound.limit), bound.reserve)));
        let own = id.zip(queue).into_iter().flat_map(|(id, queue)| {
            let limits = Queue::own(&self.queues[queue].extras, plan).len();
            (0..limits).map(move |limit| (Site::Own(RuleId(self.queues[queue].rule), id, limit), 0))
        });
        let all = overall.chain(of_key).chain(own).map(|(site, reserve)| store.closed_until(site, reserve));
        all.max().unwrap_or(Instant::ZERO)
    }

    /// A request that was granted starts.
    pub(in crate::engine) fn use_given(&mut self, index: u32) {
        let Some(store) = &mut self.store else { return };
        if let Some(given) = store.given.get_mut(&index) {
            given.usable_until = None;
            if given.caps.is_empty() && given.serials.is_empty() {
                store.given.remove(&index);
            }
        }
    }

    /// A grant is given back, or an attempt ended: its slots are free.
    pub(in crate::engine) fn leave_store(&mut self, index: u32) {
        let Some(store) = &mut self.store else { return };
        let Some(Given { caps, .. }) = store.given.remove(&index) else { return };
        for site in &caps {
            store.release(*site);
        }
        self.tell_caps(caps);
    }

    /// Whether the store has yet to hear that slots of a key are free, or may just be giving some.
    pub(in crate::engine) fn is_owed_to_store(&self, id: KeyId) -> bool {
        let Some(store) = &self.store else { return false };
        let is_its = |site: &Site| match site {
            Site::Key(key, _) | Site::Own(_, key, _) => *key == id,
            Site::Shared(_) | Site::Endpoint(..) => false,
        };
        let is_changed = |from: Site, to: Site| store.changed.range(from..=to).next().is_some();
        let mut rules = (0..=u16::MAX).zip(&*self.plan.rules).map(|(rule, _)| RuleId(rule));
        is_changed(Site::Key(id, 0), Site::Key(id, usize::MAX))
            || rules.any(|rule| is_changed(Site::Own(rule, id, 0), Site::Own(rule, id, usize::MAX)))
            || store.lines.iter().any(|line| is_cap(line.kind) && is_its(&line.site))
    }

    /// A key goes: nothing that is known of its limits is of use to the store.
    pub(in crate::engine) fn forget_in_store(&mut self, id: KeyId) {
        let Some(store) = &mut self.store else { return };
        let Store { untold, counted, servers, .. } = &mut **store;
        let mut forget = |from: Site, to: Site| {
            while let Some((&site, _)) = untold.range(from..=to).next() {
                untold.remove(&site);
            }
            while let Some(&site) = counted.range(from..=to).next() {
                counted.remove(&site);
            }
            servers.forget_between(from, to);
        };
        forget(Site::Key(id, 0), Site::Key(id, usize::MAX));
        for (rule, _) in (0..=u16::MAX).zip(&*self.plan.rules) {
            forget(Site::Own(RuleId(rule), id, 0), Site::Own(RuleId(rule), id, usize::MAX));
        }
    }

    /// What the store is to be told, beside what is asked of it: all that is news of limits that are asked for, and of
    /// others so much that it has time for other processes. The rest is told with the batches that follow.
    pub(super) fn tell_store(&mut self, now: Instant) {
        let Some(store) = &mut self.store else { return };
        let asked: Vec<Site> = store.lines.iter().map(|line| line.site).collect();
        let mut changed: Vec<Site> = asked.iter().copied().filter(|site| store.changed.remove(site)).collect();
        while changed.len() < MOST
            && let Some(site) = store.changed.pop_first()
        {
            changed.push(site);
        }
        for site in changed {
            if let Some(kind) = self.kind_at(site)
                && let Some(store) = &mut self.store
            {
                store.line(site, kind);
            }
        }
        for site in asked {
            if let Some(since) = self.store.as_mut().and_then(|store| store.untold.remove(&site)) {
                self.tell_starts(now, site, since);
            }
        }
        let mut numbers = 0;
        while let Some(store) = &mut self.store
            && store.lines.len() < LINES
            && numbers < NUMBERS
            && let Some((site, since)) = store.untold.pop_first()
        {
            numbers += self.tell_starts(now, site, since);
        }
        if let Some(store) = &mut self.store {
            store.wanted |= !store.changed.is_empty() || !store.untold.is_empty();
        }
        self.write_said(now);
        // As many as are in use now, whenever the line was written.
        if let Some(store) = &mut self.store {
            let Store { lines, held, counted, asked, .. } = &mut **store;
            for line in &mut *lines {
                line.held = held.get(&line.site).copied().unwrap_or(0);
            }
            let taken = asked.iter().flat_map(|asked| &asked.takes).map(|take| &lines[take.line]);
            let counts = lines.iter().filter(|line| line.held > 0).chain(taken).filter(|line| line.is_cap());
            counted.extend(counts.map(|line| line.site));
        }
    }

    /// Writes into the batch what the machine knows of a limit's starts since an instant. Returns how many numbers that takes.
    fn tell_starts(&mut self, now: Instant, site: Site, since: Instant) -> usize {
        let Some(kind) = self.kind_at(site) else { return 0 };
        let Some(told) = self.state_at(site).map(|state| told(kind, state, now, since)) else { return 0 };
        let Some(store) = self.store.as_mut().filter(|_| !told.is_nothing()) else { return 0 };
        store.telling.insert(site, since);
        let numbers = told.numbers();
        let line = store.line(site, kind);
        store.lines[line].told = told;
        numbers
    }

    fn kind_at(&self, site: Site) -> Option<LimitKind> {
        self.shared_spec(site).map(|spec| spec.kind)
    }

    /// A limit that the store keeps, if it is still there.
    #[must_use]
    pub fn shared_spec(&self, site: Site) -> Option<LimitSpec> {
        let spec: Option<&LimitSpec> = match site {
            Site::Shared(limit) => self.plan.shared_limits.get(limit),
            Site::Key(key, limit) => self.plan.key_limits.get(limit).filter(|_| self.knows(key)),
            Site::Own(rule, key, limit) => {
                let queue = if self.knows(key) { self.find_queue(key.index, rule)? } else { return None };
                let plan = &self.plan.rules[usize::from(rule.0)];
                Queue::own(&self.queues[queue].extras, plan).get(limit)
            }
            Site::Endpoint(endpoint, limit) => {
                let pool = self.plan.pool.as_ref()?;
                pool.endpoints.get(usize::from(endpoint.0))?.limits.get(limit)
            }
        };
        spec.filter(|spec| spec.is_shared()).cloned()
    }

    fn state_at(&mut self, site: Site) -> Option<&mut LimitState> {
        match site {
            Site::Shared(limit) => self.shared.as_mut_slice().get_mut(limit),
            Site::Key(key, limit) => self.keys.get_mut(key.index, key.generation)?.limits.as_mut_slice().get_mut(limit),
            Site::Own(rule, key, limit) => {
                let queue = if self.knows(key) { self.find_queue(key.index, rule)? } else { return None };
                self.queues[queue].limits.as_mut_slice().get_mut(limit)
            }
            Site::Endpoint(endpoint, limit) => {
                let endpoint = self.pool.as_mut()?.endpoints.get_mut(usize::from(endpoint.0))?;
                endpoint.limits.as_mut_slice().get_mut(limit)
            }
        }
    }
}

impl Store {
    pub(super) fn release(&mut self, site: Site) {
        if let Some(held) = self.held.get_mut(&site) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&site);
            }
        }
    }
}

/// What a limit of the machine knows of its starts since an instant.
fn told(kind: LimitKind, state: &mut LimitState, now: Instant, since: Instant) -> Told {
    match kind {
        LimitKind::Window { period, .. } => {
            let counts = |at: Instant| at >= since && at.saturating_add(period) > now;
            let starts = state.starts().into_iter().filter(|&(at, _)| counts(at));
            Told::Starts(fold(starts.map(|(at, cost)| (now.since(at), cost)).collect(), period))
        }
        LimitKind::Spaced { .. } | LimitKind::Bucket { .. } => {
            Told::Owed(state.due().map_or(Nanos::ZERO, |due| due.since(now)))
        }
        LimitKind::Calendar { .. } => Told::Nothing,
    }
}

/// So many starts that they take a while to read are told in fewer numbers: those close together as if all were the last one.
fn fold(starts: Vec<(Nanos, u32)>, period: Nanos) -> Vec<(Nanos, u32)> {
    if starts.len() <= EACH {
        return starts;
    }
    let grain = period.div_ceil(EACH as u64).get();
    let mut folded: Vec<(Nanos, u32)> = Vec::with_capacity(EACH);
    for (ago, cost) in starts {
        match folded.last_mut().filter(|(last, _)| last.get() / grain == ago.get() / grain) {
            Some(last) => *last = (ago, last.1.saturating_add(cost)),
            None => folded.push((ago, cost)),
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_starts_are_told_in_few_numbers_and_none_as_earlier_than_it_was() {
        let period = Nanos::from_secs(60);
        let starts: Vec<(Nanos, u32)> = (0..30_000).rev().map(|at| (Nanos::from_millis(at * 2), 3)).collect();
        let folded = fold(starts.clone(), period);
        assert!(folded.len() <= EACH + 1, "{}", folded.len());
        let sum = |starts: &[(Nanos, u32)], ago: Nanos| -> u32 {
            starts.iter().filter(|(at, _)| *at <= ago).map(|(_, cost)| cost).sum()
        };
        assert_eq!(sum(&folded, period), 90_000);
        for (ago, _) in &folded {
            assert!(sum(&folded, *ago) >= sum(&starts, *ago));
        }
        assert_eq!(fold(starts[..100].to_vec(), period), starts[..100]);
    }
}
