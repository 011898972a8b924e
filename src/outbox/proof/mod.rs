//! The store against crashes and errors of a made-up disk, and against the store in memory.

mod crashes;
mod disk;
mod errors;
mod workload;
