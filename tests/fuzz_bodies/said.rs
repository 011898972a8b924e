//! What servers say of their counters, out of bytes.

use arbitrary::Arbitrary;
use request_balancer::engine::{Charge, Nanos, ServerReset, ServerWindow, Side};

/// One window, true or not.
#[derive(Clone, Debug, Arbitrary)]
pub(crate) struct Said {
    name: u8,
    left: Option<u8>,
    limit: Option<u8>,
    is_long: Option<bool>,
    reset: Option<(u16, bool)>,
    side: Option<bool>,
    counts_another: u8,
}

const NAMES: [&str; 20] =
    ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];

impl Said {
    pub(crate) fn window(&self) -> ServerWindow<'static> {
        let millis = |millis: u16| Nanos::from_millis(millis.into());
        ServerWindow {
            // Mostly one of a few.
            name: NAMES[usize::from(self.name % if self.name < 200 { 3 } else { 20 })],
            charge: if self.counts_another == 0 { Charge::Attempt } else { Charge::Requests },
            side: self.side.map(|is_key| if is_key { Side::Key } else { Side::All }),
            limit: self.limit.map(u32::from),
            left: self.left.map(|left| u32::from(left % 16)),
            per: self.is_long.map(|is_long| millis(if is_long { 5_000 } else { 500 })),
            reset: self.reset.map(|(after, is_coarse)| ServerReset {
                after: millis(after % 4_000),
                grain: millis(if is_coarse { 1_000 } else { 1 }),
            }),
        }
    }
}
