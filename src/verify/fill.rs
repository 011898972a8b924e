//! How full windows and caps were.

use std::collections::BTreeMap;
use std::time::Duration;

use super::limit::{Counted, Limit};
use super::log::Clock;
use super::start::Start;
use super::stretches::Stretch;
use crate::rules::Rules;

/// How full a window or a cap was over time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fill {
    /// Where the file says so, such as `rules.group.per_key`.
    pub limit: String,
    /// What it says there, such as `20/60s`.
    pub quota: String,
    /// Whether each key has its own. What is told then is that of the fullest.
    pub each_key: bool,
    /// What may count.
    pub allowed: u32,
    /// The most that counted in each stretch of time.
    pub most: Vec<u64>,
}

/// How full each window and each cap was in `columns` stretches of the time from 0 to `end`.
pub(crate) fn fills(rules: &Rules, starts: &[&Start], end: Duration, columns: usize) -> Vec<Fill> {
    let width = (end.as_nanos() / columns.max(1) as u128).max(1);
    let column = |at: Duration| usize::try_from(at.as_nanos() / width).unwrap_or(usize::MAX);
    let mut fills = Vec::new();
    for limit in Limit::all(rules, Clock::Own) {
        match limit.counted {
            Counted::FromStart(_) | Counted::FromEnd(_) | Counted::WhileRunning => {}
            Counted::Spaced(_) | Counted::Bucket { .. } | Counted::Calendar(_) => continue,
        }
        let mut each_key = false;
        let mut changes: BTreeMap<Option<&str>, Vec<(Duration, bool, u64)>> = BTreeMap::new();
        for &start in starts {
            let Some(key) = limit.of(rules, start) else { continue };
            each_key |= key.is_some();
            let took = start.took(limit.unit);
            let Some(stretch) = Stretch::of(start, limit.counted, took) else { continue };
            // What takes no time is never there together with another.
            if stretch.until.is_some_and(|until| until <= stretch.from) {
                continue;
            }
            let changes = changes.entry(key).or_default();
            changes.push((stretch.from, true, stretch.weight));
            // What no longer counts goes before what begins to.
            changes.extend(stretch.until.map(|until| (until, false, stretch.weight)));
        }
        let mut most = vec![0; columns];
        for mut of_key in changes.into_values() {
            of_key.sort_unstable();
            let (mut count, mut from) = (0_u64, 0);
            for (at, more, weight) in of_key {
                let to = column(at).min(columns);
                // What counted up to here counted in all columns that are over, and at the beginning of this one.
                let reached = (to + usize::from(to < columns && at.as_nanos() % width != 0)).min(columns);
                most[from..reached.max(from)].iter_mut().for_each(|most| *most = count.max(*most));
                count = if more { count + weight } else { count.saturating_sub(weight) };
                if let Some(most) = most.get_mut(to) {
                    *most = count.max(*most);
                }
                from = to;
            }
            most[from..].iter_mut().for_each(|most| *most = count.max(*most));
        }
        let (path, quota) = (limit.path.clone(), limit.quota.clone());
        fills.push(Fill { limit: path, quota, each_key, allowed: limit.allowed, most });
    }
    fills
}
