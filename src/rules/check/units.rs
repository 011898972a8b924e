//! Units: their names, and whether each is declared and used.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Checker;
use crate::rules::builder::At;
use crate::rules::finding::{Finding, FindingCode, Place, Severity};
use crate::rules::quota::{Quota, REQUESTS};
use crate::rules::{unit, wording};

impl Checker<'_> {
    /// The declared units, in order.
    pub(super) fn declared_units(&mut self) -> Vec<Arc<str>> {
        let mut seen = BTreeSet::new();
        let mut units = Vec::new();
        for At { value: name, place } in &self.builder.units {
            if !unit::is_name(name) {
                let finding = Finding::new(FindingCode::InvalidName, wording::quote(name), unit::ALLOWED);
                self.push(finding, "units", *place);
            }
            if !seen.insert(name.as_str()) {
                self.push(wording::duplicate_name(name, "unit"), "units", *place);
            }
            // Every request has it: to declare it changes nothing.
            if name != REQUESTS {
                units.push(name.as_str().into());
            }
        }
        units
    }

    /// Notes the unit of a quota, and finds it if it is not declared.
    pub(super) fn unit_of(&mut self, quota: &Quota, path: &str, place: Option<Place>) {
        if let Some(unit) = quota.own_unit() {
            self.known_unit(unit, path, place);
        }
    }

    /// The unit of `fair_by`.
    pub(super) fn fair_by(&mut self) -> Option<Arc<str>> {
        let At { value: unit, place } = self.builder.fair_by.as_ref()?;
        if unit == REQUESTS {
            return None;
        }
        self.known_unit(unit, "fair_by", *place);
        Some(unit.as_str().into())
    }

    /// Not said if something worse was found: it may have been what counts the unit.
    pub(super) fn unused_units(&mut self) {
        if self.findings.iter().any(|finding| finding.severity() == Severity::Error) {
            return;
        }
        for At { value: name, place } in &self.builder.units {
            if name != REQUESTS && !self.units.contains(name) {
                let found = format!("{}, which nothing counts", wording::quote(name));
                let finding = Finding::new(FindingCode::UnusedUnit, found, "units of quotas, or that of `fair_by`");
                self.push(finding, "units", *place);
            }
        }
    }

    fn known_unit(&mut self, unit: &str, path: &str, place: Option<Place>) {
        self.units.insert(unit.to_owned());
        let declared = self.builder.units.iter().map(|at| at.value.as_str()).filter(|name| *name != REQUESTS);
        // What could not be read in `units` may be its declaration.
        if declared.clone().any(|name| name == unit) || self.unread_units {
            return;
        }
        let finding = wording::unknown_unit(unit, std::iter::once(REQUESTS).chain(declared));
        self.push(finding, path, place);
    }
}
