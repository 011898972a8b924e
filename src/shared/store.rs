//! What a store is asked and what it answers.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::engine::{LimitKind, Line, Said, Scope, Stand, Take, Told};
use crate::key::Key;

/// An answer on its way.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// What a store tells of its own accord. It ends when the store can't be heard any more, and with `local-share` a process that
/// hears nothing keeps to its part of limits: a store that has nothing to tell keeps the sender.
pub type Ears = mpsc::Receiver<Heard>;

/// A place where processes keep limits together.
///
/// A balancer asks one thing at a time and gives up after 100 ms; what it gave up may have been done. The same call is
/// never made twice.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Asks for a batch and takes it: of each request all or nothing, in order.
    fn ask(&self, ask: Ask) -> Pending<'_, Reply>;

    /// Tells all other processes, and those that come later for as long as it is of use: a hold or a rest until it is over,
    /// the end of one for as long as it would have lasted. Of one [subject](News::subject) only the last news is kept, but for
    /// a hold that is on for longer.
    ///
    /// Returns when that was, in the store's time: of one subject, each news is later than those before it.
    fn tell(&self, process: u64, news: News) -> Pending<'_, u64>;

    /// Keeps the rules of a process for all, at least for so long, unless there are some of a higher version or others of the
    /// same, and tells all others [so](News::Ruled). Returns those that are kept now. Default: those of the process, which
    /// nobody hears of.
    fn keep_rules(&self, process: u64, rules: VersionedRules, lasts: Duration) -> Pending<'_, VersionedRules> {
        let _ = (process, lasts);
        Box::pin(std::future::ready(Ok(rules)))
    }

    /// What other processes than this one tell from now on, each with when it was told, and before that what is still of use.
    /// What spans last is what is left of them.
    fn hear(&self, process: u64) -> Pending<'_, Ears>;
}

/// A batch of requests that wait for limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Who asks: a number that no other process has.
    pub process: u64,
    /// Which of its questions it is. One that comes after a later one changes no slots, as long as that
    /// one left any.
    pub number: u64,
    /// How long after the store has answered a start may be; it counts from there.
    pub lag: Duration,
    /// How long slots are kept for a process that is not heard of.
    pub lease: Duration,
    /// The limits that it is about.
    pub limits: Vec<AskedLimit>,
    /// What each request takes. Once a limit had no room for one, it has none for those after it that leave as much of it to
    /// others, or more.
    pub requests: Vec<Vec<Take>>,
}

/// A limit in an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedLimit {
    /// Its name, the same in all processes.
    pub name: Arc<str>,
    /// Its numbers. Lengths are rounded up to whole microseconds.
    pub kind: LimitKind,
    /// Of a concurrency cap: how many slots this process has in use.
    pub held: u32,
    /// What is to be counted besides, before anything is given.
    pub told: Told,
    /// What servers said of it: what one leaves, nobody is given more of until its window begins anew. Of one window the word
    /// counts that answers the latest start, of two that answer the same the one that leaves less; so many are left as it says
    /// less what was given after that start.
    pub said: Vec<Said>,
    /// What the store said of it the last time.
    pub known: Known,
}

impl AskedLimit {
    /// A limit of which nothing is in use, nothing was said, and nothing is known.
    ///
    /// ```
    /// use request_balancer::engine::{LimitKind, Nanos, Told};
    /// use request_balancer::shared::{AskedLimit, Known};
    ///
    /// let limit = AskedLimit::new("mine", LimitKind::Spaced { interval: Nanos::from_secs(1), largest: 1 });
    /// assert_eq!((limit.held, limit.told, limit.known), (0, Told::Nothing, Known::default()));
    /// ```
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, kind: LimitKind) -> Self {
        let (told, said, known) = (Told::Nothing, Vec::new(), Known::default());
        Self { name: name.into(), kind, held: 0, told, said, known }
    }

    /// What a balancer asks about a limit of which it knows so much.
    pub(super) fn of(line: &Line, name: &Arc<str>, known: Option<Known>) -> Self {
        Self {
            name: Arc::clone(name),
            kind: line.kind,
            held: line.held,
            told: line.told.clone(),
            said: line.said.clone(),
            known: known.unwrap_or_default(),
        }
    }
}

/// What a store said of a limit, to notice when it forgot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// When its count began, in the store's time; zero: not known.
    pub epoch: u64,
    /// The last start, as it is counted; of a window in cells, its cell; of spacing and buckets, when all are paid for.
    pub newest: u64,
}

/// A store's answer to an [`Ask`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The store's time, in microseconds.
    pub now: u64,
    /// Which of the requests have what they asked for.
    pub taken: Vec<bool>,
    /// What is to be said of each limit.
    pub limits: Vec<LimitReply>,
}

/// What a store says of a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitReply {
    /// It had no room for a request, and has none for so long.
    pub wait: Option<Duration>,
    /// Until then it has none for those that leave at least so much of it to others: whoever leaves less may ask. Zero: it has
    /// none for anybody.
    pub closed_to: u32,
    /// What to say the next time.
    pub known: Known,
    /// The store forgot what this process was given before. It gives nothing for a moment, so that all can tell it.
    pub lost: bool,
    /// How its count stands after the batch, if it is a window or a bucket: servers narrow no other limits.
    pub stand: Option<Stand>,
}

/// News as they are heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// When they were told, in the store's time; zero for what has no [subject](News::subject).
    pub at: u64,
    /// What they are.
    pub news: News,
}

/// What one process tells the others.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum News {
    /// Nothing of the scope starts for so long.
    Hold {
        /// What is held.
        held: HeldPart,
        /// How long from now.
        lasts: Duration,
    },
    /// A hold was ended.
    Released {
        /// What was held.
        held: HeldPart,
    },
    /// An endpoint gets a rest.
    BreakerOpened {
        /// Its name.
        endpoint: Arc<str>,
        /// How long from now, at least a microsecond.
        lasts: Duration,
        /// How long the next rest is, if a probe fails.
        rest: Duration,
        /// Whether one attempt alone probes it then, whatever the rules say.
        alone: bool,
    },
    /// An endpoint works again.
    BreakerClosed {
        /// Its name.
        endpoint: Arc<str>,
    },
    /// The rules of a higher version are kept.
    Ruled {
        /// The version.
        version: u64,
    },
    /// A limit was forgotten: whoever knows of starts or slots is to tell of them.
    Forgot {
        /// Its name.
        name: Arc<str>,
        /// When its count began anew.
        epoch: u64,
    },
    /// A concurrency cap that had nothing left has a slot again, or a server leaves more than it did.
    Freed {
        /// Its name.
        name: Arc<str>,
    },
}

/// Rules with the version that they say of themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionedRules {
    /// The version.
    pub version: u64,
    /// The rules as a file.
    pub text: Arc<str>,
}

/// What a hold is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldPart {
    /// Its kind.
    pub scope: Scope,
    /// The rule, for a hold of a rule or a queue.
    pub rule: Option<Arc<str>>,
    /// The key, for a hold of a key or a queue.
    pub key: Option<Key>,
    /// The endpoint, for a hold of one.
    pub endpoint: Option<Arc<str>>,
}

/// Why a store did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There was no answer in time.
    #[error("the store did not answer within {0:?}")]
    Late(Duration),
    /// It cannot be reached.
    #[error("the store cannot be reached: {0}")]
    Away(String),
    /// It answers something else than it is asked.
    #[error("the store answers what it was not asked: {0}")]
    Garbled(String),
    /// It panicked.
    #[error("the store panicked: {0}")]
    Panicked(String),
    /// Where it is makes no sense.
    #[error("found the address `{found}`: {why}; allowed is one such as `redis://127.0.0.1:6379`")]
    Address {
        /// What was found.
        found: String,
        /// What is wrong with it.
        why: String,
    },
}
