//! The one who writes: does what everybody asks for, as many jobs in one transaction as came in during the last one.

use std::marker::PhantomData;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use super::books::{Books, Job, Then};
use super::draft::Draft;
use super::store::StoreError;
use super::view::View;

/// How many jobs there are in one transaction at most.
const JOBS: usize = 256;

/// Hands jobs to the writer. Once the last one is gone, the writer ends and lets go of the store.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    jobs: mpsc::UnboundedSender<Job>,
}

impl Desk {
    /// Begins to write, on threads of the current runtime that may block.
    ///
    /// There is at most one transaction at a time. While it lasts, a paused clock stands still.
    pub(super) fn open(books: Books, runtime: &Handle) -> Self {
        let (sender, mut jobs) = mpsc::unbounded_channel();
        runtime.spawn(async move {
            let mut books = Some(books);
            let mut batch = Vec::with_capacity(JOBS);
            while jobs.recv_many(&mut batch, JOBS).await > 0 {
                let Some(mut open) = books.take() else { return };
                let batch = std::mem::replace(&mut batch, Vec::with_capacity(JOBS));
                let done = spawn_blocking(move || {
                    open.run(batch);
                    open
                });
                // A panic of the store, or the end of the runtime: whoever waits for an answer is told that it is closed.
                let Ok(open) = done.await else { return };
                books = Some(open);
            }
            // Some stores take their time to close.
            let _ = spawn_blocking(move || drop(books)).await;
        });
        Self { jobs: sender }
    }

    /// Changes something; resolves when that is durable.
    pub(super) async fn write<R: Send + 'static>(
        &self,
        draft: impl FnOnce(&mut Draft<'_>) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let (sender, answer) = oneshot::channel();
        self.post(draft, move |made| drop(sender.send(made)));
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Changes something; `then` is told what became of it, in the order in which all that was written became durable. Where
    /// nobody writes any more it is told so.
    pub(super) fn post<R: Send + 'static>(
        &self,
        draft: impl FnOnce(&mut Draft<'_>) -> Result<R, StoreError> + Send + 'static,
        then: impl FnOnce(Result<R, StoreError>) + Send + 'static,
    ) {
        let then = Told::new(then);
        let work = Box::new(move |page: Option<&mut Draft<'_>>| -> Then {
            let drafted = page.map_or(Err(StoreError::Closed), |page| page.job(draft));
            Box::new(move |made| then.tell(made.and(drafted)))
        });
        let _ = self.jobs.send(Job::Write(work));
    }

    /// Reads something.
    pub(super) async fn read<R: Send + 'static>(
        &self,
        read: impl FnOnce(&View<'_>) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let (sender, answer) = oneshot::channel();
        self.look(read, move |seen| drop(sender.send(seen)));
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Reads something; `then` is told.
    pub(super) fn look<R: Send + 'static>(
        &self,
        read: impl FnOnce(&View<'_>) -> Result<R, StoreError> + Send + 'static,
        then: impl FnOnce(Result<R, StoreError>) + Send + 'static,
    ) {
        let then = Told::new(then);
        let _ = self.jobs.send(Job::Read(Box::new(move |store| then.tell(store.and_then(read)))));
    }

    /// Does what was asked for so far, and then nothing any more.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let (sender, answer) = oneshot::channel();
        let _ = self.jobs.send(Job::Close(Box::new(move |closed| drop(sender.send(closed)))));
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// Who is told what became of a job; if nobody does it, that the outbox is closed.
struct Told<R, F: FnOnce(Result<R, StoreError>)> {
    then: Option<F>,
    told: PhantomData<fn(R)>,
}

impl<R, F: FnOnce(Result<R, StoreError>)> Told<R, F> {
    const fn new(then: F) -> Self {
        Self { then: Some(then), told: PhantomData }
    }

    fn tell(mut self, became: Result<R, StoreError>) {
        if let Some(then) = self.then.take() {
            then(became);
        }
    }
}

impl<R, F: FnOnce(Result<R, StoreError>)> Drop for Told<R, F> {
    fn drop(&mut self) {
        if let Some(then) = self.then.take() {
            then(Err(StoreError::Closed));
        }
    }
}
