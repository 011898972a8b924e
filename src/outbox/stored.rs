//! Messages as they are shown to people and taken out.

use std::sync::Arc;
use std::time::SystemTime;

use serde::de::DeserializeOwned;

use super::clock::wall;
use super::record::{Buried, MessageId, Progress, Record, Unix};
use crate::key::Key;

/// A message that is stored and neither sent nor dead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredMessage {
    /// Its id.
    pub id: MessageId,
    /// The name under which it was [put](super::Put::dedupe); empty if under none.
    pub name: String,
    /// Its rule.
    pub rule: Arc<str>,
    /// Its key.
    pub key: Key,
    /// When it was put, by the clock on the wall.
    pub put_at: SystemTime,
    /// When it enters the line; `None`: it is there.
    pub due: Option<SystemTime>,
    /// How many attempts were started.
    pub attempts: u32,
    /// Whether one of them may have had its effect.
    pub maybe_delivered: bool,
    /// What was put, as JSON.
    pub json: String,
}

/// A message that is tried no more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadMessage {
    /// Its id.
    pub id: MessageId,
    /// The name under which it was [put](super::Put::dedupe); empty if under none.
    pub name: String,
    /// Its rule.
    pub rule: Arc<str>,
    /// Its key.
    pub key: Key,
    /// When it was put, by the clock on the wall.
    pub put_at: SystemTime,
    /// When it came to be among the dead.
    pub died_at: SystemTime,
    /// How many attempts were started.
    pub attempts: u32,
    /// Whether one of them may have had its effect.
    pub maybe_delivered: bool,
    /// Why it is tried no more.
    pub reason: String,
    /// What was put, as JSON.
    pub json: String,
}

impl StoredMessage {
    pub(super) fn new(record: &Record, progress: &Progress, due: Option<Unix>) -> Self {
        Self {
            id: record.id,
            name: record.name.clone(),
            rule: Arc::clone(&record.rule),
            key: record.key.clone(),
            put_at: wall(record.put_at),
            due: due.map(wall),
            attempts: progress.starts,
            maybe_delivered: progress.maybe_delivered || progress.in_flight,
            json: String::from_utf8_lossy(&record.body).into_owned(),
        }
    }

    /// What was put.
    ///
    /// # Errors
    ///
    /// If it is no such message.
    pub fn body<M: DeserializeOwned>(&self) -> serde_json::Result<M> {
        serde_json::from_str(&self.json)
    }
}

impl DeadMessage {
    pub(super) fn new(buried: &Buried) -> Self {
        let Buried { died_at, starts, maybe_delivered, reason, record } = buried;
        Self {
            id: record.id,
            name: record.name.clone(),
            rule: Arc::clone(&record.rule),
            key: record.key.clone(),
            put_at: wall(record.put_at),
            died_at: wall(*died_at),
            attempts: *starts,
            maybe_delivered: *maybe_delivered,
            reason: reason.clone(),
            json: String::from_utf8_lossy(&record.body).into_owned(),
        }
    }

    /// What was put.
    ///
    /// # Errors
    ///
    /// If it is no such message.
    pub fn body<M: DeserializeOwned>(&self) -> serde_json::Result<M> {
        serde_json::from_str(&self.json)
    }
}
