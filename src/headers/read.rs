//! From a response to an observation.

use std::time::SystemTime;

use super::collect::Collected;
use super::dialect::Dialect;
use super::observation::{NoteKind, Observation};
use super::{moment, states};

/// Statuses on which a wait that is told counts, 5xx aside.
const WAITS: [u16; 5] = [403, 418, 420, 429, 529];

/// Reads what a response says about the server's own counters.
///
/// It never fails and never panics, whatever the bytes: what is not understood is as if it were not there, and
/// [`notes`](Observation::notes) says so. Names are read in any case and order, and several times.
///
/// `headers` are pairs of borrowed names and values, such as a map of the `http` crate (`response.headers()`), a map of
/// strings, or an array. The `body` is read only with the feature `json`, and only of refusals, of 403 and of 5xx, or
/// where the dialect is for [any status](Dialect::any_status); of a body only the values that the dialect looks for are
/// kept, and one of more than a mebibyte is not read. `now` is the time on the wall at which the response arrived: moments
/// are counted from the response's own `Date`, and from `now` where it has none.
///
/// Without a body and with fields that it understands it allocates nothing.
///
/// ```
/// use request_balancer::headers::{self, Dialect};
/// use std::time::{Duration, SystemTime};
///
/// let fields = [("X-RateLimit-Limit", "60"), ("X-RateLimit-Remaining", "4"), ("X-RateLimit-Reset", "30")];
/// let observation = headers::read(200, fields, None, SystemTime::now(), Dialect::auto());
/// let window = observation.binding().unwrap();
/// assert_eq!((window.limit, window.remaining), (Some(60), Some(4)));
/// assert_eq!(window.reset_after(), Some(Duration::from_secs(30)));
/// assert!(!observation.throttled());
///
/// let refused = headers::read(429, [("Retry-After", "120")], None, SystemTime::now(), Dialect::auto());
/// assert!(refused.throttled());
/// assert_eq!(refused.wait(), Some(Duration::from_secs(120)));
/// ```
pub fn read<'h, N, V>(
    status: u16,
    headers: impl IntoIterator<Item = (&'h N, &'h V)>,
    body: Option<&[u8]>,
    now: SystemTime,
    dialect: &Dialect,
) -> Observation
where
    N: AsRef<[u8]> + ?Sized + 'h,
    V: AsRef<[u8]> + ?Sized + 'h,
{
    let mut observation = Observation::default();
    let mut collected = Collected::new(dialect);
    for (name, value) in headers {
        collected.take(name.as_ref(), value.as_ref(), &mut observation);
    }
    finish(status, &mut collected, body, now, dialect, &mut observation);
    observation
}

/// The same from a response of the `http` crate, whose body is not touched.
///
/// ```
/// use request_balancer::headers::{self, Dialect};
/// use std::time::{Duration, SystemTime};
///
/// let response = http::Response::builder().status(429).header("Retry-After", "7").body("")?;
/// let observation = headers::read_response(&response, None, SystemTime::now(), Dialect::auto());
/// assert_eq!(observation.wait(), Some(Duration::from_secs(7)));
/// # Ok::<(), http::Error>(())
/// ```
#[cfg(feature = "http")]
pub fn read_response<B>(
    response: &http::Response<B>,
    body: Option<&[u8]>,
    now: SystemTime,
    dialect: &Dialect,
) -> Observation {
    read(response.status().as_u16(), response.headers(), body, now, dialect)
}

impl Dialect {
    /// Whether [`read`] looks into the body of a response with this status, if it is given one.
    ///
    /// ```
    /// use request_balancer::headers::Dialect;
    ///
    /// let reads = |dialect, status| Dialect::named(dialect).is_some_and(|dialect| dialect.reads_body(status));
    /// assert_eq!((reads("telegram", 429), reads("telegram", 200)), (cfg!(feature = "json"), false));
    /// // This API refuses in a 200.
    /// assert_eq!(reads("vk", 200), cfg!(feature = "json"));
    /// ```
    #[must_use]
    pub fn reads_body(&self, status: u16) -> bool {
        let looks = self.layers().any(|layer| !layer.body.is_empty());
        cfg!(feature = "json") && looks && (self.waits_count(status) || self.layers().any(|layer| layer.any_status))
    }

    /// Whether the status alone is a refusal.
    fn refuses(&self, status: u16) -> bool {
        let statuses = self.layers().map(|layer| &*layer.refused).find(|statuses| !statuses.is_empty());
        statuses.unwrap_or_default().contains(&status)
    }

    /// Whether a wait that comes with the status counts.
    fn waits_count(&self, status: u16) -> bool {
        self.refuses(status) || WAITS.contains(&status) || (500..600).contains(&status)
    }
}

fn finish<'d>(
    status: u16,
    collected: &mut Collected<'d, '_>,
    body: Option<&[u8]>,
    now: SystemTime,
    dialect: &'d Dialect,
    observation: &mut Observation,
) {
    let by_status = dialect.refuses(status);
    let waits_count = dialect.waits_count(status);
    #[cfg(feature = "json")]
    let always = super::walk::take(collected, body, waits_count, observation);
    #[cfg(not(feature = "json"))]
    let always = {
        let _ = body;
        false
    };
    let base = collected.date.unwrap_or_else(|| moment::since_1970(now));
    let verdict = collected.verdict;
    if collected.cached {
        if !(collected.slots.is_empty() && collected.states.is_empty()) {
            observation.note("age", NoteKind::Cached);
        }
    } else {
        collected.name_windows();
        for slot in &mut collected.slots {
            slot.finish(base, &collected.policies, observation);
        }
        states::read(&collected.states, &collected.policies, observation);
    }
    let refused = (by_status || verdict.refused) && !verdict.not_refused;
    let wait = collected.waits.resolve(base).filter(|_| (waits_count || refused || always) && !verdict.not_refused);
    let exhausted = observation.windows.iter().any(super::Window::is_exhausted);
    // Forbidden for other reasons, unless something says that it is about too many.
    observation.throttled = refused || (status == 403 && !verdict.not_refused && (wait.is_some() || exhausted));
    observation.wait = wait;
    let held = observation.throttled || wait.is_some();
    observation.is_final = verdict.is_final && observation.throttled;
    observation.full_refill = dialect.layers().any(|layer| layer.full_refill);
    let own = || dialect.layers().find_map(|layer| layer.scope);
    let told = if held { verdict.scope.or_else(own) } else { None };
    observation.scope = told.or_else(|| observation.binding()?.scope);
}
