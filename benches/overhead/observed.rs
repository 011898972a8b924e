//! What it costs to obey: an unhindered request whose response says what is left, beside one without.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::SystemTime;

use request_balancer::headers::{self, Dialect};
use request_balancer::{Failure, Key};

use crate::report::Line;
use crate::unhindered::{Contestant, ROUNDS, handle, runtime, visits};

/// What an observation may add.
const BAR: f64 = 1.2;

pub(crate) fn measure() -> Vec<Line> {
    let fields = [("X-RateLimit-Limit", "5000"), ("X-RateLimit-Remaining", "4999"), ("X-RateLimit-Reset", "3600")];
    let said = headers::read(200, fields, None, SystemTime::now(), Dialect::auto());
    let mut lines = Vec::new();
    for count in [1, 1_000, 100_000] {
        let keys: Vec<i64> = (0..count).map(|number| 1_000_000 + number).collect();
        let (runtime, visits) = (runtime(), visits(keys.len()));
        let (unobserved, handle) = (handle(), handle());
        let mut plain = Contestant::new("run");
        let mut observed = Contestant::new("run with an observation");
        for _ in 0..ROUNDS {
            plain.take_turn(&runtime, &visits, async |place| {
                let run =
                    unobserved.run(Key::from(keys[place]), async |_| Ok::<_, Failure<Infallible>>(black_box(place)));
                black_box(run.await).expect("nothing in its way");
            });
            observed.take_turn(&runtime, &visits, async |place| {
                let run = handle.run(Key::from(keys[place]), async |attempt| {
                    attempt.observe(black_box(&said));
                    Ok::<_, Failure<Infallible>>(black_box(place))
                });
                black_box(run.await).expect("nothing in its way");
            });
        }
        let ratio = observed.nanos / plain.nanos;
        let place = if count == 1 { "1 key".to_owned() } else { format!("{count} keys") };
        lines.push(Line::new(format!("{place}: run"), plain.nanos, "ns"));
        lines.push(Line::new(format!("{place}: run with an observation"), observed.nanos, "ns"));
        let line = Line::new(format!("{place}: run with an observation / run"), ratio, "ratio");
        lines.push(line.bar(format!("at most {BAR}"), ratio <= BAR));
    }
    lines
}
