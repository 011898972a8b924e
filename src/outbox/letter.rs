//! One message on its way: from the line through its attempts to where it stays.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::clock::Clock;
use super::draft::Stored;
use super::ending::refused;
use super::error::Error;
use super::event::{Announcer, OutboxEvent};
use super::hold;
use super::line::{Pause, Turn};
use super::message::Envelope;
use super::note::Note;
use super::record::{Counts, MessageId, Progress, Queue};
use super::stuck::{Outlook, outlook};
use super::writer::Desk;
use crate::engine::{Nanos, RetryPolicy};
use crate::error::{Failure, Outcome};
use crate::rules::Retry;
use crate::runtime::{Attempt, Balancer, Explainable, Failed, Past, Witness};

/// How long everybody waits for a store that failed.
pub(super) const REST: Duration = Duration::from_secs(1);

/// How long a queue waits that the balancer refuses without saying for how long.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What became of a message that was put.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery<T> {
    /// It was sent, and this is what the handler returned.
    Sent(T),
    /// It is stored and will be sent.
    Queued(MessageId),
}

pub(super) type Reply<T, E> = oneshot::Sender<Result<Delivery<T>, Error<E>>>;

/// Why the handler's future did not return a value.
#[derive(Debug)]
pub(super) enum Undelivered<E> {
    Own(E),
    /// What is stored is no such message.
    Unreadable(String),
}

impl<E: fmt::Display> fmt::Display for Undelivered<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(error) => error.fmt(f),
            Self::Unreadable(error) => write!(f, "no message can be read from what is stored: {error}"),
        }
    }
}

pub(super) type Sending<T, E> = Pin<Box<dyn Future<Output = Outcome<T, Undelivered<E>>> + Send>>;

/// What all messages on their way share.
pub(super) struct Office<T, E> {
    pub(super) desk: Desk,
    pub(super) inbox: mpsc::UnboundedSender<Note<T, E>>,
    pub(super) balancer: Balancer,
    pub(super) clock: Clock,
    pub(super) events: Announcer,
    pub(super) send: Box<dyn Fn(Envelope) -> Sending<T, E> + Send + Sync>,
    /// Writes down what the handler returned.
    pub(super) keep: fn(&T) -> Vec<u8>,
    pub(super) retry: Retry,
    /// How long names are remembered.
    pub(super) retention: Duration,
    pub(super) counts: Arc<Mutex<Counts>>,
    /// No other attempt is to follow those that run. Set before anything is taken out of the line.
    pub(super) halted: AtomicBool,
}

impl<T, E> Office<T, E> {
    pub(super) fn counts(&self) -> Counts {
        *lock(&self.counts)
    }
}

/// A message on its way.
pub(super) struct Letter<T, E> {
    pub(super) stored: Stored,
    pub(super) queue: Queue,
    pub(super) office: Arc<Office<T, E>>,
    pub(super) turn: Arc<Turn>,
    terms: Mutex<Terms>,
    pub(super) state: Mutex<State<T, E>>,
}

/// What its rule says, once it is in line.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    pub(super) policy: RetryPolicy,
    pub(super) ordered: bool,
}

pub(super) struct State<T, E> {
    pub(super) progress: Progress,
    pub(super) phase: Phase,
    /// As the balancer knows it, once it is in line.
    pub(super) request: Option<Explainable>,
    /// How the running attempt failed, or the last one.
    pub(super) fault: Option<Fault>,
    /// That of the running attempt, or of the last one.
    endpoint: Option<Arc<str>>,
    /// Who waits for it; until it turns out that it isn't sent at once.
    pub(super) reply: Option<Reply<T, E>>,
}

/// How an attempt failed, as far as it matters to what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Failed,
    /// It was told to wait for so long, if that was said.
    Wait(Option<Duration>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It stands in line.
    InLine,
    /// It waits: an attempt failed.
    Waiting,
    Running,
    /// It was taken out of the line, or is about to be as nothing more is to start.
    Withdrawn,
}

/// Where a message is after its time in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was sent.
    Sent,
    /// It is dead, lost, or its caller was told.
    Dead,
    /// Stored, to be tried again. The queue pauses for so long.
    Again {
        pause: Pause,
        span: Duration,
        /// Those behind it are not to be sent before it.
        in_order: bool,
    },
    /// Stored for later, out of the line.
    Parked,
    /// Stored; nothing starts any more.
    Stopped,
}

impl End {
    pub(super) const fn again(pause: Pause, span: Duration) -> Self {
        Self::Again { pause, span, in_order: true }
    }
}

impl<T: Send + 'static, E: fmt::Display + Send + 'static> Letter<T, E> {
    pub(super) fn new(
        office: Arc<Office<T, E>>,
        queue: Queue,
        stored: Stored,
        turn: Arc<Turn>,
        reply: Option<Reply<T, E>>,
    ) -> Arc<Self> {
        let state = State {
            progress: stored.progress,
            phase: Phase::InLine,
            request: None,
            fault: None,
            endpoint: None,
            reply,
        };
        Arc::new(Self { stored, queue, office, turn, terms: Mutex::default(), state: Mutex::new(state) })
    }

    /// Enters the line; then it goes through its attempts, and is stored or erased. Where it is not let in, it is stored.
    pub(super) fn enter(self: &Arc<Self>) -> Result<impl Future<Output = End> + Send + use<T, E>, End> {
        let record = &self.stored.record;
        let Progress { starts, spent, not_before, .. } = self.stored.progress;
        let past = Past { starts, spent, witness: Arc::clone(self) as Arc<dyn Witness> };
        let mut request =
            self.office.balancer.request(&record.rule, record.key.clone()).resume(past, &self.office.retry);
        if let Some((policy, ordered)) = request.own_terms() {
            *lock(&self.terms) = Terms { policy, ordered };
        }
        let rest = self.office.clock.until(not_before);
        if !rest.is_zero() {
            lock(&self.state).phase = Phase::Waiting;
            request = request.not_before(rest);
        }
        let letter = Arc::clone(self);
        let ticket = request.submit(move |attempt| Arc::clone(&letter).attempt(attempt));
        let letter = Arc::clone(self);
        match ticket {
            Ok(ticket) => {
                lock(&self.state).request = Some(ticket.explainable());
                if !ticket.need_not_wait() {
                    self.queued();
                }
                Ok(async move { letter.settle(ticket.await).await })
            }
            Err(reason) => {
                self.queued();
                Err(refused(&reason))
            }
        }
    }

    /// Takes it out of the line, unless an attempt runs. Returns whether it is out.
    pub(super) fn withdraw(&self) -> bool {
        let mut state = lock(&self.state);
        match state.phase {
            Phase::Running => false,
            Phase::InLine | Phase::Waiting | Phase::Withdrawn => {
                state.phase = Phase::Withdrawn;
                true
            }
        }
    }

    /// When it may be tried again, as far as it knows.
    pub(super) fn due(&self) -> u64 {
        lock(&self.state).progress.not_before
    }

    /// What becomes of it as far as the balancer knows.
    pub(super) fn outlook(&self) -> Outlook {
        let request = lock(&self.state).request.clone();
        let obstacles = request.and_then(|request| request.obstacles());
        obstacles.map_or(Outlook::Starts, |(explained, now)| outlook(&explained, now))
    }

    pub(super) fn phase(&self) -> Phase {
        lock(&self.state).phase
    }

    /// Whoever waits for it waits no more: it will be sent later.
    pub(super) fn queued(&self) {
        let reply = lock(&self.state).reply.take();
        answer(reply, Ok(Delivery::Queued(self.stored.record.id)));
    }

    async fn attempt(self: Arc<Self>, attempt: Attempt) -> Outcome<T, Undelivered<E>> {
        let began = self.office.clock.now();
        if self.terms().ordered {
            // The one before it may be about to come again.
            self.turn.begin(self.stored.place).await;
        }
        let Some(progress) = self.begin(&attempt) else {
            // Its task is being aborted. A failure would hold others, and cost it what is stored for its next start.
            return pending().await;
        };
        let stored = self.stored.clone();
        let endpoint = lock(&self.state).endpoint.clone();
        let written = self.office.desk.write(move |draft| {
            draft.note(&stored, &progress);
            Ok(draft.release_before(began, &stored.record, endpoint.as_ref()))
        });
        match written.await {
            Ok(Ok(())) => {}
            // A hold that stays in the store though it was ended is looked at again when the next attempt begins.
            Ok(Err(error)) => self.office.events.tell(OutboxEvent::StoreFailed { error }),
            Err(error) => {
                // Sent without a trace it might be sent again as if it had never been.
                self.office.events.tell(OutboxEvent::StoreFailed { error });
                lock(&self.state).progress.in_flight = false;
                return Err(Failure::retry(Some(REST)).hold(crate::engine::Scope::Request));
            }
        }
        let maybe_delivered = progress.maybe_delivered;
        let (record, birth) = (Arc::clone(&self.stored.record), self.office.counts().birth);
        let outcome = (self.office.send)(Envelope { record, attempt, maybe_delivered, birth }).await;
        self.judge(outcome)
    }

    /// An attempt begins: what is to be written before it; `None` if it must not.
    fn begin(&self, attempt: &Attempt) -> Option<Progress> {
        let mut state = lock(&self.state);
        if state.phase == Phase::Withdrawn {
            return None;
        }
        state.phase = Phase::Running;
        state.fault = None;
        state.endpoint = attempt.endpoint().map(|endpoint| endpoint.name().into());
        let progress = &mut state.progress;
        progress.starts = attempt.number();
        // Nobody has said how the one before ended.
        progress.maybe_delivered |= progress.in_flight;
        progress.in_flight = true;
        progress.not_before = 0;
        Some(*progress)
    }

    fn judge(&self, outcome: Outcome<T, Undelivered<E>>) -> Outcome<T, Undelivered<E>> {
        let failure = match outcome {
            Ok(value) => {
                self.turn.end(self.stored.place);
                return Ok(value);
            }
            Err(failure) => failure,
        };
        let policy = self.terms().policy;
        let mut state = lock(&self.state);
        let progress = &mut state.progress;
        progress.in_flight = false;
        progress.maybe_delivered |= failure.is_ambiguous();
        let failure = if failure.unreachable {
            progress.outages = progress.outages.saturating_add(1);
            let step = policy.delay(progress.outages, self.stored.record.id.0);
            failure.into_wait(step.into())
        } else {
            progress.outages = 0;
            failure
        };
        state.fault = Some(failure.wait().map_or(Fault::Failed, Fault::Wait));
        Err(failure)
    }

    pub(super) fn terms(&self) -> Terms {
        lock(&self.terms).clone()
    }
}

impl<T: Send + 'static, E: fmt::Display + Send + 'static> Witness for Letter<T, E> {
    fn failed(&self, Failed { starts, spent, wait, scope }: Failed) {
        let now = self.office.clock.now();
        let until = now.saturating_add(wait.get());
        let (progress, endpoint) = {
            let mut state = lock(&self.state);
            if state.phase == Phase::Withdrawn {
                return;
            }
            // What waits for its next start belongs to the store then, even if it would not have to wait at all.
            let halted = self.office.halted.load(Ordering::SeqCst);
            state.phase = if halted { Phase::Withdrawn } else { Phase::Waiting };
            let progress = &mut state.progress;
            (progress.starts, progress.spent) = (starts, spent);
            progress.not_before = if wait > Nanos::ZERO { until } else { 0 };
            (*progress, state.endpoint.clone())
        };
        let stored = self.stored.clone();
        let record = &stored.record;
        let held = scope.filter(|_| wait > Nanos::ZERO);
        let target = held.and_then(|scope| hold::write(scope, &record.rule, &record.key, endpoint.as_ref()));
        // If it fails nothing is lost but the memory of this failure.
        self.office.desk.post(
            move |draft| {
                draft.note(&stored, &progress);
                target.map_or(Ok(()), |target| draft.hold(target, until, now))
            },
            |_| (),
        );
        self.queued();
        let _ = self.office.inbox.send(Note::Waits { queue: self.queue.clone(), place: self.stored.place });
    }
}

pub(super) fn answer<T, E>(reply: Option<Reply<T, E>>, delivery: Result<Delivery<T>, Error<E>>) {
    if let Some(reply) = reply {
        // Whoever asked may have gone away.
        let _ = reply.send(delivery);
    }
}

pub(super) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
