//! A slab in chunks: indices stay put, memory comes back, and an id that outlived its entry is recognised.

use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// Entries per chunk. Large enough that the list of chunks is short, small enough that one long-lived entry does not
/// keep much beside it.
const CHUNK: usize = u128::BITS as usize;

/// The link that leads nowhere.
pub(crate) const NIL: u32 = u32::MAX;

/// Tells an entry from all that stood in its place before. Never zero, so that an id that there may not be is a word, too.
pub(crate) type Generation = NonZeroU32;

/// A slab of `T`. Entries are reached by index (inside the machine, where links are kept true) or by index and
/// generation (from outside, where an id may be stale).
#[derive(Debug)]
pub(crate) struct Slab<T> {
    /// Nothing where a chunk's memory was given back. A word each: to reach an entry is to read one of them first.
    chunks: Vec<Option<Box<Slots<T>>>>,
    /// What there is to know of each chunk.
    notes: Vec<Note>,
    /// Chunks with a free slot, the one to use next on top. May name chunks that are gone or full: checked on use.
    with_room: Vec<u32>,
    /// Positions in `chunks` whose memory was given back.
    released: Vec<u32>,
    generation: Generation,
    len: usize,
}

type Slots<T> = [Option<T>; CHUNK];

#[derive(Debug)]
struct Note {
    /// Which of the slots are free, a bit for each; none of a chunk that is gone.
    free: u128,
    listed: bool,
}

/// What a slab holds: knows its own generation, so that it may stand in what would be padding.
pub(crate) trait Entry {
    fn generation(&self) -> Generation;
}

impl<T: Entry> Slab<T> {
    /// Bytes of a place.
    #[cfg(test)]
    pub(crate) const SLOT: usize = size_of::<Option<T>>();

    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            notes: Vec::new(),
            with_room: Vec::new(),
            released: Vec::new(),
            generation: Generation::MIN,
            len: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Stores what `make` makes of its generation, and says where and under which generation. It is made where it stays: to
    /// copy what was just written piece by piece is to wait for the pieces.
    #[inline(always)]
    pub(crate) fn insert(&mut self, make: impl FnOnce(Generation) -> T) -> (u32, Generation) {
        let position = self.chunk_with_room();
        // One counter for all slots: a chunk may be given back and made anew without its slots' history. An id would
        // have to outlive four thousand million others to be mistaken.
        self.generation = self.generation.checked_add(1).unwrap_or(Generation::MIN);
        let generation = self.generation;
        let free = &mut self.notes[position].free;
        let slot = free.trailing_zeros() as usize % CHUNK;
        match self.chunks[position].as_mut().map(|slots| &mut slots[slot]) {
            Some(empty @ None) => *empty = Some(make(generation)),
            Some(Some(_)) | None => unreachable!("a free slot holds an entry"),
        }
        *free &= *free - 1;
        self.len += 1;
        ((position * CHUNK + slot) as u32, generation)
    }

    /// Takes the entry out. The index must be a live one.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let Some(value) = self.slot_mut(index).and_then(Option::take) else { unreachable!("removed an entry twice") };
        self.note_free(index);
        value
    }

    /// Drops the entry where it is: to take it out is to copy it. The index must be a live one.
    #[inline]
    pub(crate) fn discard(&mut self, index: u32) {
        match self.slot_mut(index) {
            Some(entry @ Some(_)) => *entry = None,
            Some(None) | None => unreachable!("discarded an entry twice"),
        }
        self.note_free(index);
    }

    /// The entry, if the id is not stale.
    #[inline]
    pub(crate) fn get(&self, index: u32, generation: Generation) -> Option<&T> {
        self.find(index).filter(|value| value.generation() == generation)
    }

    /// Whatever entry is there now.
    #[inline(always)]
    pub(crate) fn find(&self, index: u32) -> Option<&T> {
        let (position, slot) = split(index);
        self.chunks.get(position)?.as_ref()?[slot].as_ref()
    }

    /// Whatever entry is there now, to change it.
    #[inline(always)]
    pub(crate) fn find_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot_mut(index)?.as_mut()
    }

    /// The entry to change, if the id is not stale.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32, generation: Generation) -> Option<&mut T> {
        self.find_mut(index).filter(|value| value.generation() == generation)
    }

    /// Whether the id is not stale.
    pub(crate) fn contains(&self, index: u32, generation: Generation) -> bool {
        self.get(index, generation).is_some()
    }

    /// The generation of a live entry.
    pub(crate) fn generation(&self, index: u32) -> Generation {
        self[index].generation()
    }

    /// Indices of all entries, in order.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        let chunks = self.chunks.iter().enumerate().filter_map(|(position, slots)| Some((position, slots.as_deref()?)));
        chunks.flat_map(|(position, slots)| {
            let entries = slots.iter().enumerate().filter(|(_, slot)| slot.is_some());
            entries.map(move |(slot, _)| (position * CHUNK + slot) as u32)
        })
    }

    #[inline(always)]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Option<T>> {
        let (position, slot) = split(index);
        Some(&mut self.chunks.get_mut(position)?.as_mut()?[slot])
    }

    #[inline]
    fn note_free(&mut self, index: u32) {
        let (position, slot) = split(index);
        let note = &mut self.notes[position];
        note.free |= 1 << slot;
        self.len -= 1;
        let is_empty = note.free == u128::MAX;
        if !note.listed {
            note.listed = true;
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
            && let Some(note) = self.notes.get(position as usize)
            && note.free != 0
        {
            return position as usize;
        }
        self.find_chunk_with_room()
    }

    #[cold]
    fn find_chunk_with_room(&mut self) -> usize {
        while let Some(&position) = self.with_room.last() {
            if let Some(note) = self.notes.get_mut(position as usize) {
                if note.free != 0 {
                    return position as usize;
                }
                note.listed = false;
            }
            self.with_room.pop();
        }
        let (slots, note) = (Some(empty()), Note { free: u128::MAX, listed: true });
        let position = loop {
            match self.released.pop() {
                Some(position) if (position as usize) < self.chunks.len() => {
                    self.chunks[position as usize] = slots;
                    self.notes[position as usize] = note;
                    break position as usize;
                }
                Some(_) => {}
                None => {
                    // By an eighth: to double them would take more than there is to save on them.
                    if self.chunks.len() == self.chunks.capacity() {
                        let more = (self.chunks.len() / 8).max(4);
                        self.chunks.reserve_exact(more);
                        self.notes.reserve_exact(more);
                    }
                    self.chunks.push(slots);
                    self.notes.push(note);
                    break self.chunks.len() - 1;
                }
            }
        };
        self.with_room.push(position as u32);
        position
    }

    #[cold]
    fn release(&mut self, position: usize) {
        self.chunks[position] = None;
        self.notes[position] = Note { free: 0, listed: false };
        self.released.push(position as u32);
        while self.chunks.last().is_some_and(Option::is_none) {
            self.chunks.pop();
            self.notes.pop();
        }
        if self.chunks.len() * 4 < self.chunks.capacity() {
            self.chunks.shrink_to(self.chunks.len() * 2);
            self.notes.shrink_to(self.notes.len() * 2);
            let chunks = self.chunks.len() as u32;
            self.released.retain(|&position| position < chunks);
            self.released.shrink_to_fit();
        }
    }
}

/// Slots without entries, made where they stay instead of on the stack.
fn empty<T>() -> Box<Slots<T>> {
    let slots: Box<[Option<T>]> = std::iter::repeat_with(|| None).take(CHUNK).collect();
    match slots.try_into() {
        Ok(slots) => slots,
        Err(_) => unreachable!("a chunk has {CHUNK} slots"),
    }
}

impl<T: Entry> Index<u32> for Slab<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, index: u32) -> &T {
        match self.find(index) {
            Some(value) => value,
            None => unreachable!("a link leads to a free slot"),
        }
    }
}

impl<T: Entry> IndexMut<u32> for Slab<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut T {
        match self.find_mut(index) {
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
    }

    fn add(slab: &mut Slab<Number>, number: u64) -> (u32, Generation) {
        slab.insert(|generation| Number(generation, number))
    }

    #[test]
    fn an_id_is_stale_once_its_entry_is_gone() {
        let mut slab = Slab::new();
        let (index, generation) = add(&mut slab, 1);
        assert_eq!(slab.get(index, generation), Some(&Number(generation, 1)));
        assert_eq!(slab.remove(index).1, 1);
        assert!(!slab.contains(index, generation));
        let (again, newer) = add(&mut slab, 2);
        assert_eq!((again, slab.generation(again)), (index, newer));
        assert!(!slab.contains(index, generation));
    }

    #[test]
    fn memory_comes_back_when_most_is_gone() {
        let mut slab = Slab::new();
        let ids: Vec<_> = (0..10_000).map(|value| add(&mut slab, value).0).collect();
        assert_eq!(slab.len(), 10_000);
        assert_eq!(slab.indices().count(), 10_000);
        for &id in &ids[1..] {
            slab.remove(id);
        }
        let kept = slab.chunks.iter().flatten().count();
        assert!(kept <= 2, "{kept} chunks are kept for one entry");
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
                let (index, generation) = add(&mut slab, step);
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
