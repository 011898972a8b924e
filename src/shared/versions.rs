//! Rules of the highest version are those of all processes.

use std::sync::{PoisonError, Weak};
use std::time::Duration;

use tokio::time::timeout;

use super::driver::{Link, PATIENCE, PROBE};
use super::guarded::call;
use super::store::VersionedRules;
use crate::rules::{CheckedShared, Rules};
use crate::runtime::{Event, Shared};

/// How often nothing happens where rules have no version.
const NEVER: Duration = Duration::from_secs(86_400);

impl Link {
    /// Has the store keep the rules in force if they have a version, and takes over those of a higher one.
    pub(super) async fn keep_rules(&self, shared: &Weak<Shared>) {
        let mut bell = self.ruled.subscribe();
        let lease = self.shared.lease();
        // What was told of already, as it can't be taken over: what is here and what is kept.
        let mut odd = None;
        loop {
            bell.borrow_and_update();
            let Some(owner) = shared.upgrade() else { return };
            let ours = versioned(&owner, &owner.live.load().rules);
            drop(owner);
            let pause = match ours {
                None => NEVER,
                Some(ours) => {
                    let kept = call(PATIENCE, || self.store.keep_rules(self.process, ours.clone(), lease)).await;
                    match kept {
                        Ok(kept) => {
                            let Some(owner) = shared.upgrade() else { return };
                            self.compare(&owner, &ours, kept, &mut odd);
                            lease / 3
                        }
                        Err(_) => PROBE,
                    }
                }
            };
            // Whether it was rung or not: the next look shows what there is.
            if let Ok(Err(_)) = timeout(pause, bell.changed()).await {
                return;
            }
        }
    }

    /// Does what follows from what the store keeps.
    fn compare(
        &self,
        owner: &Shared,
        ours: &VersionedRules,
        kept: VersionedRules,
        odd: &mut Option<(VersionedRules, VersionedRules)>,
    ) {
        if kept == *ours || kept.version < ours.version {
            return;
        }
        let both = (ours.clone(), kept);
        if odd.as_ref() == Some(&both) {
            return;
        }
        let (_, kept) = &both;
        let version = kept.version;
        let event = match read(kept) {
            Err(why) => Event::RulesUnreadable { version, why: why.into() },
            Ok(rules) if version > ours.version => {
                if self.take_over(owner, &rules) {
                    owner.tell(Event::RulesTaken { version });
                }
                return;
            }
            // As others write the same.
            Ok(rules) if versioned(owner, &rules).as_ref() == Some(ours) => return,
            Ok(_) => Event::RulesDiffer { version },
        };
        *odd = Some(both);
        owner.tell(event);
    }

    /// Goes over to rules of a higher version, unless somebody did.
    fn take_over(&self, owner: &Shared, rules: &Rules) -> bool {
        let _one_at_a_time = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let is_higher = rules.shared().version() > owner.live.load().rules.shared().version();
        is_higher && owner.replace_rules(rules.at_store(&self.shared))
    }
}

/// Rules as the store keeps them: without what is each process's own.
fn versioned(owner: &Shared, rules: &Rules) -> Option<VersionedRules> {
    let version = rules.shared().version()?;
    let mut rules = rules.at_store(&CheckedShared::default());
    if owner.has_endpoints_of_code() {
        rules = rules.with_endpoints_that(|_| false);
    }
    Some(VersionedRules { version, text: rules.to_string().into() })
}

fn read(kept: &VersionedRules) -> Result<Rules, String> {
    let rules: Rules = kept.text.parse().map_err(|findings: crate::rules::Findings| findings.to_string())?;
    match rules.shared().version() {
        Some(version) if version == kept.version => Ok(rules),
        found => Err(format!("found rules of version {found:?} under version {}", kept.version)),
    }
}
