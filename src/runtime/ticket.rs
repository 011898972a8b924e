//! A request that takes its place in line now and is run by a task of its own once it starts.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::explain::{Explainable, Explanation};
use super::place::Place;
use super::run::Steps;
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
    answer: oneshot::Receiver<Result<T, Error<E>>>,
    submitted: Option<Arc<dyn Cancel>>,
    request: Explainable,
}

/// Enters the line with a request that is to run in a task on the current runtime.
pub(super) fn submit<S, T, E>(mut steps: S) -> Result<Ticket<T, E>, Refused>
where
    S: Submit<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    let runtime = Handle::try_current().map_err(|_| Refused::NoRuntime)?;
    if !steps.place().shared().start_driver(&runtime) {
        return Err(Refused::NoRuntime);
    }
    let (sender, answer) = oneshot::channel();
    let submitted = Arc::new(Submitted { runtime, stage: Mutex::new(Stage::Visited { woken: false }) });
    steps.place_mut().enter_in_line(Waker::from(Arc::clone(&submitted)))?;
    let request = explainable(steps.place());
    submitted.settle(Box::new(steps), sender);
    Ok(Ticket { answer, submitted: Some(submitted), request })
}

/// Waits for room in line and then enters it with a request that is to run in a task on the current runtime.
pub(super) async fn submit_wait<S, T, E>(mut steps: S) -> Result<Ticket<T, E>, Refused>
where
    S: Submit<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    let runtime = Handle::try_current().map_err(|_| Refused::NoRuntime)?;
    poll_fn(|context| steps.place_mut().poll_room(context)).await?;
    let request = explainable(steps.place());
    let (sender, answer) = oneshot::channel();
    let submitted =
        Arc::new(Submitted { runtime, stage: Mutex::new(Stage::InLine { steps: Box::new(steps), sender }) });
    // It may have been granted meanwhile; else the machine gets its waker.
    submitted.visit(false);
    Ok(Ticket { answer, submitted: Some(submitted), request })
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
pub(super) trait Submit<T, E>: Future<Output = Result<T, Error<E>>> + Send + 'static {
    fn place(&self) -> &Place<Arc<Shared>>;

    fn place_mut(&mut self) -> &mut Place<Arc<Shared>>;
}

impl<F, Fut, T, E, J> Submit<T, E> for Steps<Arc<Shared>, F, Fut, E, J>
where
    Self: Future<Output = Result<T, Error<E>>> + Send + 'static,
{
    fn place(&self) -> &Place<Arc<Shared>> {
        &self.place
    }

    fn place_mut(&mut self) -> &mut Place<Arc<Shared>> {
        &mut self.place
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
        self.submitted = None;
    }
}

impl<T, E> Future for Ticket<T, E> {
    type Output = Result<T, Error<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match Pin::new(&mut self.answer).poll(context) {
            Poll::Pending if self.submitted.as_ref().is_some_and(|submitted| Arc::clone(submitted).check()) => {
                Pin::new(&mut self.answer).poll(context)
            }
            answer => answer,
        };
        let answer = ready!(answer);
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
trait Cancel: Send + Sync {
    /// Withdraws it or aborts its task.
    fn cancel(&self);

    /// Takes a look at it on behalf of the attempt that is being polled on this thread and waits for its answer.
    /// Returns whether there was an attempt.
    fn check(self: Arc<Self>) -> bool;
}

/// A request between its submission and the start of its task: its own waker while it stands in line.
struct Submitted<S, T, E> {
    runtime: Handle,
    /// Never locked while the machine is called: that may wake this very request.
    stage: Mutex<Stage<S, T, E>>,
}

enum Stage<S, T, E> {
    InLine {
        steps: Box<S>,
        sender: Sender<T, E>,
    },
    /// Somebody has taken it out to look after it.
    Visited {
        woken: bool,
    },
    Running(AbortHandle),
    Over,
}

type Sender<T, E> = oneshot::Sender<Result<T, Error<E>>>;

impl<S: Submit<T, E>, T: Send + 'static, E: Send + 'static> Submitted<S, T, E> {
    /// Puts it back where it was taken from, unless its ticket was dropped meanwhile; looks after it if it was woken
    /// meanwhile.
    fn settle(self: &Arc<Self>, steps: Box<S>, sender: Sender<T, E>) {
        let in_line = Stage::InLine { steps, sender };
        let woken = {
            let mut stage = self.lock();
            match *stage {
                Stage::Visited { woken } => {
                    *stage = in_line;
                    woken
                }
                Stage::InLine { .. } | Stage::Running(_) | Stage::Over => return,
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
            let mut stage = self.lock();
            match &mut *stage {
                Stage::InLine { .. } => std::mem::replace(&mut *stage, Stage::Visited { woken: false }),
                Stage::Visited { woken } => {
                    *woken = true;
                    return;
                }
                Stage::Running(_) | Stage::Over => return,
            }
        };
        let Stage::InLine { mut steps, sender } = in_line else { return };
        let place = steps.place_mut();
        let checked = if nested { place.check_nesting() } else { Ok(()) };
        let looked = checked.and_then(|()| place.look(self.runtime.id(), || Waker::from(Arc::clone(self))));
        match looked {
            Ok(false) => self.settle(steps, sender),
            Ok(true) => self.spawn(steps, sender),
            Err(reason) => {
                self.leave(Stage::Over);
                // Nobody waits for the answer of a detached request.
                let _ = sender.send(Err(Error::GaveUp { reason, attempts: 0, last: None }));
            }
        }
    }

    fn spawn(&self, steps: Box<S>, sender: Sender<T, E>) {
        if matches!(*self.lock(), Stage::Over) {
            return;
        }
        let task = self.runtime.spawn(async move {
            let answer = Box::into_pin(steps).await;
            let _ = sender.send(answer);
        });
        let handle = task.abort_handle();
        let mut stage = self.lock();
        if matches!(*stage, Stage::Over) {
            drop(stage);
            handle.abort();
        } else {
            *stage = Stage::Running(handle);
        }
    }

    fn leave(&self, next: Stage<S, T, E>) -> Stage<S, T, E> {
        std::mem::replace(&mut *self.lock(), next)
    }

    fn lock(&self) -> MutexGuard<'_, Stage<S, T, E>> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Submit<T, E>, T: Send + 'static, E: Send + 'static> Wake for Submitted<S, T, E> {
    fn wake(self: Arc<Self>) {
        self.visit(false);
    }
}

impl<S: Submit<T, E>, T: Send + 'static, E: Send + 'static> Cancel for Submitted<S, T, E> {
    fn cancel(&self) {
        match self.leave(Stage::Over) {
            // Leaving the line is what its drop does.
            Stage::InLine { steps, .. } => drop(steps),
            Stage::Running(task) => task.abort(),
            Stage::Visited { .. } | Stage::Over => {}
        }
    }

    fn check(self: Arc<Self>) -> bool {
        let nested = match &*self.lock() {
            Stage::InLine { steps, .. } => !steps.place().shared().ancestors().is_empty(),
            Stage::Visited { .. } | Stage::Running(_) | Stage::Over => false,
        };
        if nested {
            self.visit(true);
        }
        nested
    }
}
