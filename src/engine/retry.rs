//! What a failure costs and how long it waits. Pure.

use super::time::Nanos;

/// The retry policy of a rule or a request.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Starts that may be spent on failures, the first included; a retry without a wait counts too. At least 1.
    pub attempts: u32,
    /// Delay after the first transient failure; doubles with each further one.
    pub backoff: Nanos,
    /// Longest delay after a transient failure.
    pub max_delay: Nanos,
    /// Fraction of each delay that is drawn at random, from 0 to 1.
    pub jitter: f64,
    /// Shortest wait of any kind.
    pub min_wait: Nanos,
    /// Wait where the server says "slow down" without a number; doubles with each further one.
    pub bare_wait: Nanos,
    /// How many server-directed waits one request may have.
    pub waits: u32,
    /// The longest single server-directed wait. `None`: any.
    pub ceiling: Option<Nanos>,
    /// Server-directed waits in sum. `None`: any.
    pub total_wait: Option<Nanos>,
    /// Default scope of the hold that `retry` sets.
    pub hold: Scope,
    /// How the policy's own delay and the server's wait combine.
    pub order: WaitOrder,
}

/// What a hold stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The one request.
    Request,
    /// The queue of its rule and key.
    Queue,
    /// Its key, whatever the rule.
    Key,
    /// Its rule, whatever the key.
    Rule,
    /// Everything.
    Overall,
}

/// How the policy's own delay and the server's wait combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WaitOrder {
    /// The longer of the two.
    #[default]
    Max,
    /// The server's if it said one.
    Server,
    /// The policy's, whatever the server said.
    Policy,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 3,
            backoff: Nanos::from_secs(1),
            max_delay: Nanos::from_secs(30),
            jitter: 0.5,
            min_wait: Nanos::from_secs(1),
            bare_wait: Nanos::from_secs(5),
            waits: 20,
            ceiling: Some(Nanos::from_secs(300)),
            total_wait: Some(Nanos::from_secs(900)),
            hold: Scope::Key,
            order: WaitOrder::Max,
        }
    }
}
