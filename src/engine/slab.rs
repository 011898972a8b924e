//! A slab in chunks: indices stay put, memory comes back, and an id that outlived its entry is recognised.

use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// Entries per chunk. Large enough that the list of chunks is short, small enough that one long-lived entry does not
/// keep much beside it.
const CHUNK: usize = u128::BITS as usize;
const _: () = assert!(CHUNK <= u8::MAX as usize, "a chunk counts its entries in a byte");

/// The link that leads nowhere.
pub(crate) const NIL: u32 = u32::MAX;

/// Tells an entry from all that stood in its place before. Never zero, so that an id that there may not be is a word, too.
pub(crate) type Generation = NonZeroU32;

/// A slab of `T`. Entries are reached by index (inside the machine, where links are kept true) or by index and
/// generation (from outside, where an id may be stale).
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// Chunks with a free slot, the one to use next on top. May name chunks that are gone or full: checked on use.
    with_room: Vec<u32>,
    /// Positions in `chunks` whose memory was given back.
    released: Vec<u32>,
    generation: Generation,
    len: usize,
}

#[derive(Debug)]
struct Chunk<T> {
    slots: Vec<Option<T>>,
    /// Which of the slots are free, a bit for each. A free slot knows nothing itself: so it is made by writing one byte.
    free: u128,
    live: u8,
    listed: bool,
}

/// What a slab holds: knows its own generation, so that it may stand in what would be padding.
pub(crate) trait Entry {
    fn generation(&self) -> Generation;
    fn set_generation(&mut self, generation: Generation);
}

impl<T: Entry> Slab<T> {
    /// Bytes of a place.
    #[cfg(test)]
    pub(crate) const SLOT: usize = size_of::<Option<T>>();

    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), with_room: Vec::new(), released: Vec::new(), generation: Generation::MIN, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Stores `value` and says where and under which generation.
    #[inline]
    pub(crate) fn insert(&mut self, mut value: T) -> (u32, Generation) {
        self.insert_with(|generation| {
            value.set_generation(generation);
            value
        })
    }

    /// Stores what `make` makes of its generation: made where it stays, as to copy what was just written piece by piece is
    /// to wait for the pieces.
    #[inline(always)]
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Generation) -> T) -> (u32, Generation) {
        let position = self.chunk_with_room();
        // One counter for all slots: a chunk may be given back and made anew without its slots' history. An id would
        // have to outlive four thousand million others to be mistaken.
        self.generation = self.generation.checked_add(1).unwrap_or(Generation::MIN);
        let generation = self.generation;
        let chunk = &mut self.chunks[position];
        let slot = match chunk.free {
            0 => {
                chunk.slots.push(Some(make(generation)));
                chunk.slots.len() - 1
            }
            free => {
                let slot = free.trailing_zeros() as usize;
                match &mut chunk.slots[slot] {
                    empty @ None => *empty = Some(make(generation)),
                    Some(_) => unreachable!("a free slot holds an entry"),
                }
                chunk.free = free & (free - 1);
                slot
            }
        };
        chunk.live += 1;
        self.len += 1;
        ((position * CHUNK + slot) as u32, generation)
    }

    /// Takes the entry out. The index must be a live one.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let (position, slot) = split(index);
        let Some(value) = self.chunks[position].slots[slot].take() else { unreachable!("removed an entry twice") };
        self.note_free(position, slot);
        value
    }

    /// Drops the entry where it is: to take it out is to copy it. The index must be a live one.
    #[inline]
    pub(crate) fn discard(&mut self, index: u32) {
        let (position, slot) = split(index);
        let entry = &mut self.chunks[position].slots[slot];
        assert!(entry.is_some(), "discarded an entry twice");
        *entry = None;
        self.note_free(position, slot);
    }

    /// The entry, if the id is not stale.
    #[inline]
    pub(crate) fn get(&self, index: u32, generation: Generation) -> Option<&T> {
        let (position, slot) = split(index);
        self.chunks.get(position)?.slots.get(slot)?.as_ref().filter(|value| value.generation() == generation)
    }

    /// Whatever entry is there now.
    pub(crate) fn find(&self, index: u32) -> Option<&T> {
        let (position, slot) = split(index);
        self.chunks.get(position)?.slots.get(slot)?.as_ref()
    }

    /// Whatever entry is there now, to change it.
    pub(crate) fn find_mut(&mut self, index: u32) -> Option<&mut T> {
        let (position, slot) = split(index);
        self.chunks.get_mut(position)?.slots.get_mut(slot)?.as_mut()
    }

    /// The entry to change, if the id is not stale.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32, generation: Generation) -> Option<&mut T> {
        let (position, slot) = split(index);
        self.chunks.get_mut(position)?.slots.get_mut(slot)?.as_mut().filter(|value| value.generation() == generation)
    }

    /// Whether the id is not stale.
    pub(crate) fn contains(&self, index: u32, generation: Generation) -> bool {
        self.get(index, generation).is_some()
    }

    /// The generation of a live entry.
    pub(crate) fn generation(&self, index: u32) -> Generation {
        let (position, slot) = split(index);
        match &self.chunks[position].slots[slot] {
            Some(value) => value.generation(),
            None => unreachable!("asked a free slot for its generation"),
        }
    }

    /// Indices of all entries, in order.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.chunks.iter().enumerate().flat_map(|(position, chunk)| {
            let entries = chunk.slots.iter().enumerate().filter(|(_, entry)| entry.is_some());
            entries.map(move |(slot, _)| (position * CHUNK + slot) as u32)
        })
    }

    #[inline]
    fn note_free(&mut self, position: usize, slot: usize) {
        let chunk = &mut self.chunks[position];
        chunk.free |= 1 << slot;
        chunk.live -= 1;
        self.len -= 1;
        let is_empty = chunk.live == 0;
        if !chunk.listed {
            chunk.listed = true;
            self.with_room.push(position as u32);
        }
        // The last chunk with room stays, so that one entry that comes and goes costs no allocation.
        if is_empty && self.with_room.len() > 1 {
            self.release(position);
        }
    }

    #[inline]
    fn chunk_with_room(&mut self) -> usize {
        if let Some(&position) = self.with_room.last()
            && let Some(chunk) = self.chunks.get(position as usize)
            && chunk.has_room()
        {
            return position as usize;
        }
        self.find_chunk_with_room()
    }

    #[cold]
    fn find_chunk_with_room(&mut self) -> usize {
        while let Some(&position) = self.with_room.last() {
            if let Some(chunk) = self.chunks.get_mut(position as usize) {
                if chunk.has_room() {
                    return position as usize;
                }
                chunk.listed = false;
            }
            self.with_room.pop();
        }
        let fresh = Chunk { slots: Vec::with_capacity(CHUNK), free: 0, live: 0, listed: true };
        let position = loop {
            match self.released.pop() {
                Some(position) if (position as usize) < self.chunks.len() => {
                    self.chunks[position as usize] = fresh;
                    break position as usize;
                }
                Some(_) => {}
                None => {
                    self.chunks.push(fresh);
                    break self.chunks.len() - 1;
                }
            }
        };
        self.with_room.push(position as u32);
        position
    }

    #[cold]
    fn release(&mut self, position: usize) {
        self.chunks[position] = Chunk { slots: Vec::new(), free: 0, live: 0, listed: false };
        self.released.push(position as u32);
        while self.chunks.last().is_some_and(|last| last.slots.capacity() == 0) {
            self.chunks.pop();
        }
        if self.chunks.len() * 4 < self.chunks.capacity() {
            self.chunks.shrink_to(self.chunks.len() * 2);
            let chunks = self.chunks.len() as u32;
            self.released.retain(|&position| position < chunks);
            self.released.shrink_to_fit();
        }
    }
}

impl<T> Chunk<T> {
    fn has_room(&self) -> bool {
        self.slots.capacity() > 0 && (self.free != 0 || self.slots.len() < CHUNK)
    }
}

impl<T: Entry> Index<u32> for Slab<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, index: u32) -> &T {
        let (position, slot) = split(index);
        match &self.chunks[position].slots[slot] {
            Some(value) => value,
            None => unreachable!("a link leads to a free slot"),
        }
    }
}

impl<T: Entry> IndexMut<u32> for Slab<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut T {
        let (position, slot) = split(index);
        match &mut self.chunks[position].slots[slot] {
            Some(value) => value,
            None => unreachable!("a link leads to a free slot"),
        }
    }
}

const fn split(index: u32) -> (usize, usize) {
    (index as usize / CHUNK, index as usize % CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that knows its generation.
    #[derive(Debug, PartialEq)]
    struct Number(Generation, u64);

    impl Entry for Number {
        fn generation(&self) -> Generation {
            self.0
        }

        fn set_generation(&mut self, generation: Generation) {
            self.0 = generation;
        }
    }

    fn number(number: u64) -> Number {
        Number(Generation::MIN, number)
    }

    #[test]
    fn an_id_is_stale_once_its_entry_is_gone() {
        let mut slab = Slab::new();
        let (index, generation) = slab.insert(number(1));
        assert_eq!(slab.get(index, generation), Some(&Number(generation, 1)));
        assert_eq!(slab.remove(index).1, 1);
        assert!(!slab.contains(index, generation));
        let (again, newer) = slab.insert(number(2));
        assert_eq!((again, slab.generation(again)), (index, newer));
        assert!(!slab.contains(index, generation));
    }

    #[test]
    fn memory_comes_back_when_most_is_gone() {
        let mut slab = Slab::new();
        let ids: Vec<_> = (0..10_000).map(|value| slab.insert(number(value)).0).collect();
        assert_eq!(slab.len(), 10_000);
        assert_eq!(slab.indices().count(), 10_000);
        for &id in &ids[1..] {
            slab.remove(id);
        }
        let kept: usize = slab.chunks.iter().map(|chunk| chunk.slots.capacity()).sum();
        assert!(kept <= 2 * CHUNK, "{kept} slots are kept for one entry");
        assert_eq!(slab[ids[0]].1, 0);
        assert_eq!(slab.indices().collect::<Vec<_>>(), [ids[0]]);
    }

    #[test]
    fn random_inserts_and_removals_keep_every_value() {
        let mut slab = Slab::new();
        let mut held: Vec<(u32, Generation, u64)> = Vec::new();
        let mut state = 7_u64;
        for step in 0..50_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The population swells and shrinks, so that chunks are released and made anew.
            let swelling = (step / 5_000) % 2 == 0;
            if held.is_empty() || (state >> 33) % 10 < if swelling { 7 } else { 3 } {
                let (index, generation) = slab.insert(number(step));
                held.push((index, generation, step));
            } else {
                let (index, generation, value) = held.swap_remove((state >> 40) as usize % held.len());
                assert_eq!(slab.get(index, generation), Some(&Number(generation, value)));
                if value % 2 == 0 {
                    slab.discard(index);
                } else {
                    assert_eq!(slab.remove(index).1, value);
                }
                assert!(!slab.contains(index, generation));
            }
            assert_eq!(slab.len(), held.len());
        }
        for (index, generation, value) in held {
            assert_eq!(slab.get(index, generation), Some(&Number(generation, value)));
        }
    }
}
