//! What a rules file does before it is used: calls that come, wait and start in virtual time (feature `sim`).
//!
//! A [`Scenario`] says who calls when, what the network does and what the server really allows. It is run under the rules
//! by this crate's engine, the same that [`Balancer`](crate::Balancer) runs on, or by another [`Policy`]; each run gives
//! one [`Measure`] for everything that the scenario shows: measured, optimum, bound, and whether it is kept. Everything is
//! whole numbers and drawn from seeds, so a run is the same on every machine.
//!
//! ```
//! use request_balancer::sim::{Policy, Scenario};
//!
//! let scenario: Scenario = r#"
//!     title = "news for 600, and a chat"
//!     rules = '''
//!     overall = "30/1s"
//!     per_key = "1/1s"
//!     [rules]
//!     chat = {}
//!     news = { priority = 2 }
//!     '''
//!
//!     [[traffic]]
//!     rule = "news"
//!     keys = 600
//!     calls = 600
//!
//!     [[traffic]]
//!     rule = "chat"
//!     first_key = 600
//!     start = "5s"
//!     calls = 1
//!
//!     [[show]]
//!     metric = "wait"
//!     stat = "max"
//!     of = "chat"
//!     at_most = "34ms"
//! "#
//! .parse()?;
//! let [wait] = &scenario.run(Policy::Balancer)[..] else { panic!("one line is shown") };
//! assert_eq!((wait.metric.as_str(), wait.met()), ("max wait of chat", Some(true)));
//! let [wait] = &scenario.run(Policy::Fifo)[..] else { panic!("one line is shown") };
//! assert_eq!((wait.measured.map(|value| value.to_string()).as_deref(), wait.met()), (Some("15.000 s"), Some(false)));
//! # Ok::<(), request_balancer::Findings>(())
//! ```
//!
//! # The scenario file
//!
//! | field | meaning |
//! | --- | --- |
//! | `title` | what it is called in reports |
//! | `rules` or `rules_file` | a rules file as text, or its name, beside the scenario |
//! | `seeds` | one run for each; counts of all runs add up, means are taken of them, of other numbers the worst is shown; default `[1]` |
//! | `until` | when the run ends; default: when nothing is left to do, or after 100,000,000 starts |
//! | `policies` | who is worth looking at; default all |
//! | `[network]` | `delay` each way, and by how much more a way takes at most (`jitter`), drawn evenly; default none |
//! | `[[traffic]]` | who calls, see below |
//! | `[[server]]` | what the server allows: `limit = "1/2s"`, what it `counts`, `"calls"` whatever they cost (default), `"requests"` or a declared unit, in which no call counts more than the limit; its `kind`, `sliding`, `fixed`, `bucket` or `paced`; or instead `at_once = 1`, how many calls it works on at a time; `each = "all"` (default), `"key"`, `"endpoint"` or `"key-on-endpoint"`: whom it counts apart; `keys = [0, 9]`, `endpoints = ["bot-c"]`: only those; `penalty`: whoever is refused is refused for so long, and for as long again if he comes before; `retry_after`: what it says, if not how long it takes |
//! | `[[show]]` | a `metric`, what it needs to know, `what` it is called, its `optimum`, and the bound: `exact = true`, `within = "3%"` of the optimum, `at_most`, `at_least` |
//! | `[[variants]]` | the same again with another `margin`, `count_from`, `delay`, `jitter`, and more to `show`; each has a `title` |
//!
//! Traffic has a `name` (default: its rule's), a `rule`, and `calls` of `cost` (one number, or the lowest and the highest),
//! on each of which the server works for as long as it `takes`. What they cost in units that the rules declare, of the first
//! three, `units = { tokens = [100, 900] }` says; default nothing. With a pool they may be bound to some `endpoints`. They
//! have `keys = 100` keys from `first_key` on, who come `who = "in-turn"`, `"random"` or `"zipf"` (the key of rank r in
//! proportion to 1/r), or `keys = "own"`: each call its own.
//! They begin at `start` and come as `arrivals` say:
//!
//! | `arrivals` | meaning |
//! | --- | --- |
//! | `"backlog"` | all `calls` at once (default) |
//! | `"even"` | at a `rate` such as `"5/1s"` |
//! | `"poisson"` | at random, at a `rate`: a Poisson process of which it is known how many calls come in all, exactly as many as the rate gives. When each comes is then independent and uniform: whole numbers do for that, where times between calls need a logarithm or a table of it, which is never exact |
//! | `"bursts"` | a `burst` of so many at once, `every` so often |
//! | `"closed"` | each key has one call at a time and makes the next one a `think` after the answer |
//! | `"trace"` | as a CSV `file` says: lines of `seconds,key` or `seconds,key,cost` |
//!
//! `cancel = { at = "10s", share = "90%" }`: so many of those who wait then leave.
//!
//! Rules do in a run what they do in a program: own numbers of keys (`[keys.5]` is those of key 5), `queue`, `max_wait`,
//! `attempt_timeout`, `retry`, pauses. An attempt that takes longer than it may is not tried again: no call is idempotent.
//! What a run has no use for are the retry `budget` and the `ban_guard`: its servers refuse with a wait or not at all.
//! Other policies know the limits, keys' own numbers and `attempt_timeout` and nothing else of the file; of pools they know
//! nothing.
//!
//! # Metrics
//!
//! *Cost* is that in requests, and in what turns are measured in (`fair_by`) where it is about who gets how much. A *queue* is
//! one rule and one key. It is *ready* while it has a call in line that its own limits, those of its key and a
//! hold of the server let start: whatever it waits for then is others, or the scheduler. `of` is the name of some traffic.
//!
//! | metric | formula |
//! | --- | --- |
//! | `started` `of`, `on` | calls that started, at first on the endpoint `on` |
//! | `finished` `of` | calls that were answered and not refused |
//! | `last-start` `of`, `on` | the instant of the last start, on that endpoint |
//! | `at-once` `of`, `on` | the most attempts under way at once, an attempt until its answer is back |
//! | `share` `of` | starts of the traffic / all starts |
//! | `wait` `of`, `stat` | first start − arrival; a call that never started has waited until the end, or until its `max_wait` was over, if it did not leave or was turned away when it came. `stat`: `mean`, `p10`, `p20`, … `p90`, `p95`, `p99` (nearest rank), `max`, `p99-of-keys` (the 99th percentile over keys of each key's 99th percentile) |
//! | `induced-wait` `of`, `stat` | start − since when the queue was ready: the part of the wait that no limit of the key explains. A queue that was ready and never started anything has waited until the end |
//! | `inversion-time` `of` | mean wait − mean wait of the same calls without the lanes below |
//! | `first-service` `of` | largest of: first start of a key − its first arrival |
//! | `gap` `of` | longest time in which a key had something in line and started nothing: before its first start, between two, and after the last until the end |
//! | `round-overrun` `of` | largest of: starts of others since a queue's last start, or since it joined the line, until its next one, or the end − the weights of the others that had something in line then |
//! | `key-bypass` `of` | most starts of the same key under other rules between arrival and start of a call |
//! | `jain` `of`, `from`, `rounds` or `starts` | (Σx)² / (n Σx²), x = cost served / weight, of the n queues whose work in line at `from` outlasts the window: the next so many `starts`, or `rounds`, each of which is one start for each unit of weight in line at `from` |
//! | `least-served`, `most-served` | smallest and largest cost served of those queues: beside Jain's index, which forgives the starvation of few among many |
//! | `pair-gap` `of` | largest of \|ΔS_f/w_f − ΔS_m/w_m\| over any two of the first 64 queues and any stretch of time in which both are ready; S = cost served, w = weight. Turns keep it at most at C + (c_f − 1)/w_f + (c_m − 1)/w_m, c being the largest cost of a queue and C that of its lane, so at 1 where every call costs 1: between queues of one lane whose rules have the same limits over all keys, for a rule that is closed does not get what it missed |
//! | `lag`, `lead` | largest S*(t) − S(t), S(t) − S*(t) of any queue, in requests; S* = service in the fluid schedule |
//! | `max-min-distance` | Σ\|S − S*\| / (2 Σ S*) at the end: the part of all service that went to others |
//! | `overshoot` `limit`, `at` | largest of: cost in a half-open interval of length T − N, over the windows N/T of the rules, those of each endpoint included, or of the one at the place `limit`, such as `overall` or `pool.overall`. `at = "starts"` with the margin, `at = "server"` when calls arrive there and without it |
//! | `utilisation` | cost of the calls started by the end / min(Σ A_k, A_0); A_k = what a queue alone gets through its key's limits by then, A_0 = all calls through the limits that all rules share. Of a pool the windows count that all endpoints have, in sum. A call that costs more than one may start in pieces there, and of calls that cost other units those come first that cost least of them: no schedule that keeps to the limits starts more of the calls that did not leave |
//! | `makespan` | earliest instant by which any schedule has started every call once, computed likewise, / last start; nothing if a call neither started nor left |
//! | `fair-makespan` | end of the fluid schedule / last start: above 1 where the last call is served for a while after its start, and for whoever serves first who has most |
//! | `bypass` `of` | most starts in a row of other lanes while the traffic's lane was ready; at most K + L − 1 with K = 1/share − L where every call costs 1 and the lane's rules have no limit over all keys that the others do not have |
//! | `inversions` | starts of a lane while a more urgent one was ready, those included that shares of lower lanes are for |
//! | `idle-while-ready` | how long a rule of the top lane was ready and its shared limits had room for a cost of 1; nothing where there is a pool |
//! | `order-inversions` | calls answered before an earlier one of their queue |
//! | `turned-away` `of` | calls whose callers got an error: a full line, a cost that never fits, `max_wait`, no retries left, `attempt_timeout` |
//! | `refusals` `on` | calls that the server refused, those on the endpoint `on` |
//! | `refusals-per-success` | calls that it refused / those that it let through |
//!
//! The *fluid schedule* serves all queues with work at the same time: each at the rate min(its key's N/T, w λ), with λ such
//! that all rates together are the N/T that all share, or those of all endpoints together, and the rates of those who share
//! another limit, such as a rule's own `overall`, are no more than that together. Of all these, limits count that count what
//! turns are measured in. It knows no lanes, and no call that left before it started; one that the server refuses is served
//! once.

mod cost;
mod measure;
mod meter;
mod metric;
mod own;
mod policy;
mod random;
mod read;
mod record;
mod scenario;
mod server;
mod setup;
mod traffic;
mod world;

pub use measure::{Aim, Bound, Measure, Value};
pub use policy::{Policy, UnknownPolicy};
pub use record::{Record, Recorded};
pub use scenario::Scenario;
pub use world::Progress;
