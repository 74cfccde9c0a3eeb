//! Renewals of leases: known to the agent at once, on disk now and then.
//!
//! Each heartbeat renews every lease. Were each renewal stored, a node without any work would write its disk
//! every few seconds.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_plan::{BootTime, Lease};
use agent_store::AssignmentKey;

/// The last renewal of each assignment, as far as this agent heard of one.
#[derive(Debug, Default)]
pub(crate) struct Renewals(Mutex<BTreeMap<AssignmentKey, BootTime>>);

impl Renewals {
    /// These assignments of a control plane are renewed, and no others are remembered of it.
    pub(super) fn note(&self, control_plane: &str, keys: &[AssignmentKey], since: &BootTime) {
        let mut known = self.known();
        known.retain(|key, _| key.control_plane != control_plane || keys.contains(key));
        for key in keys {
            let last = known.entry(key.clone()).or_insert_with(|| since.clone());
            // A late answer takes nothing back.
            if since.at > last.at {
                last.clone_from(since);
            }
        }
    }

    /// Lets a lease last from its last renewal, be it stored or not.
    pub(super) fn bring_up_to_date(&self, key: &AssignmentKey, lease: &mut Lease) {
        if let Some(since) = self.known().get(key) {
            lease.renew(lease.terms, since);
        }
    }

    /// No holder of this lock can leave it half written.
    fn known(&self) -> MutexGuard<'_, BTreeMap<AssignmentKey, BootTime>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use agent_plan::{BootId, LeaseTerms, Millis, OnExpiry};

    use super::*;

    fn at(seconds: i64) -> BootTime {
        BootTime {
            boot_id: BootId(String::from("boot-1")),
            at: Millis::from_secs(seconds),
        }
    }

    fn key(control_plane: &str, name: &str) -> AssignmentKey {
        AssignmentKey {
            control_plane: control_plane.to_owned(),
            namespace: String::from("default"),
            name: name.to_owned(),
        }
    }

    fn since(renewals: &Renewals, key: &AssignmentKey) -> i64 {
        let terms = LeaseTerms {
            duration: Millis::from_secs(30),
            on_expiry: OnExpiry::Stop,
            grace: Millis(0),
        };
        let mut lease = Lease::new(terms, at(100));
        renewals.bring_up_to_date(key, &mut lease);
        lease.since.at.0 / 1000
    }

    #[test]
    fn a_renewal_counts_at_once_and_a_late_one_takes_nothing_back() {
        let renewals = Renewals::default();
        let (web, other) = (key("north", "web"), key("south", "web"));
        renewals.note("north", std::slice::from_ref(&web), &at(120));
        renewals.note("north", std::slice::from_ref(&web), &at(110));
        renewals.note("south", std::slice::from_ref(&other), &at(90));
        assert_eq!(since(&renewals, &web), 120);
        // What was stored is later.
        assert_eq!(since(&renewals, &other), 100);
        // It is renewed no more: what was stored counts.
        renewals.note("north", &[], &at(130));
        assert_eq!(since(&renewals, &web), 100);
        assert_eq!(renewals.known().len(), 1);
    }
}
