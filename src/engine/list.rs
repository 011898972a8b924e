//! Lists of requests, by links in their records. A request is in one of them at most.

use super::request::Request;
use super::slab::{NIL, Slab};
use super::time::Instant;

/// Neighbours in a doubly linked list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) prev: u32,
    pub(super) next: u32,
}

impl Links {
    pub(super) const NONE: Self = Self { prev: NIL, next: NIL };

    /// An instant where nobody stands in a list: it takes as much room.
    pub(super) const fn instead(at: Instant) -> Self {
        Self { prev: (at.as_nanos() >> 32) as u32, next: at.as_nanos() as u32 }
    }

    /// The instant that stands there instead.
    pub(super) const fn instant(self) -> Instant {
        Instant::from_nanos((self.prev as u64) << 32 | self.next as u64)
    }
}

/// A list of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NIL, tail: NIL };

    pub(super) const fn is_empty(self) -> bool {
        self.head == NIL
    }

    pub(super) fn push_back<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32) {
        self.insert_before(requests, id, NIL);
    }

    /// Inserts `id` before `next`, or last if that is [`NIL`].
    pub(super) fn insert_before<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32, next: u32) {
        let prev = if next == NIL { self.tail } else { requests[next].links.prev };
        requests[id].links = Links { prev, next };
        if prev == NIL {
            self.head = id
        } else {
            requests[prev].links.next = id
        }
        if next == NIL { self.tail = id } else { requests[next].links.prev = id }
    }

    /// Puts another list before this one.
    pub(super) fn prepend<W>(&mut self, requests: &mut Slab<Request<W>>, other: Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other;
            return;
        }
        requests[other.tail].links.next = self.head;
        requests[self.head].links.prev = other.tail;
        self.head = other.head;
    }

    #[inline]
    pub(super) fn unlink<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32) {
        let Links { prev, next } = std::mem::replace(&mut requests[id].links, Links::NONE);
        if prev == NIL {
            self.head = next
        } else {
            requests[prev].links.next = next
        }
        if next == NIL { self.tail = prev } else { requests[next].links.prev = prev }
    }
}

/// A list of requests of which only the first is known: each links to the next one in a circle. So it is a word, and to
/// add to it takes a look at the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circle {
    pub(super) head: u32,
}

impl Circle {
    pub(super) const EMPTY: Self = Self { head: NIL };

    pub(super) const fn is_empty(self) -> bool {
        self.head == NIL
    }

    #[inline]
    pub(super) fn push_back<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32) {
        if self.is_empty() {
            requests[id].links = Links { prev: id, next: id };
            self.head = id;
        } else {
            let tail = requests[self.head].links.prev;
            requests[id].links = Links { prev: tail, next: self.head };
            requests[self.head].links.prev = id;
            requests[tail].links.next = id;
        }
    }

    /// Puts another circle before this one.
    pub(super) fn prepend<W>(&mut self, requests: &mut Slab<Request<W>>, other: Self) {
        if other.is_empty() {
            return;
        }
        if !self.is_empty() {
            let (tail, last) = (requests[other.head].links.prev, requests[self.head].links.prev);
            requests[tail].links.next = self.head;
            requests[self.head].links.prev = tail;
            requests[last].links.next = other.head;
            requests[other.head].links.prev = last;
        }
        self.head = other.head;
    }

    #[inline]
    pub(super) fn unlink<W>(&mut self, requests: &mut Slab<Request<W>>, id: u32) {
        let Links { prev, next } = std::mem::replace(&mut requests[id].links, Links::NONE);
        if next == id {
            self.head = NIL;
            return;
        }
        requests[prev].links.next = next;
        requests[next].links.prev = prev;
        if self.head == id {
            self.head = next;
        }
    }

    /// Its requests in order.
    pub(super) fn iter<W>(self, requests: &Slab<Request<W>>) -> impl Iterator<Item = u32> {
        let first = (!self.is_empty()).then_some(self.head);
        std::iter::successors(first, move |&id| {
            let next = requests[id].links.next;
            (next != self.head).then_some(next)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::request::Stage;

    fn requests(count: u32) -> Slab<Request<()>> {
        let mut requests = Slab::new();
        for number in 0..count {
            requests.insert(|generation| Request::new(0, number, Instant::ZERO, Stage::Running, generation));
        }
        requests
    }

    #[test]
    fn an_instant_that_stands_instead_of_neighbours_is_read_as_it_was_written() {
        for nanos in [0, 1, u64::from(u32::MAX), 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(Links::instead(Instant::from_nanos(nanos)).instant().as_nanos(), nanos);
        }
    }

    #[test]
    fn a_circle_keeps_its_order_whoever_leaves() {
        let mut requests = requests(6);
        let (mut one, mut other) = (Circle::EMPTY, Circle::EMPTY);
        for id in 0..3 {
            one.push_back(&mut requests, id);
            other.push_back(&mut requests, id + 3);
        }
        other.prepend(&mut requests, one);
        let order = |circle: Circle, requests: &Slab<_>| circle.iter(requests).collect::<Vec<_>>();
        assert_eq!(order(other, &requests), [0, 1, 2, 3, 4, 5]);
        for (leaves, left) in [(0, &[1, 2, 3, 4, 5][..]), (5, &[1, 2, 3, 4]), (2, &[1, 3, 4]), (3, &[1, 4])] {
            other.unlink(&mut requests, leaves);
            assert_eq!(order(other, &requests), left);
        }
        other.prepend(&mut requests, Circle::EMPTY);
        other.unlink(&mut requests, 1);
        other.unlink(&mut requests, 4);
        assert!(other.is_empty() && other.iter(&requests).next().is_none());
        other.prepend(&mut requests, Circle::EMPTY);
        assert!(other.is_empty());
    }
}
