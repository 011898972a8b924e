//! Locks and flags of the handshake between threads: the standard library's, or, to try every order of steps, shuttle's.

#[cfg(not(shuttle))]
pub(super) use std::{
    sync::atomic::AtomicBool,
    sync::{Mutex, MutexGuard},
    thread_local,
};

#[cfg(shuttle)]
pub(super) use shuttle::{
    sync::atomic::AtomicBool,
    sync::{Mutex, MutexGuard},
    thread_local,
};
