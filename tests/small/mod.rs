//! Small worlds, and every list of operations that is possible in them.

pub(crate) mod explore;
pub(crate) mod worlds;
