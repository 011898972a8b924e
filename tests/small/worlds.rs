//! The worlds: two rules in two lanes, two keys, limits of one to three starts.

use crate::model::history::{Scope, Then};
use crate::model::spec::{Caps, Lane, MS, Pace, Quota, Rule, Shape, Spec};

/// What time goes on by.
pub(crate) const TICK: u64 = 10 * MS;

/// Rules, and what may happen under them besides arrivals, withdrawals and time.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) name: &'static str,
    pub(crate) spec: Spec,
    pub(crate) costs: &'static [u64],
    /// Requests are polled by operations; else they claim as soon as they are woken.
    pub(crate) polls_late: bool,
    /// How attempts may end before the last operation.
    pub(crate) ends: &'static [Then],
    /// Keys and everything may be held.
    pub(crate) holds: bool,
    pub(crate) max_wait: Option<u64>,
}

const RETRY: Then = Then::Retry { scope: Scope::Key, after: TICK, deadline: None };
const BACK_OFF: Then = Then::BackOff { after: TICK, deadline: None };

/// `per_key` one in a tick, `overall` two in three ticks, and a lower lane that one grant may go past.
fn two_windows() -> Spec {
    let quota = |count, ticks: u64| Quota {
        count,
        period: ticks * TICK,
        margin: None,
        response: None,
        shape: Shape::Window,
        tokens: false,
    };
    let lane = Lane { pace: Some(Pace::Off), ..Lane::default() };
    Spec {
        caps: Caps { overall: vec![quota(2, 3)], per_key: vec![quota(1, 1)], ..Caps::default() },
        rules: vec![Rule::default(), Rule { lane: 1, ..Rule::default() }],
        lanes: vec![lane.clone(), Lane { share: 3, ..lane }],
        lease: 2 * TICK,
        max_hold: 100 * TICK,
        ..Spec::default()
    }
}

/// Nothing but the two windows; a refusal holds its key for a tick.
pub(crate) fn windows() -> World {
    World {
        name: "two windows, two lanes",
        spec: two_windows(),
        costs: &[1],
        polls_late: false,
        ends: &[RETRY],
        holds: false,
        max_wait: None,
    }
}

/// Keys are held for two ticks, everything for one.
pub(crate) fn holds() -> World {
    World { name: "holds", ends: &[], holds: true, ..windows() }
}

/// A grant lasts for two ticks, then it is revoked and its request sleeps.
pub(crate) fn late_polls() -> World {
    World { name: "grants taken up late", polls_late: true, ends: &[], ..windows() }
}

/// One attempt at a time for each key, two in all, of the lower lane one.
pub(crate) fn caps() -> World {
    let mut spec = two_windows();
    spec.caps = Caps { concurrency: Some(2), key_concurrency: Some(1), ..Caps::default() };
    spec.lanes[1].concurrency = Some(1);
    World { name: "concurrency caps", spec, ends: &[Then::Finish], ..windows() }
}

/// Windows that count an attempt while it runs and for their length from its end.
pub(crate) fn responses() -> World {
    World {
        name: "counted from the response",
        spec: Spec { response: true, ..two_windows() },
        ends: &[Then::Finish],
        ..windows()
    }
}

/// Requests of cost 1 and 2 under an overall window of three.
pub(crate) fn costs() -> World {
    let mut spec = two_windows();
    spec.caps.overall[0].count = 3;
    spec.caps.per_key[0].count = 2;
    World { name: "costs", spec, costs: &[1, 2], ends: &[], ..windows() }
}

/// Two rules of one lane, of which one weighs twice as much, over the same windows.
pub(crate) fn siblings() -> World {
    let mut spec = two_windows();
    spec.lanes.truncate(1);
    spec.rules[1] = Rule { weight: 2, ..Rule::default() };
    World { name: "siblings of one lane", spec, ..windows() }
}

/// A lower lane that is spread over its windows.
pub(crate) fn pace() -> World {
    let mut spec = two_windows();
    spec.lanes[1].pace = None;
    World { name: "a paced lane", spec, ends: &[], ..windows() }
}

/// One queue is ordered and waits for who backs off, the other drops its oldest; nobody stands in line for longer than
/// two ticks.
pub(crate) fn queues() -> World {
    let mut spec = two_windows();
    spec.rules[0].ordered = true;
    spec.rules[1].queue = Some(1);
    spec.rules[1].drop_oldest = true;
    World { name: "short queues", spec, ends: &[BACK_OFF], max_wait: Some(2 * TICK), ..windows() }
}
