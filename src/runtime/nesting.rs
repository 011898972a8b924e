//! Which attempts are being polled on this thread: a request that enters meanwhile is one that they wait for.

use std::cell::RefCell;

use super::sync::thread_local;
use crate::engine::RequestId;

thread_local! {
    /// Attempts and the balancers they belong to, outermost first.
    static POLLED: RefCell<Vec<(usize, RequestId)>> = const { RefCell::new(Vec::new()) };
}

/// The owner's attempts that are being polled on this thread, outermost first.
pub(super) fn ancestors(owner: usize) -> Vec<RequestId> {
    let of_owner = |polled: &RefCell<Vec<(usize, RequestId)>>| {
        polled.borrow().iter().filter(|(of, _)| *of == owner).map(|(_, id)| *id).collect()
    };
    POLLED.try_with(of_owner).unwrap_or_default()
}

/// Remembers an attempt while `poll` polls it, even if that panics.
pub(super) fn polling<R>(owner: usize, id: RequestId, poll: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            let _ = POLLED.try_with(|polled| polled.borrow_mut().pop());
        }
    }
    let entered = POLLED.try_with(|polled| polled.borrow_mut().push((owner, id)));
    let _leave = entered.is_ok().then_some(Leave);
    poll()
}
