//! Links of NICs: `state` of an interface may change while its guest runs.

use std::collections::BTreeSet;

use super::draft::Draft;
use crate::action::Action;
use crate::observation::MachineObserved;
use crate::record::Record;

/// Records which links are down.
pub(super) fn note(record: &mut Record, machine: &MachineObserved) {
    if let Some(down) = &machine.links_down {
        let nics = record.allocations.pci.interfaces.iter();
        let out = nics.filter(|(_, place)| down.contains(place));
        let names: BTreeSet<String> = out.map(|(name, _)| name.clone()).collect();
        record.report.links_down = Some(names);
    }
}

impl Draft<'_> {
    /// Sets links until all are as they are wanted. A VMM of an earlier release does not report its links: it keeps them as
    /// they were at its start.
    pub(super) fn keep_links(&mut self, incarnation: u64, machine: &MachineObserved) {
        let Some(down) = &machine.links_down else {
            return;
        };
        for (name, nic) in &self.plan.record.allocations.pci.interfaces {
            let is_wanted_up = !self.wanted.links_down.contains(name);
            if is_wanted_up == down.contains(nic) {
                self.plan.actions.push(Action::SetLink {
                    incarnation,
                    nic: *nic,
                    up: is_wanted_up,
                });
            }
        }
    }
}
