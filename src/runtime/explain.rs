//! Why a request does not start, in words.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::live::Live;
use super::shared::Shared;
use crate::engine::{
    self, Charge, EndpointRoom, Explained, Hindrance, HoldCause, Instant, LimitAnswer, LimitKind, Nanos, Origin,
    RequestId, Room, RuleId, Scope, Target,
};
use crate::error::NextStart;
use crate::key::Key;

/// What is in the way of a request, limit by limit, as of one instant; spans count from it.
///
/// Its text form says the same in one line.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use request_balancer::{Balancer, Rules, Target};
///
/// let balancer = Balancer::new("overall = '30/1s'\nper_key = '1/1s'\n[rules]\nchat = {}".parse::<Rules>()?);
/// drop(balancer.request("chat", 42).acquire().await?);
/// balancer.hold(Target::key(42), Duration::from_secs(5))?;
/// assert_eq!(
///     balancer.explain("chat", 42)?.to_string(),
///     "rule `chat`, key 42: a new request; the key is held for 5s (asked); \
///      `per_key` 1/1s has room in 1s; `overall` 30/1s has room"
/// );
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The request's rule.
    pub rule: Arc<str>,
    /// Its key.
    pub key: Key,
    /// Where it stands.
    pub standing: Standing,
    /// Requests of its queue that are before it.
    pub ahead: usize,
    /// Other queues whose turn comes before that of its own: of its lane and of those above.
    pub turns: usize,
    /// What is in its way beside limits.
    pub reasons: Vec<Reason>,
    /// The limits that bind it, the key's own ones first, with what each says for itself. Empty once it was granted.
    pub limits: Vec<LimitReport>,
    /// The endpoints that it may use, with what each says for itself. Empty without a pool, and once it was granted.
    pub endpoints: Vec<EndpointReport>,
}

/// What one endpoint says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointReport {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it can be used.
    pub standing: EndpointStanding,
}

/// Whether an endpoint can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointStanding {
    /// It can, as far as its limits go.
    Limited(NextStart),
    /// It is held for so long.
    Held(Duration),
    /// Its breaker is open for so long.
    Open(Duration),
    /// Its breaker is half-open, and as many try it as may.
    Probed,
    /// It is disabled.
    Disabled,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It was not made yet.
    New,
    /// It waits in its queue.
    Waiting,
    /// It may start, and its future has yet to be polled.
    Granted,
    /// It was allowed to start and its future was not polled in time. It goes on when it is polled.
    Asleep,
    /// It is out of line for so long: for its backoff, or because it was not to start before.
    SteppedOut(Duration),
    /// Its attempt runs.
    Running,
    /// It is over.
    Over,
}

/// What is in a request's way beside limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The balancer is closed.
    Closed,
    /// Its rule is no longer among the rules.
    RuleRemoved,
    /// Its rule is paused.
    Paused,
    /// Too many attempts were invalid: nothing starts for so long.
    BanGuard(Duration),
    /// It is held.
    Held {
        /// What is held.
        scope: Scope,
        /// For how long.
        lasts: Duration,
        /// Who wanted it.
        cause: HoldCause,
    },
    /// It is not to start for so long.
    NotBefore(Duration),
    /// The key's next room is owed to its requests of another rule.
    Owed {
        /// The other rule.
        rule: Arc<str>,
    },
    /// Its lane leaves room for more urgent ones for so long.
    Paced(Duration),
}

/// What one limit says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitReport {
    /// Where the rules say so: `per_key`, `rules.group.overall`, `limits.account.per_key`, `lanes.bulk.concurrency`.
    pub name: String,
    /// What it enforces, margin included: `20/60s`, or the number of a concurrency cap.
    pub quota: String,
    /// When it has room, if nobody else comes first.
    pub room: NextStart,
    /// How many the server leaves, if it said so and its window is not over; what is under way is taken off.
    pub left_at_server: Option<u32>,
}

impl Shared {
    /// Explains a new request.
    pub(crate) fn explain(&self, rule: RuleId, key: Key) -> Explanation {
        let (explained, now) =
            self.ask_about(&key, |state, now, record| (state.machine.explain(now, rule, record), now));
        Explanation::new(&self.live.load(), now, rule, key, explained)
    }

    /// What is in the way of a new request, and as of when; not who is before it, which takes longer to find out.
    #[cfg(feature = "outbox")]
    pub(crate) fn obstacles(&self, rule: RuleId, key: &Key) -> (Explained, Instant) {
        self.ask_about(key, |state, now, record| (state.machine.obstacles(now, rule, record), now))
    }
}

/// A request that somebody may want explained. It keeps nothing alive.
#[derive(Clone)]
pub(crate) struct Explainable {
    pub(super) shared: Weak<Shared>,
    pub(super) id: Option<RequestId>,
    pub(super) rule: RuleId,
    pub(super) rule_name: Arc<str>,
    pub(super) key: Key,
}

impl Explainable {
    /// Whether attempts of its balancer are being polled on this thread.
    pub(super) fn has_ancestors(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| !shared.ancestors().is_empty())
    }

    /// What is in its way, and as of when; not who is before it, which takes longer to find out. `None`: it is over.
    #[cfg(feature = "outbox")]
    pub(crate) fn obstacles(&self) -> Option<(Explained, Instant)> {
        let (shared, id) = self.shared.upgrade().zip(self.id)?;
        shared.with(|state, now| Some((state.machine.obstacles_of(now, id)?, now)))
    }

    pub(crate) fn explain(&self) -> Explanation {
        let explained = self.shared.upgrade().zip(self.id).and_then(|(shared, id)| {
            let (explained, now) = shared.with(|state, now| (state.machine.explain_request(now, id), now));
            Some(Explanation::new(&shared.live.load(), now, self.rule, self.key.clone(), explained?))
        });
        explained.unwrap_or_else(|| Explanation {
            rule: Arc::clone(&self.rule_name),
            key: self.key.clone(),
            standing: Standing::Over,
            ahead: 0,
            turns: 0,
            reasons: Vec::new(),
            limits: Vec::new(),
            endpoints: Vec::new(),
        })
    }
}

impl Explanation {
    /// Whether a new request like this would start at once.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.ahead == 0
            && self.turns == 0
            && self.reasons.is_empty()
            && self.limits.iter().all(|limit| limit.room == NextStart::Now)
            && (self.endpoints.is_empty() || self.endpoints.iter().any(EndpointReport::has_room))
    }

    fn new(live: &Live, now: Instant, rule: RuleId, key: Key, explained: Explained) -> Self {
        let Explained { standing, ahead, turns, hindrances, limits, endpoints } = explained;
        let left = |until: Instant| Duration::from(until.since(now));
        let standing = match standing {
            engine::Standing::New => Standing::New,
            // No ticket stands before the line.
            engine::Standing::Outside | engine::Standing::Waiting => Standing::Waiting,
            engine::Standing::Granted => Standing::Granted,
            engine::Standing::Asleep => Standing::Asleep,
            engine::Standing::Out(until) => Standing::SteppedOut(left(until)),
            engine::Standing::Running => Standing::Running,
            engine::Standing::Refused => Standing::Over,
        };
        let reason = |hindrance| match hindrance {
            Hindrance::Closed => Reason::Closed,
            Hindrance::RuleRemoved => Reason::RuleRemoved,
            Hindrance::Paused => Reason::Paused,
            Hindrance::BanGuard(until) => Reason::BanGuard(left(until)),
            Hindrance::Held(target, held) => {
                Reason::Held { scope: scope(target), lasts: left(held.until), cause: held.cause }
            }
            Hindrance::NotBefore(until) => Reason::NotBefore(left(until)),
            Hindrance::Owed(rule) => Reason::Owed { rule: Arc::clone(&live.rule(rule).name) },
            Hindrance::Paced(until) => Reason::Paced(left(until)),
        };
        let reasons = hindrances.into_iter().map(reason).collect();
        let limits = limits.into_iter().map(|answer| LimitReport::new(live, now, &answer)).collect();
        let endpoints = endpoints.into_iter().map(|answer| EndpointReport::new(now, answer)).collect();
        Self { rule: Arc::clone(&live.rule(rule).name), key, standing, ahead, turns, reasons, limits, endpoints }
    }
}

impl EndpointReport {
    fn new(now: Instant, answer: engine::EndpointAnswer) -> Self {
        let left = |until: Instant| Duration::from(until.since(now));
        let standing = match answer.room {
            EndpointRoom::Now => EndpointStanding::Limited(NextStart::Now),
            EndpointRoom::At(at) => EndpointStanding::Limited(NextStart::since(now, engine::NextStart::At(at))),
            EndpointRoom::WhenOneEnds => EndpointStanding::Limited(NextStart::WhenOneEnds),
            EndpointRoom::Held(until) => EndpointStanding::Held(left(until)),
            EndpointRoom::Open(until) => EndpointStanding::Open(left(until)),
            EndpointRoom::Probed => EndpointStanding::Probed,
            EndpointRoom::Disabled => EndpointStanding::Disabled,
        };
        Self { name: answer.name, standing }
    }

    fn has_room(&self) -> bool {
        self.standing == EndpointStanding::Limited(NextStart::Now)
    }
}

impl fmt::Display for EndpointReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "endpoint `{}` ", self.name)?;
        match self.standing {
            EndpointStanding::Limited(NextStart::Now) => f.write_str("has room"),
            EndpointStanding::Limited(NextStart::After(span)) => write!(f, "has room in {span:?}"),
            EndpointStanding::Limited(NextStart::WhenOneEnds) => f.write_str("has room when a running attempt ends"),
            EndpointStanding::Limited(NextStart::Never) => f.write_str("has room never"),
            EndpointStanding::Held(span) => write!(f, "is held for {span:?}"),
            EndpointStanding::Open(span) => write!(f, "failed and rests for {span:?}"),
            EndpointStanding::Probed => f.write_str("is tried after its rest"),
            EndpointStanding::Disabled => f.write_str("is disabled"),
        }
    }
}

impl LimitReport {
    fn new(live: &Live, now: Instant, answer: &LimitAnswer) -> Self {
        let LimitAnswer { origin, kind, charge, room, left_at_server } = answer;
        let room = NextStart::since(
            now,
            match *room {
                Room::Now => engine::NextStart::Now,
                Room::At(at) | Room::Unclaimed(at) => engine::NextStart::At(at),
                Room::WhenOneEnds => engine::NextStart::WhenOneEnds,
            },
        );
        let left_at_server = *left_at_server;
        Self { name: name(origin, *kind), quota: quota(live, *kind, *charge), room, left_at_server }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, key, standing, ahead, turns, reasons, limits, endpoints } = self;
        write!(f, "rule `{rule}`, key {key}: {standing}")?;
        if *ahead > 0 {
            write!(f, "; {ahead} ahead in its queue")?;
        }
        match turns {
            0 => {}
            1 => f.write_str("; 1 other queue's turn comes first")?,
            _ => write!(f, "; the turns of {turns} other queues come first")?,
        }
        for reason in reasons {
            write!(f, "; {reason}")?;
        }
        for limit in limits {
            write!(f, "; {limit}")?;
        }
        // One that has room says all there is to say.
        match endpoints.iter().find(|endpoint| endpoint.has_room()) {
            Some(endpoint) => write!(f, "; {endpoint}"),
            None => endpoints.iter().try_for_each(|endpoint| write!(f, "; {endpoint}")),
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("a new request"),
            Self::Waiting => f.write_str("waits in its queue"),
            Self::Granted => f.write_str("may start, and has yet to be polled"),
            Self::Asleep => f.write_str("was allowed to start and not polled in time; it goes on when it is polled"),
            Self::SteppedOut(span) => write!(f, "out of line for {span:?}"),
            Self::Running => f.write_str("its attempt runs"),
            Self::Over => f.write_str("is over"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the balancer is closed"),
            Self::RuleRemoved => f.write_str("the rule was removed from the rules"),
            Self::Paused => f.write_str("the rule, or everything, is paused"),
            Self::BanGuard(span) => write!(f, "`ban_guard` lets nothing start for {span:?}"),
            Self::Held { scope, lasts, cause } => {
                let what = match scope {
                    Scope::Overall => "everything is",
                    Scope::Rule => "the rule is",
                    Scope::Key => "the key is",
                    Scope::Queue => "the queue is",
                    Scope::Request => "the request is",
                    Scope::Endpoint => "its endpoint is",
                };
                write!(f, "{what} held for {lasts:?} ({cause})")
            }
            Self::NotBefore(span) => write!(f, "it is not to start for {span:?}"),
            Self::Owed { rule } => write!(f, "the key's next room is owed to its rule `{rule}`"),
            Self::Paced(span) => write!(f, "its lane leaves room for more urgent ones for {span:?}"),
        }
    }
}

impl fmt::Display for LimitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, quota, room, left_at_server } = self;
        write!(f, "`{name}` {quota} has room")?;
        match room {
            NextStart::Now => {}
            NextStart::After(span) => write!(f, " in {span:?}")?,
            NextStart::WhenOneEnds => f.write_str(" when a running attempt ends")?,
            NextStart::Never => f.write_str(" never")?,
        }
        match left_at_server {
            Some(left) => write!(f, ", {left} left at the server"),
            None => Ok(()),
        }
    }
}

const fn scope(target: Target) -> Scope {
    match target {
        Target::Overall => Scope::Overall,
        Target::Rule(_) => Scope::Rule,
        Target::Key(_) => Scope::Key,
        Target::Queue(..) => Scope::Queue,
        Target::Endpoint(_) => Scope::Endpoint,
        Target::Request => Scope::Request,
    }
}

/// Where the rules say a quota.
pub(super) fn name_of_quota(origin: &Origin) -> String {
    words(origin, ("overall", "per_key"))
}

fn name(origin: &Origin, kind: LimitKind) -> String {
    let cap = match kind {
        LimitKind::Window { period, .. } => period.is_zero(),
        LimitKind::Spaced { .. } | LimitKind::Bucket { .. } | LimitKind::Calendar { .. } => false,
    };
    words(origin, if cap { ("concurrency", "key_concurrency") } else { ("overall", "per_key") })
}

fn words(origin: &Origin, (all, each): (&str, &str)) -> String {
    match origin {
        Origin::Overall => all.to_owned(),
        Origin::PerKey => each.to_owned(),
        Origin::RuleOverall(rule) => format!("rules.{rule}.{all}"),
        Origin::RulePerKey(rule) => format!("rules.{rule}.{each}"),
        Origin::NamedOverall(limit) => format!("limits.{limit}.{all}"),
        Origin::NamedPerKey(limit) => format!("limits.{limit}.{each}"),
        Origin::Lane(lane) => format!("lanes.{lane}.{all}"),
        Origin::EndpointOverall(endpoint) => format!("pool.endpoints.{endpoint}.{all}"),
        Origin::EndpointPerKey(endpoint) => format!("pool.endpoints.{endpoint}.{each}"),
    }
}

fn quota(live: &Live, kind: LimitKind, charge: Charge) -> String {
    let quota = match kind {
        LimitKind::Window { count, period: Nanos::ZERO, .. } => count.to_string(),
        LimitKind::Window { count, period, .. } => format!("{count}/{period:?}"),
        LimitKind::Spaced { interval, .. } => format!("one in {interval:?}"),
        LimitKind::Bucket { interval, burst } => format!("burst {burst}, one in {interval:?}"),
        LimitKind::Calendar { count, zone } => {
            let zone = live.plan.zones.get(zone).map_or("", |zone| zone.name());
            format!("{count}/day {zone}")
        }
    };
    match live.unit_name(charge) {
        Some(unit) => format!("{quota} {unit}"),
        None => quota,
    }
}
