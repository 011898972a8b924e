//! What happens in a history: operations of the machine's owner and of whoever calls it.

use std::fmt;

use super::spec::{Cost, MS, Quota, Spec};

/// Rules and what happens under them.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) spec: Spec,
    pub(crate) ops: Vec<Op>,
}

/// One operation. Times are nanoseconds from the moment of the operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Time goes on; the owner does at each instant what is due.
    Advance(u64),
    /// Time goes on and nobody does anything.
    Stall(u64),
    Enter(Entry),
    Withdraw(u32),
    /// The request's owner polls it, woken or not.
    Poll(u32),
    /// The attempt of a running request ends now, and so.
    End(u32, Then),
    Hold(Target, u64),
    Release(Target),
    /// The response to the running attempt of this request is read: so many are left of one of its limits.
    Answer {
        label: u32,
        limit: usize,
        left: u64,
    },
    /// The running attempt of this request turns out to cost so much in requests, or else in tokens.
    Settle {
        label: u32,
        tokens: bool,
        actual: u64,
    },
    Pause(usize),
    Resume(usize),
    /// From now on a key has these quotas under a rule in place of the rule's; none: the rule's again.
    Own(usize, u64, Vec<Quota>),
    /// A turn that nothing asked for.
    Turn,
    Close,
    Abort,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What other operations call it.
    pub(crate) label: u32,
    pub(crate) rule: usize,
    pub(crate) key: u64,
    pub(crate) cost: Cost,
    pub(crate) not_before: Option<u64>,
    pub(crate) deadline: Option<u64>,
    /// Starts at once if it can; else it is only put in line, and the next operation follows without a turn.
    pub(crate) at_once: bool,
    /// How long after it is woken it claims. `None`: not before it is polled.
    pub(crate) claims_after: Option<u64>,
    pub(crate) attempts: Vec<Attempt>,
}

/// An attempt and how it ends. After the last one the request is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) lasts: u64,
    pub(crate) then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Finish,
    /// Back in line, the scope held.
    Retry {
        scope: Scope,
        after: u64,
        deadline: Option<u64>,
    },
    BackOff {
        after: u64,
        deadline: Option<u64>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Request,
    Queue,
    Key,
    Rule,
    Overall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Overall,
    Rule(usize),
    Key(u64),
    Queue(usize, u64),
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.spec)?;
        for op in &self.ops {
            writeln!(f, "  {op}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Advance(span) => write!(f, "advance {}", Span(*span)),
            Self::Stall(span) => write!(f, "stall {}", Span(*span)),
            Self::Enter(entry) => write!(f, "{entry}"),
            Self::Withdraw(label) => write!(f, "withdraw #{label}"),
            Self::Poll(label) => write!(f, "poll #{label}"),
            Self::End(label, then) => write!(f, "end #{label}, {then}"),
            Self::Hold(target, span) => write!(f, "hold {target:?} for {}", Span(*span)),
            Self::Release(target) => write!(f, "release {target:?}"),
            Self::Answer { label, limit, left } => write!(f, "answer #{label}: {left} left of limit {limit}"),
            Self::Settle { label, tokens, actual } => {
                write!(f, "settle #{label} at {actual} {}", if *tokens { "tokens" } else { "requests" })
            }
            Self::Pause(rule) => write!(f, "pause r{rule}"),
            Self::Resume(rule) => write!(f, "resume r{rule}"),
            Self::Own(rule, key, quotas) => {
                let quotas: Vec<String> = quotas.iter().map(Quota::to_string).collect();
                write!(f, "own numbers of key {key} under r{rule}: [{}]", quotas.join(", "))
            }
            Self::Turn => f.write_str("turn"),
            Self::Close => f.write_str("close"),
            Self::Abort => f.write_str("abort"),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.at_once { "enter" } else { "enqueue" };
        write!(f, "{verb} #{} r{} key {} cost {}", self.label, self.rule, self.key, self.cost.requests)?;
        if self.cost.tokens > 0 {
            write!(f, ", {} tokens", self.cost.tokens)?;
        }
        if let Some(span) = self.not_before {
            write!(f, ", not before {}", Span(span))?;
        }
        if let Some(span) = self.deadline {
            write!(f, ", deadline {}", Span(span))?;
        }
        match self.claims_after {
            Some(0) => {}
            Some(span) => write!(f, ", claims after {}", Span(span))?,
            None => f.write_str(", zombie")?,
        }
        for Attempt { lasts, then } in &self.attempts {
            write!(f, "; {} then {then}", Span(*lasts))?;
        }
        Ok(())
    }
}

impl fmt::Display for Then {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finish => f.write_str("finish"),
            Self::Retry { scope, after, deadline } => {
                write!(f, "retry {scope:?} {}{}", Span(*after), Deadline(*deadline))
            }
            Self::BackOff { after, deadline } => write!(f, "back off {}{}", Span(*after), Deadline(*deadline)),
        }
    }
}

struct Span(u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            nanos if nanos % MS == 0 => write!(f, "{}ms", nanos / MS),
            nanos => write!(f, "{nanos}ns"),
        }
    }
}

struct Deadline(Option<u64>);

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |span| write!(f, " deadline {}", Span(span)))
    }
}
