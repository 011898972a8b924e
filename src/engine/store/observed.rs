//! What servers said of limits that a store keeps: it narrows them for all machines.
//!
//! A response says what was left when the server counted its request. Which of the store's starts that was is known from the
//! answer that gave it, so the store can take off what it gave after that, whoever it gave it to. What is told goes with a
//! question that is asked anyway. Only what makes much of a difference is a question by itself: what leaves less than half
//! of what the store would give as far as it said, and what is more than twice of what it goes by for want of newer words.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use super::{MOST, Site, Store};
use crate::engine::limit::{LONGEST, Word, capacity};
use crate::engine::plan::LimitKind;
use crate::engine::pool::{EndpointId, Mark};
use crate::engine::scheduler::Scheduler;
use crate::engine::time::{Instant, Nanos};

/// A start's place among those that a store gave of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial {
    /// When the store's count began, in its time.
    pub epoch: u64,
    /// How much it gave since then, this start included.
    pub number: u64,
}

impl Serial {
    /// How much was given after this start, as far as a later one.
    #[must_use]
    pub fn until(self, last: Self) -> u64 {
        // Of what began to count anew all came after it.
        if self.epoch == last.epoch { last.number.saturating_sub(self.number) } else { last.number }
    }
}

/// What a server said of one of its windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Which window it is: a number below 2^52 that follows from its name and its length.
    pub window: u64,
    /// How many were left.
    pub left: u32,
    /// The start that was answered with it, or the last one that was known of when it was said without one. `None`: none was,
    /// it is so as of now.
    pub answered: Option<Serial>,
    /// Whether it was said without a start: then it is newer than what that start was answered with.
    pub is_now: bool,
    /// In how long the window begins anew.
    pub reset: Nanos,
}

/// How a store's count of a limit stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stand {
    /// The last start that it gave.
    pub last: Serial,
    /// How many more it would give now if it were not for servers.
    pub room: u32,
    /// The servers' windows that it knows of, and what is left of each: it gives no more than the least of them.
    pub windows: Vec<(u64, u32)>,
}

/// Windows of servers that are kept of one limit: of more, the one with the most left goes.
pub(crate) const WINDOWS: usize = 4;
/// What stands for all windows of a limit's server, which is another one from now on.
pub(crate) const ALL: u64 = 0;
/// Limits of which there is something to tell; of others nothing is.
const SITES: usize = 1_024;

/// What is known of the store's counts, and what it is to be told.
#[derive(Debug, Default)]
pub(super) struct Servers {
    stands: Stands,
    untold: BTreeMap<Site, Vec<Heard>>,
    /// Those of which that is a question by itself.
    urgent: BTreeSet<Site>,
    /// What is told with the batch that is on its way.
    telling: Vec<(Site, Heard)>,
}

/// What a server said, for as long as it counts.
#[derive(Clone, Copy, Debug)]
struct Heard {
    window: u64,
    left: u32,
    answered: Option<Serial>,
    is_now: bool,
    until: Instant,
}

/// What is known of the store's counts, of the latest 1,024 limits at most.
#[derive(Debug, Default)]
struct Stands {
    recent: BTreeMap<Site, Known>,
    older: BTreeMap<Site, Known>,
}

/// What is known of the store's count of a limit.
#[derive(Debug, Default)]
struct Known {
    stand: Stand,
    /// The latest start that the store was told the answer to, of each window.
    told: Vec<(u64, Serial)>,
}

impl Stands {
    fn get(&self, site: Site) -> Option<&Known> {
        self.recent.get(&site).or_else(|| self.older.get(&site))
    }

    fn note(&mut self, site: Site, stand: &Stand) {
        if self.recent.len() >= SITES / 2 && !self.recent.contains_key(&site) {
            self.older = take(&mut self.recent);
        }
        let known = self.recent.entry(site).or_insert_with(|| self.older.remove(&site).unwrap_or_default());
        known.stand.clone_from(stand);
    }

    /// The store is told the answer to a start.
    fn tell(&mut self, site: Site, window: u64, answered: Serial) {
        let known = self.recent.get_mut(&site).or_else(|| self.older.get_mut(&site));
        let Some(Known { told, .. }) = known else { return };
        told.retain(|(other, _)| *other != window);
        told.push((window, answered));
        if told.len() > WINDOWS {
            told.remove(0);
        }
    }

    /// Whether the store was told the answer to a later start.
    fn is_old(&self, site: Site, heard: &Heard) -> bool {
        let told = self.get(site).and_then(|known| known.told.iter().find(|(window, _)| *window == heard.window));
        told.zip(heard.answered).is_some_and(|((_, told), answered)| *told > answered)
    }

    fn forget(&mut self, site: Site) {
        self.recent.remove(&site);
        self.older.remove(&site);
    }
}

impl Servers {
    /// The store answered, and these limits stand so.
    pub(super) fn note<'a>(&mut self, stands: impl Iterator<Item = (Site, &'a Option<Stand>)>) {
        self.telling.clear();
        for (site, stand) in stands {
            if let Some(stand) = stand {
                self.stands.note(site, stand);
            }
        }
    }

    /// There was no answer: what was told is told again, unless there is something newer.
    pub(super) fn fail(&mut self, now: Instant) {
        for (site, heard) in take(&mut self.telling) {
            // What came meanwhile is newer, unless it answers an earlier start.
            let is_newer = |other: &Heard| other.window == heard.window && other.answered >= heard.answered;
            if self.untold.get(&site).is_some_and(|all| all.iter().any(is_newer)) {
                continue;
            }
            if self.add(now, site, heard) && self.is_urgent(site, &heard) {
                self.urgent.insert(site);
            }
        }
    }

    /// Other rules: nothing that is known of a place is of use.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Other numbers of one limit.
    pub(super) fn forget(&mut self, site: Site) {
        self.stands.forget(site);
        self.untold.remove(&site);
        self.urgent.remove(&site);
        self.telling.retain(|(other, _)| *other != site);
    }

    /// The last start of a limit that the store gave, as far as it said.
    fn last(&self, site: Site) -> Option<Serial> {
        self.stands.get(site).map(|known| known.stand.last)
    }

    /// A key goes, and all its limits between these.
    pub(super) fn forget_between(&mut self, from: Site, to: Site) {
        while let Some((&site, _)) = self.untold.range(from..=to).next() {
            self.forget(site);
        }
    }

    /// A server said something of a limit that has so many. Returns whether the store is to be asked for that alone.
    fn hear(&mut self, now: Instant, site: Site, count: u32, heard: Heard) -> bool {
        if self.stands.is_old(site, &heard) || !self.add(now, site, heard) {
            return false;
        }
        let is_wide = heard.left >= count && self.stands.get(site).is_some_and(|known| known.stand.windows.is_empty());
        if is_wide && self.telling.iter().all(|(other, _)| *other != site) {
            self.drop_window(site, heard.window);
            return false;
        }
        let is_urgent = self.is_urgent(site, &heard);
        if is_urgent {
            self.urgent.insert(site);
        }
        is_urgent
    }

    /// Notes what is to be told, unless something newer is.
    fn add(&mut self, now: Instant, site: Site, heard: Heard) -> bool {
        if self.untold.len() >= SITES && !self.untold.contains_key(&site) {
            self.untold.retain(|_, all| all.iter().any(|heard| heard.until > now));
            if self.untold.len() >= SITES {
                // What makes no difference that matters goes with no question, and gives way to what does.
                let idle = self.untold.keys().find(|other| !self.urgent.contains(other)).copied();
                let Some(idle) = idle.filter(|_| self.is_urgent(site, &heard)) else { return false };
                self.untold.remove(&idle);
            }
        }
        let all = self.untold.entry(site).or_default();
        if all.iter().any(|other| other.window == heard.window && other.outdoes(&heard)) {
            return false;
        }
        all.retain(|other| other.window != heard.window);
        // That another server is there comes before what it says.
        if heard.window == ALL {
            all.insert(0, heard)
        } else {
            all.push(heard)
        }
        let windows = (0..all.len()).filter(|position| all[*position].window != ALL);
        if windows.clone().count() > WINDOWS
            && let Some(widest) = windows.max_by_key(|position| all[*position].left)
        {
            all.remove(widest);
        }
        true
    }

    fn drop_window(&mut self, site: Site, window: u64) {
        if let Some(all) = self.untold.get_mut(&site) {
            all.retain(|other| other.window != window);
            if all.is_empty() {
                self.untold.remove(&site);
                self.urgent.remove(&site);
            }
        }
    }

    /// Whether it makes so much of a difference to what the store said that it can't wait.
    fn is_urgent(&self, site: Site, heard: &Heard) -> bool {
        // What is so as of now is so no more when it is told later.
        let Some(known) = self.stands.get(site) else { return heard.left == 0 || heard.answered.is_none() };
        let Stand { last, room, windows } = &known.stand;
        let given = heard.answered.map_or(0, |serial| serial.until(*last));
        let (left, room) = (u64::from(heard.left).saturating_sub(given), u64::from(*room));
        let known = windows.iter().find(|(window, _)| *window == heard.window).map(|(_, left)| u64::from(*left));
        let gives = windows.iter().fold(room, |gives, (_, left)| gives.min((*left).into()));
        let is_much_less = left * 2 < gives || left == 0 && known != Some(0);
        is_much_less || known.is_some_and(|known| known == gives && left.min(room) > known * 2)
    }

    /// What is to be told of a limit now.
    fn take(&mut self, now: Instant, site: Site) -> Vec<Said> {
        self.urgent.remove(&site);
        let all = self.untold.remove(&site).unwrap_or_default();
        let heard = all.into_iter().filter(|heard| heard.until > now);
        let told = heard.map(|heard| {
            if let Some(answered) = heard.answered {
                self.stands.tell(site, heard.window, answered);
            }
            self.telling.push((site, heard));
            let Heard { window, left, answered, is_now, until } = heard;
            Said { window, left, answered, is_now, reset: until.since(now) }
        });
        told.collect()
    }
}

impl Heard {
    /// Whether it counts and the other one, which came later, does not.
    fn outdoes(&self, other: &Self) -> bool {
        match (self.answered, other.answered) {
            (_, None) => false,
            (None, Some(_)) => self.left < other.left,
            (Some(ours), Some(theirs)) => ours > theirs || ours == theirs && !other.is_now && self.left < other.left,
        }
    }
}

impl<W> Scheduler<W> {
    /// A server told what is left of a limit, in the response to a request if it was in one.
    pub(in crate::engine) fn note_for_store(&mut self, site: Site, answered: Option<u32>, word: &Word<'_>) {
        let Some(spec) = self.shared_spec(site).filter(|spec| is_narrowed(spec.kind)) else { return };
        let Some(store) = self.store.as_mut().filter(|_| word.reset.is_some()) else { return };
        let serial = match answered {
            None => store.servers.last(site),
            Some(index) => match store.serial(index, site) {
                Some(serial) => Some(serial),
                // It started without the store.
                None => return,
            },
        };
        let heard = Heard {
            window: number(word.window, word.per),
            left: word.left,
            answered: serial,
            is_now: answered.is_none(),
            until: word.until(word.at_most),
        };
        if heard.until > word.read && store.servers.hear(word.read, site, capacity(spec.kind), heard) {
            store.wanted = true;
            self.stirred = true;
        }
    }

    /// Another token is behind the name of an endpoint: what servers said of the old one is about nothing any more.
    pub(in crate::engine) fn forget_servers_of(&mut self, now: Instant, endpoint: EndpointId) {
        let limits = self.plan.pool.as_ref().and_then(|pool| pool.endpoints.get(usize::from(endpoint.0)));
        let limits = limits.map_or(0, |endpoint| endpoint.limits.len());
        for site in (0..limits).map(|limit| Site::Endpoint(endpoint, limit)) {
            let is_narrowed = self.shared_spec(site).is_some_and(|spec| is_narrowed(spec.kind));
            let Some(store) = self.store.as_mut().filter(|_| is_narrowed) else { continue };
            let answered = store.servers.last(site);
            store.servers.forget(site);
            let until = now.saturating_add(LONGEST);
            store.servers.add(now, site, Heard { window: ALL, left: u32::MAX, answered, is_now: true, until });
            store.servers.urgent.insert(site);
            store.wanted = true;
            self.reopen(now, site);
        }
    }

    /// Writes into a batch what servers said of its limits, and what can't wait of others.
    pub(super) fn write_said(&mut self, now: Instant) {
        let most = self.store.as_ref().map_or(0, |store| store.lines.len()) + MOST;
        while let Some(store) = self.store.as_mut().filter(|store| store.lines.len() < most)
            && let Some(site) = store.servers.urgent.pop_first()
        {
            let kind = self.shared_spec(site).map(|spec| spec.kind);
            match (&mut self.store, kind) {
                (Some(store), Some(kind)) => {
                    store.line(site, kind);
                }
                (Some(store), None) => store.servers.forget(site),
                (None, _) => {}
            }
        }
        let Some(store) = &mut self.store else { return };
        let Store { lines, servers, .. } = &mut **store;
        for line in lines {
            line.said = servers.take(now, line.site);
        }
        store.wanted |= !store.servers.urgent.is_empty();
    }
}

impl Store {
    /// Which start of a limit a request is that the store gave.
    fn serial(&self, index: u32, site: Site) -> Option<Serial> {
        let given = self.given.get(&index)?;
        given.serials.iter().find(|(at, _)| *at == site).map(|(_, serial)| *serial)
    }
}

/// Whether servers narrow a kind of limit that a store keeps.
pub(crate) fn is_narrowed(kind: LimitKind) -> bool {
    match kind {
        LimitKind::Window { period, .. } => !period.is_zero(),
        LimitKind::Bucket { .. } => true,
        LimitKind::Spaced { .. } | LimitKind::Calendar { .. } => false,
    }
}

/// What a server's window is known by in all machines, whatever built them.
fn number(name: &str, per: Option<Nanos>) -> u64 {
    let length = per.map_or(0, Nanos::get);
    Mark::NONE.and(name.as_bytes()).and(&[0xff]).and(&length.to_le_bytes()).get() >> 12
}
