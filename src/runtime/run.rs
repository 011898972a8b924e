//! A request that runs in place: the future of `run` and `call`.

use std::any::Any;
use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::attempt::Attempt;
use super::place::Place;
use super::shared::Shared;
use crate::engine::FailureKind;
use crate::error::{Cause, Classify, Error, Failure, Outcome, Refused, Verdict};

/// What a request does once it starts. Sealed: `run`, `call` and `submit` make it of closures.
pub trait Work {
    /// The future of one attempt.
    type Future: Future;
    /// What the request is for.
    type Value;
    /// The caller's error.
    type Error;

    /// Begins an attempt.
    fn begin(&mut self, attempt: Attempt) -> Self::Future;

    /// Says what an attempt's end means.
    fn judge(&self, output: <Self::Future as Future>::Output) -> Outcome<Self::Value, Self::Error>;
}

/// A closure that says itself what its failures mean.
#[derive(Debug)]
pub struct Told<F, Fut, C> {
    begin: F,
    classifier: C,
    future: PhantomData<fn() -> Fut>,
}

/// A closure that returns plain results.
#[derive(Debug)]
pub struct Plain<F, Fut, C> {
    begin: F,
    classifier: C,
    future: PhantomData<fn() -> Fut>,
}

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

impl<F, Fut, C> Told<F, Fut, C> {
    pub(crate) const fn new(begin: F, classifier: C) -> Self {
        Self { begin, classifier, future: PhantomData }
    }
}

impl<F, Fut, C> Plain<F, Fut, C> {
    pub(crate) const fn new(begin: F, classifier: C) -> Self {
        Self { begin, classifier, future: PhantomData }
    }
}

impl<F, Fut, C, T, E> Work for Told<F, Fut, C>
where
    F: FnMut(Attempt) -> Fut,
    Fut: Future<Output = Outcome<T, E>>,
    C: ClassifyUnsaid<E>,
{
    type Future = Fut;
    type Value = T;
    type Error = E;

    fn begin(&mut self, attempt: Attempt) -> Fut {
        (self.begin)(attempt)
    }

    fn judge(&self, output: Outcome<T, E>) -> Outcome<T, E> {
        match output {
            Err(Failure { cause: Cause::Unsaid(error), hold }) => {
                let verdict = self.classifier.verdict(&error);
                let failure = Failure::judged(error, verdict);
                Err(Failure { hold: hold.or(failure.hold), ..failure })
            }
            said => said,
        }
    }
}

impl<F, Fut, C, T, E> Work for Plain<F, Fut, C>
where
    F: FnMut(Attempt) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    C: ClassifyPlain<E>,
{
    type Future = Fut;
    type Value = T;
    type Error = E;

    fn begin(&mut self, attempt: Attempt) -> Fut {
        (self.begin)(attempt)
    }

    fn judge(&self, output: Result<T, E>) -> Outcome<T, E> {
        output.map_err(|error| {
            let verdict = self.classifier.verdict(&error);
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
    #[must_use = "futures do nothing unless polled"]
    pub struct Run<'a, W: Work> {
        #[pin]
        pub(super) steps: Steps<&'a Arc<Shared>, W>,
    }
}

impl<W: Work> Future for Run<'_, W> {
    type Output = Result<W::Value, Error<W::Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().steps.poll(context)
    }
}

impl<W: Work> fmt::Debug for Run<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("place", self.steps.place()).finish_non_exhaustive()
    }
}

pin_project! {
    /// Waits for a start, runs an attempt, and again until there is an answer.
    pub(crate) struct Steps<H: Borrow<Arc<Shared>>, W: Work> {
        // Before `place`: what the attempt holds is gone before its slots are given back.
        #[pin]
        running: Option<W::Future>,
        place: Place<H>,
        work: W,
        last: Option<W::Error>,
    }
}

impl<H: Borrow<Arc<Shared>>, W: Work> Steps<H, W> {
    pub(crate) const fn new(place: Place<H>, work: W) -> Self {
        Self { running: None, place, work, last: None }
    }

    pub(crate) const fn place(&self) -> &Place<H> {
        &self.place
    }

    pub(crate) const fn place_mut(&mut self) -> &mut Place<H> {
        &mut self.place
    }
}

impl<H: Borrow<Arc<Shared>>, W: Work> Future for Steps<H, W> {
    type Output = Result<W::Value, Error<W::Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let Some(future) = this.running.as_mut().as_pin_mut() else {
                if let Err(reason) = ready!(this.place.poll_start(context)) {
                    let (attempts, last) = (this.place.starts(), this.last.take());
                    return Poll::Ready(Err(Error::GaveUp { reason, attempts, last }));
                }
                let attempt = this.place.attempt();
                match caught(|| this.work.begin(attempt)) {
                    Ok(future) => this.running.set(Some(future)),
                    Err(message) => {
                        this.place.finish();
                        return Poll::Ready(Err(Error::Panicked(message)));
                    }
                }
                continue;
            };
            let end = if this.place.is_aborted() {
                End::Aborted
            } else {
                match this.place.polling(|| caught(|| future.poll(context))) {
                    Ok(Poll::Pending) if this.place.watch(context) => End::Aborted,
                    Ok(Poll::Pending) => return Poll::Pending,
                    Ok(Poll::Ready(output)) => End::Output(output),
                    Err(message) => End::Panicked(message),
                }
            };
            let dropped = caught(|| this.running.set(None));
            let judged = match (end, dropped) {
                (End::Aborted, _) => {
                    this.place.cut_off();
                    let (attempts, last) = (this.place.starts(), this.last.take());
                    return Poll::Ready(Err(Error::GaveUp { reason: Refused::Aborted, attempts, last }));
                }
                (End::Panicked(message), _) | (End::Output(_), Err(message)) => Err(message),
                (End::Output(output), Ok(())) => caught(|| this.work.judge(output)),
            };
            let failure = match judged {
                Ok(Ok(value)) => {
                    this.place.finish();
                    return Poll::Ready(Ok(value));
                }
                Ok(Err(failure)) => failure,
                Err(message) => {
                    this.place.finish();
                    return Poll::Ready(Err(Error::Panicked(message)));
                }
            };
            let (kind, error) = match failure.cause {
                Cause::Unsaid(error) | Cause::Permanent(error) => {
                    this.place.finish();
                    return Poll::Ready(Err(Error::Failed(error)));
                }
                Cause::Transient(error) => (FailureKind::Transient, Some(error)),
                Cause::Ambiguous(error) => (FailureKind::Ambiguous, Some(error)),
                Cause::Retry { after, last } => (FailureKind::Retry { after: after.map(Into::into) }, last),
            };
            if error.is_some() {
                *this.last = error;
            }
            if let Err(reason) = this.place.fail(kind, failure.hold) {
                let (attempts, last) = (this.place.starts(), this.last.take());
                return Poll::Ready(Err(Error::GaveUp { reason, attempts, last }));
            }
        }
    }
}

/// How the polling of an attempt ended.
enum End<O> {
    Output(O),
    Panicked(String),
    Aborted,
}

/// Runs the caller's code; a panic becomes its message.
fn caught<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    // What the closure has touched is never used again after a panic: the request ends with it.
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("something that is not text").to_owned()
}
