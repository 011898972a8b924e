//! A disk in memory that loses power, fills up, or fails.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

/// What a disk writes at once.
const SECTOR: usize = 512;

/// What is on it, shared by whoever looks at it later.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// What a reader sees.
    now: Vec<u8>,
    /// What outlives a loss of power for sure.
    synced: Vec<u8>,
    /// Sectors that were written since.
    dirty: BTreeSet<usize>,
    /// The lengths that it had since.
    lengths: Vec<usize>,
    syncs: usize,
    calls: usize,
    /// The sync at which the power goes.
    power: Option<usize>,
    /// Calls that fail, and how.
    faults: Option<(usize, usize, io::ErrorKind)>,
    off: bool,
    lies: bool,
}

impl Disk {
    pub(super) fn syncs(&self) -> usize {
        self.lock().syncs
    }

    pub(super) fn calls(&self) -> usize {
        self.lock().calls
    }

    /// The power goes at this sync, counted from now from one.
    pub(super) fn lose_power_at(&self, sync: usize) {
        let mut state = self.lock();
        state.power = Some(state.syncs + sync);
    }

    /// So many calls fail, from this one on, counted from now from one.
    pub(super) fn fail_at(&self, call: usize, calls: usize, kind: io::ErrorKind) {
        let mut state = self.lock();
        let first = state.calls + call;
        state.faults = Some((first, first + calls, kind));
    }

    /// From now on it syncs nothing and says that it did.
    pub(super) fn lie(&self) {
        self.lock().lies = true;
    }

    pub(super) fn is_off(&self) -> bool {
        self.lock().off
    }

    pub(super) fn has_failed(&self) -> bool {
        let state = self.lock();
        state.faults.is_some_and(|(first, _, _)| state.calls >= first)
    }

    /// The disk after a loss of power: it is as long as it was at some time since the last sync, and each sector that was
    /// written since is there or not, as `coin` says.
    pub(super) fn after_loss(&self, mut coin: impl FnMut() -> bool) -> Self {
        let state = self.lock();
        let mut left = state.synced.clone();
        for len in &state.lengths {
            if coin() {
                left.resize(*len, 0);
            }
        }
        for sector in &state.dirty {
            let (from, to) = (sector * SECTOR, ((sector + 1) * SECTOR).min(state.now.len()).min(left.len()));
            if from < to && coin() {
                left[from..to].copy_from_slice(&state.now[from..to]);
            }
        }
        Self::holding(left)
    }

    fn holding(bytes: Vec<u8>) -> Self {
        let state = State { now: bytes.clone(), synced: bytes, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self) -> Result<MutexGuard<'_, State>, io::Error> {
        let mut state = self.lock();
        state.calls += 1;
        if state.off {
            return Err(io::Error::other("no power"));
        }
        match state.faults {
            Some((first, end, kind)) if (first..end).contains(&state.calls) => Err(kind.into()),
            Some(_) | None => Ok(state),
        }
    }
}

impl State {
    fn write(&mut self, offset: usize, data: &[u8]) {
        self.now[offset..offset + data.len()].copy_from_slice(data);
        if !data.is_empty() {
            self.dirty.extend(offset / SECTOR..=(offset + data.len() - 1) / SECTOR);
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.call()?.now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let (state, offset) = (self.call()?, offset as usize);
        let bytes = state.now.get(offset..offset + out.len());
        out.copy_from_slice(bytes.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let mut state = self.call()?;
        let (old, len) = (state.now.len(), len as usize);
        state.now.resize(len, 0);
        state.lengths.push(len);
        // What is cut off and grown again is empty.
        state.dirty.extend(old.min(len) / SECTOR..len.div_ceil(SECTOR));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut state = self.call()?;
        state.syncs += 1;
        if state.power == Some(state.syncs) {
            state.off = true;
            return Err(io::Error::other("no power"));
        }
        if state.lies {
            return Ok(());
        }
        state.synced = state.now.clone();
        state.dirty.clear();
        state.lengths.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut state = self.call()?;
        let end = offset as usize + data.len();
        if end > state.now.len() {
            state.now.resize(end, 0);
            state.lengths.push(end);
        }
        state.write(offset as usize, data);
        Ok(())
    }
}
