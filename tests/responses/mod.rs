//! Responses from the files in `tests/fixtures`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use request_balancer::headers::{self, Dialect, Observation};
use serde::Deserialize;

/// A response as the files have it.
#[derive(Debug, Deserialize)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Option<String>,
}

impl Response {
    pub(crate) fn read(&self, now_unix: f64, dialect: &str) -> Observation {
        let dialect = Dialect::named(dialect).unwrap_or_else(|| panic!("no dialect {dialect}"));
        headers::read(self.status, &self.headers, self.body.as_deref().map(str::as_bytes), at(now_unix), dialect)
    }
}

/// A moment in milliseconds, which is as fine as the files are.
pub(crate) fn at(unix: f64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis((unix * 1e3).round() as u64)
}

pub(crate) fn lines(text: &str) -> impl Iterator<Item = serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"))
}
