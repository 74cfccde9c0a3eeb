//! Links of network cards: `state` of an interface may change while its guest runs.

use std::collections::BTreeSet;

use super::draft::Draft;
use crate::action::Action;
use crate::observation::MachineObserved;
use crate::record::Record;

/// Records which links are down.
pub(super) fn note(record: &mut Record, machine: &MachineObserved) {
    if let Some(down) = &machine.links_down {
        let cards = record.allocations.pci.interfaces.iter();
        let out = cards.filter(|(_, place)| down.contains(place));
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
        for (name, card) in &self.plan.record.allocations.pci.interfaces {
            let is_wanted_up = !self.wanted.links_down.contains(name);
            if is_wanted_up == down.contains(card) {
                self.plan.actions.push(Action::SetLink {
                    incarnation,
                    card: *card,
                    up: is_wanted_up,
                });
            }
        }
    }
}
