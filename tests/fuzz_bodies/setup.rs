//! Small rules out of bytes.

use std::fmt::Write;
use std::sync::Arc;

use arbitrary::Arbitrary;
use request_balancer::Rules;
use request_balancer::engine::{Anchor, LimitKind, LimitSpec, Plan};

/// Two rules in two lanes, with as many limits as it takes for them to meet.
#[derive(Clone, Debug, Arbitrary)]
pub(crate) struct Setup {
    overall: Option<Quota>,
    per_key: Option<Quota>,
    margin: bool,
    from_response: bool,
    first: Rule,
    second: Rule,
    share: Option<u8>,
    shapes: [Shape; 6],
}

#[derive(Clone, Debug, Arbitrary)]
struct Quota {
    count: u8,
    millis: u16,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Shape {
    Window,
    Spaced,
    Bucket(u8),
}

#[derive(Clone, Debug, Arbitrary)]
struct Rule {
    overall: Option<Quota>,
    per_key: Option<Quota>,
    concurrency: Option<u8>,
    key_concurrency: Option<u8>,
    is_low: bool,
    weight: u8,
    is_ordered: bool,
    queue: Option<u8>,
    drops_oldest: bool,
}

impl Setup {
    /// What the machine goes by. `None`: the numbers do not go together.
    pub(crate) fn plan(&self) -> Option<Arc<Plan>> {
        let mut plan = Plan::clone(&*self.text().parse::<Rules>().ok()?.plan());
        let own = plan.rules.iter_mut().flat_map(|rule| &mut rule.own);
        let limits = own.chain(&mut plan.key_limits).chain(&mut plan.shared_limits);
        limits.zip(self.shapes.iter().cycle()).for_each(|(spec, &shape)| shape.give(spec));
        Some(Arc::new(plan))
    }

    fn text(&self) -> String {
        let mut text = String::new();
        quota(&mut text, "overall", self.overall.as_ref());
        quota(&mut text, "per_key", self.per_key.as_ref());
        if self.margin {
            text.push_str("margin = '3ms'\n");
        }
        if self.from_response {
            text.push_str("count_from = 'response'\n");
        }
        self.first.write(&mut text, "first");
        self.second.write(&mut text, "second");
        if let (Some(share), true) = (self.share, self.first.is_low != self.second.is_low) {
            // With two lanes at most half.
            line(&mut text, format_args!("[lanes.2]\nshare = '1/{}'", 2 + share % 8));
        }
        text
    }
}

impl Shape {
    /// Makes another limit of a window that counts starts.
    fn give(self, spec: &mut LimitSpec) {
        let LimitKind::Window { count, period, anchor: Anchor::Start, .. } = spec.kind else { return };
        let interval = period.div_ceil(count.into());
        match self {
            Self::Window => {}
            Self::Spaced => spec.kind = LimitKind::Spaced { interval, largest: count },
            Self::Bucket(burst) => spec.kind = LimitKind::Bucket { interval, burst: count.max(u32::from(burst % 8)) },
        }
    }
}

impl Rule {
    fn write(&self, text: &mut String, name: &str) {
        line(text, format_args!("[rules.{name}]"));
        quota(text, "overall", self.overall.as_ref());
        quota(text, "per_key", self.per_key.as_ref());
        // `ordered` is a `key_concurrency` of its own.
        let key_concurrency = self.key_concurrency.filter(|_| !self.is_ordered);
        for (field, cap) in [("concurrency", self.concurrency), ("key_concurrency", key_concurrency)] {
            if let Some(cap) = cap {
                line(text, format_args!("{field} = {}", 1 + cap % 4));
            }
        }
        line(text, format_args!("priority = {}\nweight = {}", 1 + u8::from(self.is_low), 1 + self.weight % 3));
        if self.is_ordered {
            line(text, format_args!("ordered = true"));
        }
        if let Some(queue) = self.queue {
            let overflow = if self.drops_oldest { "drop-oldest" } else { "reject" };
            line(text, format_args!("queue = {}\noverflow = '{overflow}'", 1 + queue % 4));
        }
    }
}

fn quota(text: &mut String, field: &str, quota: Option<&Quota>) {
    let Some(Quota { count, millis }) = quota else { return };
    line(text, format_args!("{field} = '{}/{}ms'", 1 + count % 8, 1 + millis % 2_000));
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes everything");
}
