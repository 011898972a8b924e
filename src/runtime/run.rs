//! A request that runs in place: the future of `run` and `call`.

use std::any::Any;
use std::borrow::Borrow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::attempt::Attempt;
use super::place::{Place, Watched};
use super::shared::Shared;
use crate::engine::FailureKind;
use crate::error::{Cause, Classify, EndpointFate, Error, Failure, Outcome, Refused, Verdict};

/// Says what an attempt's end means.
pub trait Judge<O, E> {
    /// What the request is for.
    type Value;

    /// What this end means.
    fn judge(&self, output: O) -> Outcome<Self::Value, E>;
}

/// The closure says itself what its failures mean.
#[derive(Clone, Copy, Debug)]
pub struct Told<C>(pub(crate) C);

/// The closure returns plain results.
#[derive(Clone, Copy, Debug)]
pub struct Plain<C>(pub(crate) C);

/// Nobody was named to classify errors: `call` asks the error itself, `run` takes what `?` passes on as final.
#[derive(Clone, Copy, Debug)]
pub struct Unclassified;

/// Errors are classified by a function.
#[derive(Clone, Copy, Debug)]
pub struct By<C>(pub(crate) C);

/// Classifies what `?` passes on in `run` and `submit`.
pub trait ClassifyUnsaid<E> {
    /// What the error means.
    fn verdict(&self, error: &E) -> Verdict;
}

/// Classifies the errors of `call`.
#[diagnostic::on_unimplemented(
    message = "`call` does not know what `{E}` means for a request",
    label = "this error is not classified",
    note = "implement `Classify` for it, pass a function to `.classify(…)`, or use `run`"
)]
pub trait ClassifyPlain<E> {
    /// What the error means.
    fn verdict(&self, error: &E) -> Verdict;
}

impl<E> ClassifyUnsaid<E> for Unclassified {
    fn verdict(&self, _: &E) -> Verdict {
        Verdict::Permanent
    }
}

impl<E: Classify> ClassifyPlain<E> for Unclassified {
    fn verdict(&self, error: &E) -> Verdict {
        error.classify()
    }
}

impl<E, C: Fn(&E) -> Verdict> ClassifyUnsaid<E> for By<C> {
    fn verdict(&self, error: &E) -> Verdict {
        (self.0)(error)
    }
}

impl<E, C: Fn(&E) -> Verdict> ClassifyPlain<E> for By<C> {
    fn verdict(&self, error: &E) -> Verdict {
        (self.0)(error)
    }
}

impl<T, E, C: ClassifyUnsaid<E>> Judge<Outcome<T, E>, E> for Told<C> {
    type Value = T;

    fn judge(&self, output: Outcome<T, E>) -> Outcome<T, E> {
        match output {
            Err(Failure { cause: Cause::Unsaid(error), hold, invalid, endpoint, unreachable: _ }) => {
                let verdict = self.0.verdict(&error);
                let failure = Failure::judged(error, verdict);
                let endpoint = if endpoint == EndpointFate::Stays { failure.endpoint } else { endpoint };
                let (hold, invalid) = (hold.or(failure.hold), invalid || failure.invalid);
                Err(Failure { hold, invalid, endpoint, ..failure })
            }
            said => said,
        }
    }
}

impl<T, E, C: ClassifyPlain<E>> Judge<Result<T, E>, E> for Plain<C> {
    type Value = T;

    fn judge(&self, output: Result<T, E>) -> Outcome<T, E> {
        output.map_err(|error| {
            let verdict = self.0.verdict(&error);
            Failure::judged(error, verdict)
        })
    }
}

pin_project! {
    /// The future of [`Balancer::run`](crate::Balancer::run) and [`Balancer::call`](crate::Balancer::call).
    ///
    /// It takes its place in line when it is first polled.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it stands in line, it leaves without a trace. Dropped while an attempt runs, it drops the
    /// attempt's future and then gives back its concurrency slots; the start stays counted, as it is at the server.
    // No bound connects the parameters: the compiler forgets how lifetimes belong together when it looks whether a task
    // may be sent to another thread, and would find that `F` does not make `Fut`.
    #[must_use = "futures do nothing unless polled"]
    pub struct Run<'a, F, Fut, E, J> {
        #[pin]
        pub(super) steps: Steps<&'a Arc<Shared>, F, Fut, E, J>,
    }
}

impl<F, Fut, E, J> Future for Run<'_, F, Fut, E, J>
where
    F: FnMut(Attempt) -> Fut,
    Fut: Future,
    J: Judge<Fut::Output, E>,
{
    type Output = Result<J::Value, Error<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().steps.poll(context)
    }
}

impl<F, Fut, E, J> fmt::Debug for Run<'_, F, Fut, E, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("place", &self.steps.place).finish_non_exhaustive()
    }
}

pin_project! {
    /// Waits for a start, runs an attempt, and again until there is an answer.
    pub(crate) struct Steps<H: Borrow<Arc<Shared>>, F, Fut, E, J> {
        // Before `place`: what the attempt holds is gone before its slots are given back.
        #[pin]
        running: Option<Fut>,
        place: Place<H>,
        begin: F,
        judge: J,
        last: Option<E>,
    }
}

impl<H: Borrow<Arc<Shared>>, F, Fut, E, J> Steps<H, F, Fut, E, J> {
    #[inline(always)]
    pub(crate) const fn new(place: Place<H>, begin: F, judge: J) -> Self {
        Self { running: None, place, begin, judge, last: None }
    }
}

impl<H, F, Fut, E, J> Future for Steps<H, F, Fut, E, J>
where
    H: Borrow<Arc<Shared>>,
    F: FnMut(Attempt) -> Fut,
    Fut: Future,
    J: Judge<Fut::Output, E>,
{
    type Output = Result<J::Value, Error<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            if this.running.is_none() {
                if let Err(reason) = ready!(this.place.poll_start(context)) {
                    return Poll::Ready(Err(gave_up(this.place, this.last, reason)));
                }
                let begun = || this.running.set(Some((this.begin)(this.place.attempt())));
                if let Err(message) = this.place.in_span(|| caught(begun)) {
                    this.place.panicked();
                    return Poll::Ready(Err(Error::Panicked(message)));
                }
            }
            let (running, judge) = (&mut this.running, &*this.judge);
            let ended = if this.place.is_aborted() {
                Err(Cut::Off(Refused::Aborted))
            } else {
                let place = &*this.place;
                match place.polling(|| place.in_span(|| caught(|| poll_attempt(running, judge, context)))) {
                    Ok(Poll::Ready(Ok(value))) => {
                        this.place.succeed();
                        return Poll::Ready(Ok(value));
                    }
                    Ok(Poll::Ready(Err(failure))) => Ok(failure),
                    Ok(Poll::Pending) => match this.place.watch(context) {
                        Watched::MayGoOn => return Poll::Pending,
                        Watched::Aborted => Err(Cut::Off(Refused::Aborted)),
                        Watched::Stranded => Err(Cut::Off(Refused::NoRuntime)),
                        Watched::Overdue => Err(Cut::Overdue),
                    },
                    Err(message) => Err(Cut::Panicked(message)),
                }
            };
            let goes_on = match ended {
                Ok(failure) => fail(this.place, this.last, Some(failure)),
                Err(cut) => cut_short(this.place, running, this.last, cut),
            };
            if let Err(error) = goes_on {
                return Poll::Ready(Err(error));
            }
        }
    }
}

/// Why an attempt has no outcome.
enum Cut {
    Panicked(String),
    /// It is not to go on, and nothing follows.
    Off(Refused),
    /// It ran for as long as it may.
    Overdue,
}

/// Polls an attempt. Once it has ended, what it held is gone before its end is judged.
fn poll_attempt<Fut: Future, E, J: Judge<Fut::Output, E>>(
    running: &mut Pin<&mut Option<Fut>>,
    judge: &J,
    context: &mut Context<'_>,
) -> Poll<Outcome<J::Value, E>> {
    let Some(future) = running.as_mut().as_pin_mut() else { return Poll::Pending };
    let output = ready!(future.poll(context));
    running.set(None);
    Poll::Ready(judge.judge(output))
}

/// The attempt's future is dropped before it has ended: the request waits for its next start, or ends with an error.
#[cold]
fn cut_short<H: Borrow<Arc<Shared>>, Fut, E>(
    place: &mut Place<H>,
    running: &mut Pin<&mut Option<Fut>>,
    last: &mut Option<E>,
    cut: Cut,
) -> Result<(), Error<E>> {
    let dropped = place.polling(|| place.in_span(|| caught(|| running.set(None))));
    match (cut, dropped) {
        (Cut::Off(reason), _) => {
            place.cut_off();
            Err(gave_up(place, last, reason))
        }
        (Cut::Panicked(message), _) | (Cut::Overdue, Err(message)) => {
            place.panicked();
            Err(Error::Panicked(message))
        }
        (Cut::Overdue, Ok(())) => fail(place, last, None),
    }
}

/// The attempt failed, or ran for as long as it may: the request waits for its next start, or ends with an error.
#[cold]
fn fail<H: Borrow<Arc<Shared>>, E>(
    place: &mut Place<H>,
    last: &mut Option<E>,
    failure: Option<Failure<E>>,
) -> Result<(), Error<E>> {
    if failure.as_ref().is_some_and(|failure| failure.invalid) {
        place.set_invalid();
    }
    let (kind, hold, error) = match failure {
        None => (FailureKind::TimedOut, None, None),
        Some(Failure { cause, endpoint, .. }) if endpoint != EndpointFate::Stays && place.endpoint().is_some() => {
            if let Some(error) = cause.into_error() {
                *last = Some(error);
            }
            return place.turn_away(endpoint).map_err(|reason| gave_up(place, last, reason));
        }
        Some(Failure { cause, hold, .. }) => match cause {
            Cause::Unsaid(error) | Cause::Permanent(error) => {
                place.finish("failed");
                return Err(Error::Failed(error));
            }
            Cause::Transient(error) => (FailureKind::Transient, hold, Some(error)),
            Cause::Ambiguous(error) => (FailureKind::Ambiguous, hold, Some(error)),
            Cause::Retry { after, last } => (FailureKind::Retry { after: after.map(Into::into) }, hold, last),
        },
    };
    if error.is_some() {
        *last = error;
    }
    place.fail(kind, hold).map_err(|reason| gave_up(place, last, reason))
}

#[cold]
fn gave_up<H: Borrow<Arc<Shared>>, E>(place: &Place<H>, last: &mut Option<E>, reason: Refused) -> Error<E> {
    Error::GaveUp { reason, attempts: place.starts(), last: last.take() }
}

/// Runs the caller's code; a panic becomes its message.
#[inline]
pub(crate) fn caught<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    // What the closure has touched is never used again after a panic: the request ends with it.
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("something that is not text").to_owned()
}
