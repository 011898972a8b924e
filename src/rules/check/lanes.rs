//! Lanes: their names, and whether their shares can be met.

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use crate::rules::builder::{At, Lane};
use crate::rules::finding::{Finding, FindingCode, Place};
use crate::rules::model::{CheckedLane, Model, Pace, Share};
use crate::rules::toml::join;
use crate::rules::wording;

impl Checker<'_> {
    /// The lanes of which the rules say something, most urgent first.
    pub(super) fn said_lanes(&mut self) -> Vec<CheckedLane> {
        let mut lanes = BTreeMap::new();
        for (At { value: priority, place }, lane) in &self.builder.lanes {
            let path = join("lanes", &priority.to_string());
            let checked = self.said_lane(*priority, lane, &path);
            if lanes.insert(*priority, checked).is_some() {
                self.push(wording::duplicate_name(&priority.to_string(), "lane"), path, *place);
            }
        }
        lanes.into_values().collect()
    }

    fn said_lane(&mut self, priority: u32, lane: &Lane, path: &str) -> CheckedLane {
        if let Some(name) = &lane.name {
            self.name(name, &join(path, "name"), "a name of visible characters");
        }
        if let Some(At { value: Share { part, of }, place }) = lane.share
            && (part > of || of == 0)
        {
            let finding = wording::out_of_range(&format!("{part}/{of}"), "a share from 0 to 1");
            self.push(finding, join(path, "share"), place);
        }
        let pace = lane.pace.unwrap_or_else(|| Pace::default().into());
        if let Pace::UpTo(horizon) = pace.value {
            let path = join(path, "pace");
            self.span(Some(&At { value: horizon, place: pace.place }), &path);
            if horizon.is_zero() {
                self.push(wording::zero("`0s`", "a longer length of time, or `false`"), path, pace.place);
            }
        }
        CheckedLane {
            priority,
            name: lane.name.as_ref().map(|name| name.value.as_str().into()),
            caps: self.caps(&lane.caps, path),
            share: lane.share.map_or_else(Share::default, |at| at.value),
            pace: pace.value,
        }
    }

    /// What lanes mean for each other. Not said if a rule could not be read: it may have been in any lane.
    pub(super) fn lanes(&mut self, model: &Model) {
        if self.unsure {
            return;
        }
        let priorities: BTreeSet<u32> = model.rules.iter().map(|rule| rule.priority).collect();
        for lane in model.lanes.iter().filter(|lane| !priorities.contains(&lane.priority)) {
            let found = format!("lane {}, which no rule is in", lane.priority);
            let allowed = wording::list(priorities.iter().map(u32::to_string).collect::<Vec<_>>().iter().map(|p| &**p));
            let finding = Finding::new(FindingCode::UnusedLane, found, format!("priorities of rules: {allowed}"));
            self.push(finding, join("lanes", &lane.priority.to_string()), self.lane_place(lane.priority));
        }
        let lanes = model.used_lanes();
        self.lane_names(&lanes);
        self.shares(&lanes);
    }

    fn lane_names(&mut self, lanes: &[CheckedLane]) {
        let mut seen = BTreeSet::new();
        // A given name may not be that of a lane without one either, whichever comes first.
        let (said, unsaid): (Vec<_>, Vec<_>) = lanes.iter().partition(|lane| lane.name.is_some());
        for lane in unsaid.into_iter().chain(said) {
            if !seen.insert(lane.shown_name()) {
                let finding = wording::duplicate_name(&lane.shown_name(), "name of a lane");
                let path = join(&join("lanes", &lane.priority.to_string()), "name");
                self.push(finding, path, self.lane_place(lane.priority));
            }
        }
    }

    fn shares(&mut self, lanes: &[CheckedLane]) {
        let count = lanes.len() as u64;
        let mut can_be_met = true;
        for CheckedLane { priority, share: Share { part, of }, .. } in lanes {
            if u64::from(*part) * count > u64::from(*of) && part <= of {
                let found = format!("a share of {part}/{of} with {count} lanes");
                let finding = Finding::new(FindingCode::UnmeetableShare, found, format!("up to 1/{count}"));
                self.push(finding, share_path(*priority), self.share_place(*priority));
                can_be_met = false;
            }
        }
        // In units of 2^-96; rounding down keeps shares that add up to exactly a half allowed.
        let starts = |lane: &CheckedLane| Some((1_u128 << 96) / (u128::from(lane.share.bypass(lanes.len())?) + 1));
        let taken: u128 = lanes.iter().skip(1).filter_map(starts).sum();
        if let (true, Some(lowest)) = (can_be_met && taken > 1 << 95, lanes.last()) {
            let found = format!(
                "shares with which the lanes below {} may take more than half of the starts",
                lanes[0].priority
            );
            // A lane is served once it was passed by as often as leaves room for all the others.
            let allowed =
                format!("up to 1/2 together, where a share of 1/n of {count} lanes takes up to 1/(n - {})", count - 1);
            let finding = Finding::new(FindingCode::SharesTooLarge, found, allowed);
            self.push(finding, share_path(lowest.priority), self.share_place(lowest.priority));
        }
    }

    fn share_place(&self, priority: u32) -> Option<Place> {
        let lane = self.builder.lanes.iter().find(|(number, _)| number.value == priority);
        lane.and_then(|(number, lane)| lane.share.map_or(number.place, |share| share.place))
    }

    fn lane_place(&self, priority: u32) -> Option<Place> {
        self.builder.lanes.iter().find(|(number, _)| number.value == priority).and_then(|(number, _)| number.place)
    }
}

fn share_path(priority: u32) -> String {
    join(&join("lanes", &priority.to_string()), "share")
}
