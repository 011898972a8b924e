//! What a server says of its own counters, on its way to the machine.

use std::time::Duration;

use super::explain;
use crate::engine::Difference;

/// A limit that the server has another number for than the rules. It is told and changes nothing, but for a rule that
/// [learns](crate::Observe::learn).
///
/// Only windows as long as the limit's are compared, and those whose length the server does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LimitDifference {
    /// Where the rules say so: `per_key`, `rules.group.overall`, `limits.account.per_key`.
    pub limit: String,
    /// What the server or its dialect calls the window.
    pub window: String,
    /// How many the rules allow.
    pub configured: u32,
    /// In how long, margin included.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub period: Duration,
    /// How many the server allows.
    pub reported: u32,
    /// How often it said so.
    pub seen: u64,
}

impl From<&Difference> for LimitDifference {
    fn from(difference: &Difference) -> Self {
        let Difference { origin, charge: _, window, configured, period, reported, seen } = difference;
        let (configured, reported, seen) = (*configured, *reported, *seen);
        let limit = explain::name_of_quota(origin);
        Self { limit, window: window.to_string(), configured, period: (*period).into(), reported, seen }
    }
}

#[cfg(feature = "serde")]
fn seconds<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}

#[cfg(feature = "headers")]
pub(super) use self::read::*;

#[cfg(feature = "headers")]
mod read {
    use super::Duration;
    use crate::engine::{
        self, Charge, HoldCause, Instant, Nanos, RequestId, RuleId, Scope, ServerReset, ServerWindow, Side,
    };
    use crate::error::Failure;
    use crate::headers::{self, Dialect, Observation, Reset, ServerScope};
    use crate::key::Key;
    use crate::runtime::event::{Holding, NewHold};
    use crate::runtime::live::Live;
    use crate::runtime::place::aim;
    use crate::runtime::shared::{Shared, State};
    use crate::runtime::wall;

    impl Shared {
        /// Takes in what the response to a running attempt says.
        pub(crate) fn observe(&self, attempt: Option<RequestId>, observation: &Observation) {
            let Some(id) = attempt.filter(|_| !observation.windows().is_empty()) else { return };
            let live = self.live.load();
            self.with_quietly(|state, now| state.machine.observe(now, id, windows(&live, observation)));
        }

        /// Reads the response to a running attempt in its rule's dialect, takes in what it says, and makes a failure of
        /// a refusal.
        pub(crate) fn check<'h, N, V, E>(
            &self,
            attempt: Option<RequestId>,
            whose: (RuleId, &Key),
            status: u16,
            fields: impl IntoIterator<Item = (&'h N, &'h V)>,
            body: Option<&[u8]>,
        ) -> Result<(), Failure<E>>
        where
            N: AsRef<[u8]> + ?Sized + 'h,
            V: AsRef<[u8]> + ?Sized + 'h,
        {
            let live = self.live.load();
            let observation = headers::read(status, fields, body, wall::clock(), live.dialect(whose.0));
            drop(live);
            self.check_observation(attempt, whose, status, &observation)
        }

        /// Takes in what was read of the response to a running attempt, and makes a failure of a refusal.
        pub(crate) fn check_observation<E>(
            &self,
            attempt: Option<RequestId>,
            whose: (RuleId, &Key),
            status: u16,
            observation: &Observation,
        ) -> Result<(), Failure<E>> {
            self.observe(attempt, observation);
            let scope = scope(observation, self.live.load().plan.pool.is_some());
            if let Some(failure) = failure(status, observation) {
                return Err(scope.into_iter().fold(failure, Failure::hold));
            }
            if let (Some(id), Some(wait), false) = (attempt, observation.wait(), observation.is_final()) {
                self.rest(id, whose, scope, wait.into());
            }
            Ok(())
        }

        /// A wait that comes with what was asked for holds whom it is about, too.
        fn rest(&self, id: RequestId, (rule, key): (RuleId, &Key), scope: Option<Scope>, wait: Nanos) {
            let live = self.live.load_full();
            let scope = scope.unwrap_or_else(|| live.rule(rule).retry.hold);
            let held = self.with(|state, now| {
                let endpoint = state.machine.endpoint_of(id);
                let target = aim(scope, rule, state.machine.key_of(id)?, endpoint);
                if matches!(target, engine::Target::Endpoint(_)) && endpoint != state.machine.lasting_endpoint_of(id) {
                    return None;
                }
                let holding = Holding::new(state, now, target, wait);
                state.machine.hold_because(now, target, now.saturating_add(wait), HoldCause::Retry);
                Some((target, holding.done(state, now)))
            });
            match held {
                Some((engine::Target::Endpoint(endpoint), held)) => {
                    self.tell_endpoint_hold(held, live.endpoint(endpoint));
                }
                Some((_, held)) => self.tell_hold(held, scope, || (Some(self.rule_name(rule)), Some(key.clone()))),
                None => {}
            }
        }
    }

    /// Takes in what the server says of a target by other ways. Returns whether the target is known, and what there is
    /// new to tell of its hold.
    pub(crate) fn observe_target(
        state: &mut State,
        now: Instant,
        live: &Live,
        target: engine::Target,
        observation: &Observation,
    ) -> (bool, Option<NewHold>) {
        let known = state.machine.observe_target(now, target, windows(live, observation));
        let Some(wait) = observation.wait().filter(|_| observation.throttled()).map(Nanos::from) else {
            return (known, None);
        };
        let holding = Holding::new(state, now, target, wait);
        let known = state.machine.hold_because(now, target, now.saturating_add(wait), HoldCause::Retry) && known;
        (known, holding.done(state, now))
    }

    /// What a response means for its request: a retry, if the server refused it because of too many.
    fn failure<E>(status: u16, observation: &Observation) -> Option<Failure<E>> {
        let waits = observation.wait().is_some() && status >= 400;
        if !(observation.throttled() || waits) || observation.is_final() {
            return None;
        }
        let reset = || observation.binding().filter(|window| window.is_exhausted())?.reset.map(until);
        Some(Failure::retry(observation.wait().or_else(reset)))
    }

    /// Whom a wait holds, if the server says so.
    fn scope(observation: &Observation, has_pool: bool) -> Option<Scope> {
        Some(match observation.scope()? {
            ServerScope::Key => Scope::Key,
            ServerScope::Route => Scope::Queue,
            // All that one token may do is all that its endpoint may do.
            ServerScope::Global if has_pool => Scope::Endpoint,
            ServerScope::Global => Scope::Overall,
        })
    }

    /// How long to wait for a reset: whole seconds that are over hide up to one more.
    fn until(reset: Reset) -> Duration {
        match reset {
            Reset::In { after: Duration::ZERO, grain } => grain,
            Reset::In { after, .. } => after,
            Reset::Over => Duration::ZERO,
        }
    }

    fn windows<'a>(live: &'a Live, observation: &'a Observation) -> impl Iterator<Item = ServerWindow<'a>> {
        // Where resets are full refills the wait says when the next one is there.
        let refill = observation.wait().filter(|_| observation.resets_are_full_refills());
        let windows = observation.windows().iter().filter(|window| window.reset != Some(Reset::Over));
        windows.filter_map(move |window| {
            let (charge, limit) = match live.charge(&window.unit) {
                Some(charge) => (charge, window.limit),
                // Of what nobody counts here, nothing left is no request left; how many there are is of no use.
                None if window.is_exhausted() => (Charge::Requests, None),
                None => return None,
            };
            let reset = match (refill, window.reset) {
                (Some(wait), Some(Reset::In { grain, .. })) if window.is_exhausted() => Some((wait, grain)),
                (_, Some(Reset::In { after, grain })) => Some((after, grain)),
                (_, Some(Reset::Over) | None) => None,
            };
            Some(ServerWindow {
                name: &window.name,
                charge,
                side: window.scope.map(side),
                limit: limit.map(count),
                left: window.remaining.map(count),
                per: window.per.map(Nanos::from),
                reset: reset.map(|(after, grain)| ServerReset { after: after.into(), grain: grain.into() }),
            })
        })
    }

    const fn side(scope: ServerScope) -> Side {
        match scope {
            ServerScope::Key | ServerScope::Route => Side::Key,
            ServerScope::Global => Side::All,
        }
    }

    fn count(number: u64) -> u32 {
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    impl Live {
        /// The dialect in which responses to a rule's requests are read.
        pub(crate) fn dialect(&self, rule: RuleId) -> &Dialect {
            let said = self.rules.rule(&self.rule(rule).name).map_or("auto", |rule| rule.dialect());
            self.rules.dialect(said).unwrap_or_else(|| Dialect::auto())
        }
    }
}
