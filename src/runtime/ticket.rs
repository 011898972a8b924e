//! A request that takes its place in line now and is run by a task of its own once it starts.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, coop};

use super::attempt::Attempt;
use super::explain::{Explainable, Explanation};
use super::place::Place;
use super::run::{Judge, Steps};
use super::shared::Shared;
use super::sync::{Mutex, MutexGuard};
#[cfg(feature = "outbox")]
use crate::engine::Standing;
use crate::error::{Error, Refused};

/// A submitted request: the future of its answer.
///
/// # Cancel safety
///
/// Dropping it withdraws the request while it stands in line and aborts its task while it runs;
/// [`detach`](Self::detach) lets it go on without anybody waiting for its answer.
#[must_use = "dropping a ticket withdraws its request; `detach` lets it go on"]
pub struct Ticket<T, E> {
    /// Until it is answered.
    submitted: Option<Arc<dyn Answers<T, E>>>,
    request: Explainable,
}

/// Enters the line with a request that is to run in a task on the current runtime.
pub(super) fn submit<S, T, E>(mut request: S) -> Result<Ticket<T, E>, Refused>
where
    S: Submit<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    let runtime = Handle::try_current().map_err(|_| Refused::NoRuntime)?;
    if !request.place().shared().start_driver(&runtime) {
        return Err(Refused::NoRuntime);
    }
    let submitted = Submitted::new(runtime, Stage::Visited { woken: false });
    request.place_mut().enter_in_line(Waker::from(Arc::clone(&submitted)))?;
    let explainable = explainable(request.place());
    submitted.settle(request);
    Ok(Ticket { submitted: Some(submitted), request: explainable })
}

/// Waits for room in line and then enters it with a request that is to run in a task on the current runtime.
pub(super) async fn submit_wait<S, T, E>(mut request: S) -> Result<Ticket<T, E>, Refused>
where
    S: Submit<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    let runtime = Handle::try_current().map_err(|_| Refused::NoRuntime)?;
    poll_fn(|context| request.place_mut().poll_room(context)).await?;
    let explainable = explainable(request.place());
    let submitted = Submitted::new(runtime, Stage::InLine(request));
    // It may have been granted meanwhile; else the machine gets its waker.
    submitted.visit(false);
    Ok(Ticket { submitted: Some(submitted), request: explainable })
}

fn explainable(place: &Place<Arc<Shared>>) -> Explainable {
    Explainable {
        shared: Arc::downgrade(place.shared()),
        id: place.id(),
        rule: place.rule(),
        rule_name: place.rule_name(),
        key: place.key().clone(),
    }
}

/// What can be submitted.
pub(super) trait Submit<T, E>: Send + 'static {
    fn place(&self) -> &Place<Arc<Shared>>;

    fn place_mut(&mut self) -> &mut Place<Arc<Shared>>;

    /// What its task does.
    fn into_steps(self) -> impl Future<Output = Result<T, Error<E>>> + Send + 'static;
}

/// A request whose attempts have yet to begin: without the room that their futures need.
pub(super) struct Unstarted<F, J> {
    pub(super) place: Place<Arc<Shared>>,
    pub(super) begin: F,
    pub(super) judge: J,
}

impl<F, Fut, T, E, J> Submit<T, E> for Unstarted<F, J>
where
    F: FnMut(Attempt) -> Fut + Send + 'static,
    Fut: Future + Send + 'static,
    J: Judge<Fut::Output, E, Value = T> + Send + 'static,
    E: Send + 'static,
{
    fn place(&self) -> &Place<Arc<Shared>> {
        &self.place
    }

    fn place_mut(&mut self) -> &mut Place<Arc<Shared>> {
        &mut self.place
    }

    fn into_steps(self) -> impl Future<Output = Result<T, Error<E>>> + Send + 'static {
        Steps::new(self.place, self.begin, self.judge)
    }
}

impl<T, E> Ticket<T, E> {
    /// Where the request stands, and what is in its way.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use request_balancer::{Balancer, Failure, Rules};
    ///
    /// let balancer = Balancer::new("[rules]\nsend = '1/1s'".parse::<Rules>()?);
    /// drop(balancer.request("send", 42).acquire().await?);
    /// let ticket = balancer.request("send", 42).submit(async |_| Ok::<_, Failure<()>>("sent"))?;
    /// assert_eq!(
    ///     ticket.why().to_string(),
    ///     "rule `send`, key 42: waits in its queue; `rules.send.per_key` 1/1s has room in 1s"
    /// );
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn why(&self) -> Explanation {
        self.request.explain()
    }

    /// What explains it as long as somebody may want that.
    #[cfg(feature = "outbox")]
    pub(crate) fn explainable(&self) -> Explainable {
        self.request.clone()
    }

    /// Whether it need not wait: it may start, it runs, or it is over.
    #[cfg(feature = "outbox")]
    pub(crate) fn need_not_wait(&self) -> bool {
        self.request.obstacles().is_none_or(|(explained, _)| match explained.standing {
            Standing::Granted | Standing::Running | Standing::Refused => true,
            Standing::New | Standing::Outside | Standing::Waiting | Standing::Asleep | Standing::Out(_) => false,
        })
    }

    /// Lets the request go on without anybody waiting for its answer. It keeps the balancer alive until it has ended.
    pub fn detach(mut self) {
        if let Some(submitted) = self.submitted.take() {
            submitted.detach();
        }
    }
}

impl<T, E> Future for Ticket<T, E> {
    type Output = Result<T, Error<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Who takes one answer after the other lets others have a turn, as with whatever else tokio makes ready.
        let turn = ready!(coop::poll_proceed(context));
        let answer = match &self.submitted {
            Some(submitted) => match submitted.poll_answer(context) {
                Poll::Pending => match Arc::clone(submitted).check() {
                    Checked::Done => submitted.poll_answer(context),
                    Checked::Elsewhere if self.request.has_ancestors() => {
                        context.waker().wake_by_ref();
                        Poll::Pending
                    }
                    Checked::Elsewhere | Checked::NoNeed => Poll::Pending,
                },
                answer => answer,
            },
            None => Poll::Ready(None),
        };
        let answer = ready!(answer);
        turn.made_progress();
        self.submitted = None;
        Poll::Ready(answer.unwrap_or(Err(Error::GaveUp { reason: Refused::Aborted, attempts: 0, last: None })))
    }
}

impl<T, E> Drop for Ticket<T, E> {
    fn drop(&mut self) {
        if let Some(submitted) = self.submitted.take() {
            submitted.cancel();
        }
    }
}

impl<T, E> fmt::Debug for Ticket<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("detached", &self.submitted.is_none()).finish_non_exhaustive()
    }
}

/// What a ticket knows of its request, whatever the closure.
trait Answers<T, E>: Send + Sync {
    /// Its answer: `None` if its task was dropped without one.
    fn poll_answer(&self, context: &Context<'_>) -> Poll<Option<Answer<T, E>>>;

    /// Withdraws it or aborts its task.
    fn cancel(&self);

    /// Nobody waits for its answer any more.
    fn detach(&self);

    /// Takes a look at it on behalf of the attempt that is being polled on this thread and waits for its answer.
    fn check(self: Arc<Self>) -> Checked;
}

/// What a look on behalf of an attempt came to.
enum Checked {
    Done,
    /// There is no attempt that waits for it, or it waits for nobody.
    NoNeed,
    /// Another thread has it in its hands, on behalf of nobody.
    Elsewhere,
}

type Answer<T, E> = Result<T, Error<E>>;

/// A request from its submission to its answer, in one allocation: its own waker while it stands in line.
struct Submitted<S, T, E> {
    runtime: Handle,
    /// Never locked while others' code runs or the machine is called: that may wake this very request.
    state: Mutex<State<S, T, E>>,
}

struct State<S, T, E> {
    stage: Stage<S, T, E>,
    /// Who waits for its answer.
    waiter: Option<Waker>,
}

enum Stage<S, T, E> {
    InLine(S),
    /// Somebody has taken it out to look after it.
    Visited {
        woken: bool,
    },
    Running(AbortHandle),
    Answered(Answer<T, E>),
    /// Nobody waits for its answer any more, or there is none.
    Over,
}

impl<S, T, E> Submitted<S, T, E> {
    fn new(runtime: Handle, stage: Stage<S, T, E>) -> Arc<Self> {
        Arc::new(Self { runtime, state: Mutex::new(State { stage, waiter: None }) })
    }

    /// Ends it, unless its ticket was dropped.
    fn end(&self, end: Stage<S, T, E>) {
        let (_gone, waiter) = {
            let mut state = self.lock();
            match state.stage {
                Stage::Over => (end, None),
                Stage::InLine(_) | Stage::Visited { .. } | Stage::Running(_) | Stage::Answered(_) => {
                    (std::mem::replace(&mut state.stage, end), state.waiter.take())
                }
            }
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<S, T, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Submit<T, E>, T: Send + 'static, E: Send + 'static> Submitted<S, T, E> {
    /// Puts it back where it was taken from, unless its ticket was dropped meanwhile; looks after it if it was woken
    /// meanwhile.
    fn settle(self: &Arc<Self>, request: S) {
        let woken = {
            let mut state = self.lock();
            match state.stage {
                Stage::Visited { woken } => {
                    state.stage = Stage::InLine(request);
                    woken
                }
                Stage::InLine(_) | Stage::Running(_) | Stage::Answered(_) | Stage::Over => {
                    drop(state);
                    return;
                }
            }
        };
        if woken {
            self.visit(false);
        }
    }

    /// Looks how it stands: spawns its task if it was granted, answers if it was refused.
    ///
    /// `nested`: on behalf of the attempts that are being polled on this thread.
    fn visit(self: &Arc<Self>, nested: bool) {
        let in_line = {
            let mut state = self.lock();
            match &mut state.stage {
                Stage::InLine(_) => std::mem::replace(&mut state.stage, Stage::Visited { woken: false }),
                Stage::Visited { woken } => {
                    *woken = true;
                    return;
                }
                Stage::Running(_) | Stage::Answered(_) | Stage::Over => return,
            }
        };
        let mut unsettled = Unsettled(Some(self));
        let Stage::InLine(mut request) = in_line else { return };
        let place = request.place_mut();
        let checked = if nested { place.check_nesting() } else { Ok(()) };
        let looked = checked.and_then(|()| place.look(self.runtime.id(), || Waker::from(Arc::clone(self))));
        match looked {
            Ok(waits_no_more) => {
                unsettled.0 = None;
                if waits_no_more { self.spawn(request) } else { self.settle(request) }
            }
            Err(reason) => {
                // Whoever gets the answer finds the closure dropped.
                drop(request);
                self.end(Stage::Answered(Err(Error::GaveUp { reason, attempts: 0, last: None })));
                unsettled.0 = None;
            }
        }
    }

    fn spawn(self: &Arc<Self>, request: S) {
        if matches!(self.lock().stage, Stage::Over) {
            return;
        }
        let reply = Reply { submitted: Some(Arc::clone(self)) };
        let handle = self.runtime.spawn(Task { steps: Some(request.into_steps()), reply }).abort_handle();
        let mut state = self.lock();
        match state.stage {
            Stage::Visited { .. } => state.stage = Stage::Running(handle),
            // It may have been quick.
            Stage::InLine(_) | Stage::Running(_) | Stage::Answered(_) => {}
            Stage::Over => {
                drop(state);
                handle.abort();
            }
        }
    }
}

/// A request that was taken out. Dropped, as by others' code that panics meanwhile, it says that there is no answer.
struct Unsettled<'a, S, T, E>(Option<&'a Submitted<S, T, E>>);

impl<S, T, E> Drop for Unsettled<'_, S, T, E> {
    fn drop(&mut self) {
        if let Some(submitted) = self.0 {
            submitted.end(Stage::Over);
        }
    }
}

pin_project! {
    /// What the task of a request does.
    struct Task<R, S, T, E> {
        // Before `reply`: its place is given back before anybody learns that there is no answer.
        #[pin]
        steps: Option<R>,
        reply: Reply<S, T, E>,
    }
}

impl<R: Future<Output = Answer<T, E>>, S, T, E> Future for Task<R, S, T, E> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(steps) = this.steps.as_mut().as_pin_mut() else { return Poll::Ready(()) };
        let answer = ready!(steps.poll(context));
        // Whoever gets the answer finds what the closure had in its hands dropped.
        this.steps.set(None);
        if let Some(submitted) = this.reply.submitted.take() {
            submitted.end(Stage::Answered(answer));
        }
        Poll::Ready(())
    }
}

/// A task's way to its ticket. Dropped before it is used, as by a runtime that ends, it says that there is no answer.
struct Reply<S, T, E> {
    submitted: Option<Arc<Submitted<S, T, E>>>,
}

impl<S, T, E> Drop for Reply<S, T, E> {
    fn drop(&mut self) {
        if let Some(submitted) = self.submitted.take() {
            submitted.end(Stage::Over);
        }
    }
}

impl<S: Submit<T, E>, T: Send + 'static, E: Send + 'static> Wake for Submitted<S, T, E> {
    fn wake(self: Arc<Self>) {
        self.visit(false);
    }
}

impl<S: Submit<T, E>, T: Send + 'static, E: Send + 'static> Answers<T, E> for Submitted<S, T, E> {
    fn poll_answer(&self, context: &Context<'_>) -> Poll<Option<Answer<T, E>>> {
        let waiter = context.waker().clone();
        let (answer, _old) = {
            let mut state = self.lock();
            match &mut state.stage {
                Stage::InLine(_) | Stage::Visited { .. } | Stage::Running(_) => {
                    (Poll::Pending, state.waiter.replace(waiter))
                }
                Stage::Answered(_) | Stage::Over => {
                    let answer = match std::mem::replace(&mut state.stage, Stage::Over) {
                        Stage::Answered(answer) => Some(answer),
                        Stage::InLine(_) | Stage::Visited { .. } | Stage::Running(_) | Stage::Over => None,
                    };
                    (Poll::Ready(answer), Some(waiter))
                }
            }
        };
        answer
    }

    fn cancel(&self) {
        let (stage, _waiter) = {
            let mut state = self.lock();
            (std::mem::replace(&mut state.stage, Stage::Over), state.waiter.take())
        };
        match stage {
            // Leaving the line is what its drop does.
            Stage::InLine(request) => drop(request),
            Stage::Running(task) => task.abort(),
            Stage::Visited { .. } | Stage::Answered(_) | Stage::Over => {}
        }
    }

    fn detach(&self) {
        let _waiter = self.lock().waiter.take();
    }

    fn check(self: Arc<Self>) -> Checked {
        let nested = match &self.lock().stage {
            Stage::InLine(request) => !request.place().shared().ancestors().is_empty(),
            Stage::Visited { .. } => return Checked::Elsewhere,
            Stage::Running(_) | Stage::Answered(_) | Stage::Over => false,
        };
        if nested {
            self.visit(true);
            return Checked::Done;
        }
        Checked::NoNeed
    }
}
