//! Budgets that many processes share (feature `shared`; on Redis or Valkey with the feature `redis`).
//!
//! A limit that the rules mark with `shared = true` is kept in a [`Store`]: all processes that ask the same store under the
//! same prefix keep to it together. Everything that is not marked stays in the process. [`MemoryStore`] is a store inside
//! one process, for tests; `Redis` is one for many (feature `redis`).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use request_balancer::shared::MemoryStore;
//! use request_balancer::{Balancer, Failure, Rules};
//!
//! let rules: Rules = "overall = { limit = '2/1s', shared = true }".parse()?;
//! let store = MemoryStore::new();
//! let one = Balancer::builder(rules.clone()).shared(store.clone()).build();
//! let other = Balancer::builder(rules).shared(store).build();
//! let begin = tokio::time::Instant::now();
//! for balancer in [&one, &other, &one] {
//!     balancer.run("default", 1, async |_| Ok::<_, Failure<()>>(())).await.unwrap();
//! }
//! // The third had to wait for the first one's second to be over, whoever started that.
//! assert!(begin.elapsed() >= Duration::from_secs(1));
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//!
//! - **Exact.** In every window, spacing and bucket of the store's time no more start than the limit has room for, over all processes. A start
//!   may be later than the store counts it, by the way of the answer and the wait for the executor; the store counts it as
//!   of the last moment at which it may happen, and what missed that moment asks again. What was given and not used counts
//!   as spent.
//! - **The store's clock counts**, never a client's.
//! - **By demand.** One question is on its way per process at a time. It asks for everything that is ready, in the order of
//!   lanes and turns, and nothing is kept in stock.
//! - **A 429 stops all.** A hold that an attempt or [`Balancer::hold`](crate::Balancer::hold) brings about is told to all
//!   processes at once, if a shared limit binds the rule; so is its end by [`Balancer::release`](crate::Balancer::release).
//! - **An endpoint that fails rests everywhere.** Where any limit is shared, a breaker that opens or closes in one process
//!   does so in all, for the endpoint of that name. Each process probes it then by itself; the first one whose probes succeed
//!   closes it for all. Of two processes that say different things at once, the one that the store heard last counts.
//! - **What an API's server says holds for all.** "3 left, for 20 s" in a response to one process lets all of them together
//!   start 3 more of that window or bucket for 20 s, less what the store gave after the request that was answered. It is told
//!   with the next question; at once, so that it holds a way later, if it leaves less than half of what the store would give.
//! - **One version of the rules.** With `[shared] version = N` the rules of the highest version that any process has are in
//!   force in all of them, as by [`replace_rules`](crate::Balancer::replace_rules): [`Event::RulesTaken`](crate::Event::RulesTaken).
//! - **Slots are leases.** A process that dies gives its concurrency slots back when the lease is over. Who gives one back
//!   while other processes wait lets the one that has waited longest go first, for 25 ms at least.
//!
//! # What is not there
//!
//! Rules without a version are each process's own. The `prefix`, the `lease` and the address stay those that a balancer was
//! built with, whatever rules it goes over to. There is no client for a cluster: `Redis` speaks with one server, the node that has the slot of all names of a prefix, or
//! a proxy; one that sends to another node counts as away. A key that becomes an alias leaves what the store counted under
//! its old name behind.
//!
//! Of what servers say: a start that the store gave before the answered one is taken for counted, though on another way it may
//! come to the server later; the next response puts that right. After the reset the store goes by its own count again, for
//! what a server does beyond that each process goes by what it heard itself. Of one limit four windows of servers are kept.
//! Caps and spacing are not narrowed, and an attempt that started without the store tells it nothing.
//!
//! A start that was let go and is not yet under way when its limit becomes shared is not told. A breaker that is opened for no
//! time at all is probed at once by its own process and is no news to the others. Disabling an endpoint is not told.
//!
//! # What is per process
//!
//! Lines, lanes and fairness. Each process asks for its own most urgent requests first, but the store does not compare
//! those of different processes: whoever asks first is given first. A lane of low priority in one process may get room
//! that a lane of high priority in another one would have liked to have. Where that matters, cap the lane:
//! `[lanes.2] overall = { limit = "10/1s", shared = true }` leaves the rest to the others everywhere.
//!
//! # When the store is away
//!
//! After three calls without an answer within 100 ms each, a process does what `on_outage` says
//! ([`OnOutage`](crate::OnOutage)); what waits keeps its place. With `local-share` it keeps to the count divided by
//! `processes`, and its own starts before the outage count; what others started just before it is not known to it. When the
//! store is back, each process tells it what was started meanwhile, up to a thousand limits or some 4,000 starts with each
//! question, and keeps to its part for 2 s, in which all the others tell theirs. So does one that asked for nothing
//! meanwhile and only lost the connection on which it hears news, from then on until 2 s after it has one again; no event
//! says so. One that never went to the store before knows of no outage.
//!
//! A limit with a smaller count than there are processes has no part: alone, nothing starts that it binds.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::rules::Rules;
use crate::runtime::Builder;
use crate::runtime::afar::{Afar, Afield};

mod driver;
#[cfg(test)]
mod engine_tests;
mod guarded;
mod ledger;
mod memory;
mod names;
mod news;
mod store;
mod subject;
mod tally;
mod versions;

#[cfg(feature = "redis")]
mod redis;

use self::driver::Link;
pub use self::memory::MemoryStore;
#[cfg(feature = "redis")]
pub use self::redis::Redis;
pub use self::store::{
    Ask, AskedLimit, Ears, Heard, HeldPart, Known, LimitReply, News, Pending, Reply, Store, StoreError, VersionedRules,
};

impl Builder {
    /// Keeps the limits that the rules mark as shared in a store, together with all other processes that do. Default: each
    /// balancer keeps them for itself.
    ///
    /// Its tasks run on each runtime on which a request waits, and end within a second of the last handle, or of the end of
    /// [`Balancer::close`](crate::Balancer::close).
    pub fn shared(mut self, store: impl Store) -> Self {
        self.afar = Some(Arc::new(Kept(Arc::new(store))));
        self
    }
}

/// A store that balancers are to use, each as a process of its own.
#[derive(Debug)]
struct Kept(Arc<dyn Store>);

impl Afield for Kept {
    fn afar(&self, rules: &Rules) -> Arc<dyn Afar> {
        let process = RandomState::new().hash_one("process") >> 12;
        Arc::new(Arc::new(Link::new(Arc::clone(&self.0), rules.shared().clone(), process)))
    }
}
