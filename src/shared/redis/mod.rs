//! A store on Redis 7.0 or newer, or on Valkey.

#[cfg(test)]
mod drift_tests;
mod wire;

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisError, Script, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, timeout};

use super::names;
use super::store::{Ask, Ears, News, Pending, Reply, Store, StoreError, VersionedRules};
use crate::rules::CheckedShared;

/// Asks for a batch.
static ASK: LazyLock<Script> = LazyLock::new(|| Script::new(ASK_TEXT));
const ASK_TEXT: &str = concat!("#!lua flags=allow-oom\n", include_str!("said.lua"), include_str!("ask.lua"));
/// Keeps the rules of the highest version.
static RULES: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("rules.lua")));
/// Tells news and writes them down.
static TELL: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("tell.lua")));

/// How long a connection may take to come about, and how soon it is tried again.
const CONNECT: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(200);
/// How often the connection that hears is tried: one that was cut without a word stays silent for ever.
const PING: Duration = Duration::from_secs(2);
/// So many calls in a row that were given up, and the connection is made anew.
const SILENT: u32 = 4;
/// How many news may wait to be heard before one begins anew.
const KEPT: usize = 1_024;

/// Subjects, and what was said of each.
type Subjects = Vec<(String, String)>;

/// A store on a Redis or Valkey server.
///
/// It uses one connection to ask and one to hear, and comes back by itself, at most 200 ms after the server does. Scripts are
/// called by their hash, and loaded again when the server forgot them. Every name goes by itself when there is nothing more
/// to say of it. All names are in one slot of a cluster, but the client is that of one server: give it the address of the
/// node that has the slot, or of a proxy that finds it. There is no TLS.
///
/// The server should keep what it is given: with an eviction policy, or without persistence over a restart, limits begin
/// anew with what the processes remember.
///
/// ```no_run
/// use request_balancer::shared::Redis;
/// use request_balancer::{Balancer, Rules};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules: Rules = "
///     overall = { limit = '30/1s', shared = true }
///     [shared]
///     url = 'redis://127.0.0.1:6379'
/// "
/// .parse()?;
/// let store = Redis::connect(rules.shared())?;
/// let balancer = Balancer::builder(rules).shared(store).build();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redis {
    client: Client,
    line: Arc<Mutex<Option<Line>>>,
    clock: Arc<str>,
    said: Arc<str>,
    rules: Arc<str>,
    channel: Arc<str>,
}

impl Redis {
    /// The store at the address that the rules name; the connection comes about when it is first needed.
    ///
    /// # Errors
    ///
    /// [`StoreError::Address`] if the rules name none, or one that makes no sense.
    pub fn connect(shared: &CheckedShared) -> Result<Self, StoreError> {
        let url = shared.url().unwrap_or_default();
        let client =
            Client::open(url).map_err(|error| StoreError::Address { found: url.to_owned(), why: error.to_string() })?;
        let name = |what| names::of(shared.prefix(), what).into();
        Ok(Self {
            client,
            line: Arc::default(),
            clock: name("clock"),
            said: name("said"),
            rules: name("rules"),
            channel: name("news"),
        })
    }

    /// The connection that asks: another one if this one says nothing any more. And a call on it.
    fn connection(&self) -> Result<(ConnectionManager, Call<'_>), StoreError> {
        let connect = || {
            let config = ConnectionManagerConfig::new()
                .set_connection_timeout(Some(CONNECT))
                .set_response_timeout(Some(CONNECT))
                .set_min_delay(Duration::from_millis(20))
                .set_max_delay(AGAIN);
            ConnectionManager::new_lazy_with_config(self.client.clone(), config).map_err(away)
        };
        let mut line = self.line();
        if line.as_ref().is_some_and(Line::is_silent) {
            *line = None;
        }
        let connection = match &*line {
            Some(line) => line.connection.clone(),
            None => {
                let connection = connect()?;
                *line = Some(Line { connection: connection.clone(), unanswered: 0, heard: Instant::now() });
                connection
            }
        };
        Ok((connection, Call { store: self, is_answered: false }))
    }

    fn line(&self) -> MutexGuard<'_, Option<Line>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection that asks.
struct Line {
    connection: ConnectionManager,
    /// Calls that were given up before an answer came, since the last answer.
    unanswered: u32,
    /// When that was, or when the connection was begun.
    heard: Instant,
}

impl Line {
    /// Whether it says nothing any more. One that is slow, or coming about, says something after a while.
    fn is_silent(&self) -> bool {
        self.unanswered >= SILENT && self.heard.elapsed() >= CONNECT * 2
    }
}

/// A call that may be given up before an answer comes.
struct Call<'a> {
    store: &'a Redis,
    is_answered: bool,
}

impl Call<'_> {
    /// There was an answer, if only an error.
    fn end(mut self) {
        self.is_answered = true;
        if let Some(line) = &mut *self.store.line() {
            (line.unanswered, line.heard) = (0, Instant::now());
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(line) = self.store.line().as_mut().filter(|_| !self.is_answered) {
            line.unanswered = line.unanswered.saturating_add(1);
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the address: it may have a password in it.
        f.debug_struct("Redis").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Store for Redis {
    fn ask(&self, ask: Ask) -> Pending<'_, Reply> {
        Box::pin(async move {
            let (mut connection, under_way) = self.connection()?;
            let mut call = ASK.prepare_invoke();
            call.key(&*self.clock);
            for limit in &ask.limits {
                call.key(&*limit.name);
            }
            for word in wire::words(&ask, &self.channel) {
                call.arg(word);
            }
            let answer: Result<(i64, Vec<i64>, Vec<i64>), RedisError> = call.invoke_async(&mut connection).await;
            under_way.end();
            wire::reply(&ask, &answer.map_err(away)?)
        })
    }

    fn tell(&self, process: u64, news: News) -> Pending<'_, u64> {
        Box::pin(async move {
            // The script that answers questions tells the rest.
            let Some(telling) = wire::Telling::of(&news) else { return Ok(0) };
            let (mut connection, under_way) = self.connection()?;
            let mut call = TELL.prepare_invoke();
            call.key(&*self.said).arg(telling.subject).arg(telling.word).arg(telling.lasts).arg(telling.rest);
            call.arg(&*self.channel).arg(process);
            let answer = call.invoke_async::<u64>(&mut connection).await;
            under_way.end();
            answer.map_err(away)
        })
    }

    fn keep_rules(&self, process: u64, rules: VersionedRules, lasts: Duration) -> Pending<'_, VersionedRules> {
        Box::pin(async move {
            let (mut connection, under_way) = self.connection()?;
            let mut call = RULES.prepare_invoke();
            let micros = u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX);
            call.key(&*self.rules).arg(rules.version).arg(&*rules.text).arg(micros).arg(&*self.channel).arg(process);
            let answer: Result<(u64, String), RedisError> = call.invoke_async(&mut connection).await;
            under_way.end();
            let (version, text) = answer.map_err(away)?;
            Ok(VersionedRules { version, text: text.into() })
        })
    }

    fn hear(&self, process: u64) -> Pending<'_, Ears> {
        Box::pin(async move {
            let mut ears = self.client.get_async_pubsub().await.map_err(away)?;
            ears.subscribe(&*self.channel).await.map_err(away)?;
            // What is told from now on is heard: what was told before is read after that.
            let (mut connection, under_way) = self.connection()?;
            let mut all = redis::pipe();
            all.cmd("TIME").cmd("HGETALL").arg(&*self.said);
            let answer = all.query_async::<((u64, u64), Subjects)>(&mut connection).await;
            under_way.end();
            let (now, all) = answer.map_err(away)?;
            let now = now.0.saturating_mul(1_000_000).saturating_add(now.1);
            let (sender, heard) = mpsc::channel(KEPT + all.len());
            for heard in all.iter().filter_map(|(subject, said)| wire::said(subject, said, process, now)) {
                let _ = sender.try_send(heard);
            }
            tokio::spawn(async move {
                let (mut line, mut messages) = ears.split();
                let mut pings = interval(PING);
                loop {
                    let message = tokio::select! {
                        message = messages.next() => message,
                        () = sender.closed() => return,
                        _ = pings.tick() => match timeout(CONNECT, line.ping::<Value>()).await {
                            Ok(Ok(_)) => continue,
                            Ok(Err(_)) | Err(_) => return,
                        },
                    };
                    let Some(message) = message else { return };
                    let Ok(text) = message.get_payload::<String>() else { continue };
                    // Who is too far behind begins anew.
                    if let Some(news) = wire::heard(&text, process)
                        && sender.try_send(news).is_err()
                    {
                        return;
                    }
                }
            });
            Ok(heard)
        })
    }
}

fn away(error: RedisError) -> StoreError {
    StoreError::Away(error.to_string())
}
