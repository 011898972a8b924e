//! What outlives a restart, at the clock on the wall (feature `serde`).

mod format;

use std::time::SystemTime;

use self::format::{Memories, Versions};
use super::balancer::Balancer;
use super::shared::Shared;
use super::wall::{Wall, unix};
use crate::engine::{Memory, Turned};
use crate::key::Key;

/// How many keys are looked at before the machine is let go for others.
const BATCH: usize = 64;

/// What a [`Balancer`] knows that should outlive its program: [`Balancer::export_state`] makes one.
///
/// Opaque, and meant to be kept with any format of serde. It carries its version: one that this version of the crate does
/// not know is refused when it is read. Spans of time are in nanoseconds, instants in nanoseconds since 1970 in UTC.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct State(Versions);

/// What became of a [`State`] that was imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Limits, holds, rows of "slow down" and invalid attempts that go on from where they were; all the invalid ones count
    /// as one. Some may be over already.
    pub taken: usize,
    /// Those that were left out because the rules have no such rule, limit or unit, or no `ban_guard`.
    pub ignored: usize,
}

impl Balancer {
    /// What should outlive the program, as of now: store it, and give it to [`import_state`](Self::import_state) after
    /// the start.
    ///
    /// Kept are
    ///
    /// - the starts in windows that are longer than a minute, each with its instant;
    /// - what buckets and spacing are owed that take longer than a minute to be free again, and the counts of calendar
    ///   days;
    /// - holds, however short;
    /// - what servers said of their own windows: until when it counts and how many are left, less what runs; if that is
    ///   for more than a minute, or nothing is left;
    /// - how many times in a row a server said "slow down" without a number, so that the next wait is the longer one;
    /// - invalid attempts that count for `ban_guard`.
    ///
    /// Not kept is what waits and runs, what was [learnt](crate::Observe::learn), what was set in code
    /// ([`set_limit`](Self::set_limit), [`alias`](Self::alias), [`pause`](Self::pause)), and windows of up to a minute:
    /// where one stands alone, wait for one period before the first request, or accept that the server may refuse some.
    /// Beside a longer window of the same scope and unit it finds its starts there.
    ///
    /// Attempts that run count in windows that count from the response as if they ended now. Export after
    /// [`close`](Self::close), or what starts in the meantime is missing.
    ///
    /// Looks at every key, 64 at a time, so that requests go on meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, NextStart, Rules, State};
    ///
    /// let rules: Rules = "per_key = '1/24h'".parse()?;
    /// let balancer = Balancer::new(rules.clone());
    /// drop(balancer.request("default", 42).acquire().await?);
    /// let stored = serde_json::to_string(&balancer.export_state())?;
    ///
    /// // The program ends and starts again.
    /// let balancer = Balancer::new(rules);
    /// let imported = balancer.import_state(&serde_json::from_str::<State>(&stored)?);
    /// assert_eq!((imported.taken, imported.ignored), (1, 0));
    /// assert!(matches!(balancer.next_start("default", 42)?, NextStart::After(_)));
    /// assert_eq!(balancer.next_start("default", 43)?, NextStart::Now);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn export_state(&self) -> State {
        self.export_state_at(SystemTime::now())
    }

    /// As [`export_state`](Self::export_state), where a clock that is better than the machine's shows `wall` now.
    ///
    /// This balancer goes by it from now on, too: calendar days end at its midnight.
    #[must_use]
    pub fn export_state_at(&self, wall: SystemTime) -> State {
        let shared = self.shared();
        let live = shared.live.load_full();
        let (overall, wall) = shared.with(|state, now| {
            state.machine.set_wall_clock(now, unix(wall));
            (state.machine.export(now), Wall::at(now, wall))
        });
        let mut memories = Memories::new(wall, &live, &overall);
        let mut keys = shared.known_keys();
        keys.sort_unstable();
        for keys in keys.chunks(BATCH) {
            let records: Vec<_> = keys.iter().map(|key| shared.record_of(key)).collect();
            let told: Vec<Memory> = shared.with(|state, now| {
                let mut export = |record| state.machine.export_key(now, record);
                records.into_iter().map(|record| record.map_or_else(Memory::default, &mut export)).collect()
            });
            for (key, memory) in keys.iter().zip(&told).filter(|(_, memory)| !memory.is_empty()) {
                memories.push(key, memory);
            }
        }
        State(Versions::V1(memories.done()))
    }

    /// Takes in what an earlier run of the program exported, so that limits and holds go on as if it had never ended.
    ///
    /// Exact as far as the clock on the wall is: a start counts until one period after the wall time at which it was. Put
    /// back by an hour, that clock makes holds and limits last longer by up to an hour; put forward, it makes them end
    /// early. A start that is yet to come counts from now, and no hold is longer than `max_hold` (one hour).
    ///
    /// It is counted beside what this balancer knows itself and never lets anything start earlier, so it may come late and
    /// from several runs; but each state once, as starts that are told twice count twice. What was granted before may still
    /// start. Where a limit's numbers are others now, the starts of the longest window of its scope and unit count.
    pub fn import_state(&self, state: &State) -> Imported {
        self.import_state_at(state, SystemTime::now())
    }

    /// As [`import_state`](Self::import_state), where a clock that is better than the machine's shows `wall` now. This
    /// balancer goes by it from now on, as after [`export_state_at`](Self::export_state_at).
    pub fn import_state_at(&self, state: &State, wall: SystemTime) -> Imported {
        let Versions::V1(kept) = &state.0;
        let shared = self.shared();
        let live = shared.live.load_full();
        let (mut imported, wall) = shared.with(|state, now| {
            state.machine.set_wall_clock(now, unix(wall));
            let wall = Wall::at(now, wall);
            let (memory, unreadable) = kept.overall.memory(wall, &live);
            let ignored = state.machine.import(now, &memory);
            (Imported::of(&memory, ignored, unreadable), wall)
        });
        for (key, kept) in &kept.keys {
            let (memory, unreadable) = kept.memory(wall, &live);
            imported.add(shared.import_key(key, &memory, unreadable));
        }
        imported
    }
}

impl Shared {
    fn import_key(&self, key: &Key, memory: &Memory, unreadable: usize) -> Imported {
        let ignored = self.with_record(key, |state, now, record| {
            state.machine.import_key(now, record, memory).ok_or(Turned::StaleKey)
        });
        // A record that was just made is not stale.
        Imported::of(memory, ignored.unwrap_or(memory.len()), unreadable)
    }
}

impl Imported {
    const fn of(memory: &Memory, ignored: usize, unreadable: usize) -> Self {
        Self { taken: memory.len() - ignored, ignored: ignored + unreadable }
    }

    const fn add(&mut self, other: Self) {
        self.taken += other.taken;
        self.ignored += other.ignored;
    }
}
