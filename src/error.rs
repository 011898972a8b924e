//! What an attempt says about its outcome, and what a request's future says in the end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Scope;

mod next_start;
mod refused;

pub use self::next_start::NextStart;
pub use self::refused::Refused;

/// What an attempt returns: a value, or a [`Failure`] that says whether another attempt makes sense.
pub type Outcome<T, E> = Result<T, Failure<E>>;

/// Why an attempt failed and what should follow.
///
/// Made by `?` from your own error (then it is final unless the request [classifies](crate::Request::classify) it), by
/// one of the functions below, or by [`Attempt::retry`](crate::Attempt::retry).
///
/// ```
/// use request_balancer::{Failure, Outcome};
///
/// fn parse(body: &str) -> Outcome<u32, std::num::ParseIntError> {
///     if body.is_empty() {
///         return Err(Failure::transient("".parse::<u32>().unwrap_err()));
///     }
///     Ok(body.parse()?)
/// }
///
/// assert_eq!(parse("12").ok(), Some(12));
/// assert!(parse("").is_err());
/// ```
#[must_use = "a failure does nothing unless the attempt returns it"]
#[derive(Debug)]
pub struct Failure<E> {
    pub(crate) cause: Cause<E>,
    pub(crate) hold: Option<Scope>,
    pub(crate) invalid: bool,
    #[cfg_attr(not(feature = "outbox"), expect(dead_code, reason = "to everybody else it is a transient failure"))]
    pub(crate) unreachable: bool,
    pub(crate) endpoint: EndpointFate,
}

/// What becomes of the endpoint of a failed attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EndpointFate {
    #[default]
    Stays,
    Disabled,
    Exhausted,
}

/// What kind of failure it is.
#[derive(Debug)]
pub(crate) enum Cause<E> {
    /// Nobody said: it came by `?`.
    Unsaid(E),
    Permanent(E),
    Transient(E),
    Ambiguous(E),
    Retry {
        after: Option<Duration>,
        last: Option<E>,
    },
}

impl<E> Cause<E> {
    /// The error behind it, if there is one.
    pub(crate) fn into_error(self) -> Option<E> {
        match self {
            Self::Unsaid(error) | Self::Permanent(error) | Self::Transient(error) | Self::Ambiguous(error) => {
                Some(error)
            }
            Self::Retry { last, .. } => last,
        }
    }
}

impl<E> Failure<E> {
    /// Another attempt would fail likewise: the request ends with [`Error::Failed`].
    pub const fn permanent(error: E) -> Self {
        Self::of(Cause::Permanent(error))
    }

    /// The call had no effect and may work later: it is tried again after the policy's backoff.
    pub const fn transient(error: E) -> Self {
        Self::of(Cause::Transient(error))
    }

    /// Nothing got as far as the server: its name was not found, the connection was refused.
    ///
    /// A transient failure, except for an [outbox](crate::outbox), if the crate has that feature: its messages wait behind
    /// an outage for as long as it lasts, and that costs them no attempt.
    pub fn unreachable(error: E) -> Self {
        Self { unreachable: true, ..Self::transient(error) }
    }

    /// The call may or may not have had its effect, as after a timeout.
    ///
    /// Tried again like a transient failure if the request is marked
    /// [`idempotent`](crate::Request::idempotent); otherwise refused with [`Refused::RetryNotAllowed`].
    pub const fn ambiguous(error: E) -> Self {
        Self::of(Cause::Ambiguous(error))
    }

    /// Nothing of `scope` starts before the wait or the backoff is over.
    ///
    /// Without it a retry holds the scope of the policy, by default the endpoint and without a pool the key, and a transient
    /// failure holds nobody. Ignored for a permanent failure, which waits for nothing, and for one that no further attempt
    /// follows, unless the server asked for the wait.
    pub fn hold(mut self, scope: Scope) -> Self {
        self.hold = Some(scope);
        self
    }

    /// Sets the error behind the failure: the one that [`Error::GaveUp`] shows as the last if no attempt follows.
    pub fn because(self, error: E) -> Self {
        let cause = match self.cause {
            Cause::Unsaid(_) => Cause::Unsaid(error),
            Cause::Permanent(_) => Cause::Permanent(error),
            Cause::Transient(_) => Cause::Transient(error),
            Cause::Ambiguous(_) => Cause::Ambiguous(error),
            Cause::Retry { after, last: _ } => Cause::Retry { after, last: Some(error) },
        };
        Self { cause, ..self }
    }

    /// The server took the call for an invalid one and counts it: enough of them and it shuts the program out.
    ///
    /// Counted against the rules' `ban_guard`, if they have one; what follows the failure is not changed by it.
    pub fn invalid(mut self) -> Self {
        self.invalid = true;
        self
    }

    /// The endpoint of the attempt is of no use any more, as after a 401 or 403: nothing starts on it until it is
    /// [enabled](crate::Balancer::enable_endpoint) again or the rules are replaced. The request goes to another endpoint
    /// at once, whatever kind of failure this is; that counts among its waits and not among its attempts.
    ///
    /// Without a pool it changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, Failure, Rules};
    ///
    /// let balancer = Balancer::new("[pool]\nendpoints = ['revoked', 'good']".parse::<Rules>()?);
    /// let send = async |endpoint: &str| if endpoint == "revoked" { Err("401") } else { Ok("sent") };
    /// let answer = balancer
    ///     .run("default", 42, async |attempt| {
    ///         let endpoint = attempt.endpoint().expect("there is a pool");
    ///         send(endpoint.name()).await.map_err(|error| Failure::permanent(error).disable_endpoint())
    ///     })
    ///     .await;
    /// assert_eq!(answer, Ok("sent"));
    /// assert!(balancer.snapshot().endpoints[0].disabled);
    /// # Ok(())
    /// # }
    /// ```
    pub fn disable_endpoint(mut self) -> Self {
        self.endpoint = EndpointFate::Disabled;
        self
    }

    /// The quota of the attempt's endpoint is spent, and the server does not say until when: the endpoint rests for as
    /// long as the pool's [`exhausted`](crate::PoolRules::exhausted), then one request probes it. Otherwise as
    /// [`disable_endpoint`](Self::disable_endpoint).
    pub fn exhaust_endpoint(mut self) -> Self {
        self.endpoint = EndpointFate::Exhausted;
        self
    }

    /// Whether it may have had its effect.
    #[cfg(feature = "outbox")]
    pub(crate) const fn is_ambiguous(&self) -> bool {
        matches!(self.cause, Cause::Ambiguous(_))
    }

    /// For how long it is to wait, if it is told to.
    #[cfg(feature = "outbox")]
    pub(crate) const fn wait(&self) -> Option<Option<Duration>> {
        match self.cause {
            Cause::Retry { after, .. } => Some(after),
            Cause::Unsaid(_) | Cause::Permanent(_) | Cause::Transient(_) | Cause::Ambiguous(_) => None,
        }
    }

    /// The same as if the server had asked for a wait.
    #[cfg(feature = "outbox")]
    pub(crate) fn into_wait(self, after: Duration) -> Self {
        let Self { cause, hold, invalid, endpoint, unreachable: _ } = self;
        let last = cause.into_error();
        Self { cause: Cause::Retry { after: Some(after), last }, hold, invalid, unreachable: false, endpoint }
    }

    /// The same failure with another error.
    #[cfg(feature = "outbox")]
    pub(crate) fn map<F>(self, convert: impl FnOnce(E) -> F) -> Failure<F> {
        let Self { cause, hold, invalid, unreachable, endpoint } = self;
        let cause = match cause {
            Cause::Unsaid(error) => Cause::Unsaid(convert(error)),
            Cause::Permanent(error) => Cause::Permanent(convert(error)),
            Cause::Transient(error) => Cause::Transient(convert(error)),
            Cause::Ambiguous(error) => Cause::Ambiguous(convert(error)),
            Cause::Retry { after, last } => Cause::Retry { after, last: last.map(convert) },
        };
        Failure { cause, hold, invalid, unreachable, endpoint }
    }

    /// The server asked to come again later. `None`: it did not say when.
    pub(crate) const fn retry(after: Option<Duration>) -> Self {
        Self::of(Cause::Retry { after, last: None })
    }

    const fn of(cause: Cause<E>) -> Self {
        Self { cause, hold: None, invalid: false, unreachable: false, endpoint: EndpointFate::Stays }
    }

    /// The failure that a verdict about `error` stands for.
    pub(crate) fn judged(error: E, verdict: Verdict) -> Self {
        match verdict {
            Verdict::Permanent => Self::permanent(error),
            Verdict::Invalid => Self::permanent(error).invalid(),
            Verdict::DisableEndpoint => Self::permanent(error).disable_endpoint(),
            Verdict::ExhaustEndpoint => Self::permanent(error).exhaust_endpoint(),
            Verdict::Transient => Self::transient(error),
            Verdict::Ambiguous => Self::ambiguous(error),
            Verdict::Retry { after, scope } => Self { hold: scope, ..Self::retry(after).because(error) },
        }
    }
}

impl<E> From<E> for Failure<E> {
    /// Final, unless the request classifies its errors.
    fn from(error: E) -> Self {
        Self::of(Cause::Unsaid(error))
    }
}

/// What an error means for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Another attempt would fail likewise.
    Permanent,
    /// Another attempt would fail likewise, and the server counts this one as [invalid](Failure::invalid).
    Invalid,
    /// The endpoint is of no use any more: [disabled](Failure::disable_endpoint). Without a pool: permanent.
    DisableEndpoint,
    /// The endpoint's quota is spent: [exhausted](Failure::exhaust_endpoint). Without a pool: permanent.
    ExhaustEndpoint,
    /// It had no effect and may work later.
    Transient,
    /// It may or may not have had its effect.
    Ambiguous,
    /// The server asked to come again later.
    Retry {
        /// How long to wait; `None` if the server did not say.
        after: Option<Duration>,
        /// What to hold meanwhile; `None` for the policy's scope.
        scope: Option<Scope>,
    },
}

/// Says what an error means, so that [`Balancer::call`](crate::Balancer::call) can take plain results.
///
/// ```
/// use std::time::Duration;
/// use request_balancer::{Classify, Verdict};
///
/// enum Api {
///     TooManyRequests { retry_after: Duration },
///     Unavailable,
///     NotFound,
/// }
///
/// impl Classify for Api {
///     fn classify(&self) -> Verdict {
///         match self {
///             Api::TooManyRequests { retry_after } => Verdict::Retry { after: Some(*retry_after), scope: None },
///             Api::Unavailable => Verdict::Transient,
///             Api::NotFound => Verdict::Permanent,
///         }
///     }
/// }
///
/// assert_eq!(Api::Unavailable.classify(), Verdict::Transient);
/// ```
pub trait Classify {
    /// What this error means for the request that met it.
    fn classify(&self) -> Verdict;
}

impl<E: Classify + ?Sized> Classify for &E {
    fn classify(&self) -> Verdict {
        (**self).classify()
    }
}

impl<E: Classify + ?Sized> Classify for Box<E> {
    fn classify(&self) -> Verdict {
        (**self).classify()
    }
}

impl<E: Classify + ?Sized> Classify for Arc<E> {
    fn classify(&self) -> Verdict {
        (**self).classify()
    }
}

/// Why a request's future has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error<E> {
    /// An attempt failed for good, with your own error.
    Failed(E),
    /// The balancer did not start the request, or not again.
    GaveUp {
        /// Why.
        reason: Refused,
        /// How many attempts were made.
        attempts: u32,
        /// The error of the last of them that brought one.
        last: Option<E>,
    },
    /// The closure or its future panicked, with this message.
    Panicked(String),
}

impl<E> Error<E> {
    /// Why the balancer gave up; `None` if it did not.
    #[must_use]
    pub const fn refused(&self) -> Option<&Refused> {
        match self {
            Self::GaveUp { reason, .. } => Some(reason),
            Self::Failed(_) | Self::Panicked(_) => None,
        }
    }

    /// Your own error: the final one, or the last one before the balancer gave up.
    #[must_use]
    pub const fn last(&self) -> Option<&E> {
        match self {
            Self::Failed(error) => Some(error),
            Self::GaveUp { last, .. } => last.as_ref(),
            Self::Panicked(_) => None,
        }
    }

    /// Folds everything into your own error type: its own last error if there is one, else the refusal.
    ///
    /// A panic becomes [`Refused::Panicked`].
    ///
    /// ```
    /// use request_balancer::{Error, Refused};
    ///
    /// #[derive(Debug, PartialEq)]
    /// enum Api {
    ///     NotFound,
    ///     Refused(Refused),
    /// }
    ///
    /// impl From<Refused> for Api {
    ///     fn from(reason: Refused) -> Self {
    ///         Api::Refused(reason)
    ///     }
    /// }
    ///
    /// assert_eq!(Error::Failed(Api::NotFound).flatten(), Api::NotFound);
    /// let closed = Error::<Api>::GaveUp { reason: Refused::Closed, attempts: 0, last: None };
    /// assert_eq!(closed.flatten(), Api::Refused(Refused::Closed));
    /// ```
    #[must_use]
    pub fn flatten(self) -> E
    where
        E: From<Refused>,
    {
        match self {
            Self::Failed(error) => error,
            Self::GaveUp { reason, last, .. } => last.unwrap_or_else(|| reason.into()),
            Self::Panicked(message) => Refused::Panicked { message }.into(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::GaveUp { reason, attempts, last } => {
                match attempts {
                    0 => write!(f, "not started: {reason}")?,
                    1 => write!(f, "gave up after 1 attempt: {reason}")?,
                    _ => write!(f, "gave up after {attempts} attempts: {reason}")?,
                }
                match last {
                    Some(error) => write!(f, "; last error: {error}"),
                    None => Ok(()),
                }
            }
            Self::Panicked(message) => write!(f, "the attempt panicked: {message}"),
        }
    }
}

/// For any error that can be shown, so that `anyhow::Error` and `Box<dyn Error>` fit too.
impl<E: fmt::Debug + fmt::Display> std::error::Error for Error<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_was_found_and_what_is_allowed() {
        let unknown = Refused::UnknownRule { name: "brodcast".into(), nearest: Some("broadcast".into()) };
        assert_eq!(unknown.to_string(), "there is no rule `brodcast`; did you mean `broadcast`?");
        let unknown = Refused::UnknownRule { name: "x".into(), nearest: None };
        assert_eq!(unknown.to_string(), "there is no rule `x`");
        let wait = Refused::WaitTooLong { wait: Duration::from_secs(400), ceiling: Duration::from_secs(300) };
        assert_eq!(wait.to_string(), "it should wait for 400s, but its retry policy allows 300s at most");
        let error = Error::GaveUp { reason: Refused::Attempts, attempts: 3, last: Some("busy") };
        assert_eq!(error.to_string(), "gave up after 3 attempts: all its attempts failed; last error: busy");
        let error = Error::<&str>::GaveUp {
            reason: Refused::NotNow { next_start: NextStart::After(Duration::from_millis(250)) },
            attempts: 0,
            last: None,
        };
        assert_eq!(error.to_string(), "not started: it can't start at once: there is room in 250ms at the earliest");
    }

    #[test]
    fn flatten_prefers_the_own_error() {
        let error = Error::GaveUp { reason: Refused::Attempts, attempts: 3, last: Some(Refused::Displaced) };
        assert_eq!(error.flatten(), Refused::Displaced);
        let error = Error::<Refused>::Panicked("boom".into());
        assert_eq!(error.flatten(), Refused::Panicked { message: "boom".into() });
    }

    #[test]
    fn any_error_that_can_be_shown_makes_an_error() {
        fn is_error<E: std::error::Error>() {}
        is_error::<Error<anyhow::Error>>();
        is_error::<Error<Box<dyn std::error::Error + Send + Sync>>>();
        is_error::<Error<String>>();
    }
}
