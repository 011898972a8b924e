//! Calls of a store, which may take long and may panic: neither ends the task that calls.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use super::store::{Pending, StoreError};
use crate::runtime::caught;

/// Calls a store and waits for its answer, for so long.
pub(super) async fn call<'a, T>(patience: Duration, make: impl FnOnce() -> Pending<'a, T>) -> Result<T, StoreError> {
    let mut pending = caught(make).map_err(StoreError::Panicked)?;
    let answer = poll_fn(|context| {
        let poll = caught(|| pending.as_mut().poll(context));
        poll.unwrap_or_else(|message| Poll::Ready(Err(StoreError::Panicked(message))))
    });
    timeout(patience, answer).await.unwrap_or(Err(StoreError::Late(patience)))
}
