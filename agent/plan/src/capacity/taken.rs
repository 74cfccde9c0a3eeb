//! What is taken of a node's capacity, and whether one more demand fits.

use super::figures::{Capacity, GuestDemand, Used, millis_of};
use crate::cpus::CpuSet;
use crate::dedicated::dedicate;
use crate::reservation::{CpuGrant, HugepageDemand, ResourceDemand};

impl Used {
    pub(super) fn add(&mut self, demand: &ResourceDemand) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        self.vmis = self.vmis.saturating_add(1);
        add(&mut self.memory_bytes, demand.all_memory_bytes());
        add(&mut self.overhead_bytes, demand.overhead_bytes);
        add(&mut self.cpu_millis, demand.cpu_millis);
        self.dedicated.add(&demand.own_cpus());
        if let Some(HugepageDemand { page_bytes, bytes }) = demand.hugepages {
            add(self.hugepages.entry(page_bytes).or_default(), bytes);
        }
    }
}

/// What is taken of a node.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) used: Used,
    /// CPUs on which guests run that share them.
    roamed: CpuSet,
}

impl Taken {
    pub(super) fn by_holders(capacity: &Capacity, guests: &[GuestDemand]) -> Self {
        let mut taken = Self::default();
        for guest in guests.iter().filter(|guest| guest.holds) {
            taken.add(capacity, &guest.demand);
        }
        taken
    }

    pub(super) fn add(&mut self, capacity: &Capacity, demand: &ResourceDemand) {
        self.used.add(demand);
        match &demand.cpus {
            Some(CpuGrant::Shared(cpus)) => self.roamed.add(cpus),
            Some(CpuGrant::Dedicated(_)) => {}
            None => self.roamed.add(&capacity.layout.all()),
        }
    }

    /// What a demand gets; `None` when it does not fit.
    pub(super) fn grant(
        &self,
        capacity: &Capacity,
        demand: &ResourceDemand,
    ) -> Option<ResourceDemand> {
        let has_pages = demand
            .hugepages
            .is_none_or(|pages| pages.bytes <= self.hugepages(capacity, pages.page_bytes).0);
        let fits = has_pages
            && demand.all_memory_bytes() <= self.free_memory(capacity)
            && demand.cpu_millis <= self.free_cpu(capacity);
        let cpus = self.cpus(capacity, demand).filter(|_| fits)?;
        Some(ResourceDemand {
            cpus,
            ..demand.clone()
        })
    }

    /// Where a demand is to run; the outer `None` when there is no such place.
    fn cpus(&self, capacity: &Capacity, demand: &ResourceDemand) -> Option<Option<CpuGrant>> {
        if let Some(cpu_demand) = &demand.dedicated {
            let found = dedicate(&capacity.layout, &self.free_dedicated(capacity), cpu_demand)?;
            return Some(Some(CpuGrant::Dedicated(found)));
        }
        if capacity.dedicated.is_empty() && self.used.dedicated.is_empty() {
            return Some(None);
        }
        let shared = self.shared(capacity);
        (!shared.is_empty()).then_some(Some(CpuGrant::Shared(shared)))
    }

    /// CPUs that are nobody's own and are not meant to be.
    pub(super) fn shared(&self, capacity: &Capacity) -> CpuSet {
        let others = capacity.layout.all().without(&capacity.dedicated);
        others.without(&self.used.dedicated)
    }

    /// CPUs that a guest can have for itself.
    pub(super) fn free_dedicated(&self, capacity: &Capacity) -> CpuSet {
        self.untaken(capacity).without(&self.roamed)
    }

    /// Of those that nobody has, how many are still used by guests that share: they were started before
    /// these CPUs were set aside.
    pub(super) fn still_roamed(&self, capacity: &Capacity) -> usize {
        self.untaken(capacity).and(&self.roamed).len()
    }

    fn untaken(&self, capacity: &Capacity) -> CpuSet {
        capacity.dedicated.without(&self.used.dedicated)
    }

    pub(super) fn free_memory(&self, capacity: &Capacity) -> u64 {
        capacity.memory_bytes.saturating_sub(self.used.memory_bytes)
    }

    pub(super) fn free_cpu(&self, capacity: &Capacity) -> u64 {
        // Of those that were set aside once and are somebody's own still, nobody else has a share.
        let kept = millis_of(&self.used.dedicated.without(&capacity.dedicated));
        let taken = self.used.cpu_millis.saturating_add(kept);
        capacity.cpu_millis.saturating_sub(taken)
    }

    /// Free and all bytes of pages of one size.
    pub(super) fn hugepages(&self, capacity: &Capacity, page_bytes: u64) -> (u64, u64) {
        let all = capacity.hugepages.get(&page_bytes).copied().unwrap_or(0);
        let taken = self.used.hugepages.get(&page_bytes).copied().unwrap_or(0);
        (all.saturating_sub(taken), all)
    }
}
