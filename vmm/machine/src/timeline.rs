//! When a machine came to each phase of its start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::time::{ClockId, clock_gettime};

use crate::clock_time::nanoseconds;

/// A point on the way from a configuration to a guest that runs, in the order of a start, but for
/// [`Phase::VmMade`]: the VM is made beside the filling of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The machine's thread begins with a configuration.
    Begun,
    /// The host's KVM can do it, and the guest's CPUs are known.
    HostChecked,
    /// Guest memory is there, empty.
    MemoryMade,
    /// `KVM_CREATE_VM` and the interrupt chips are done.
    VmMade,
    /// Kernel, initrd and tables, or a snapshot, are in memory.
    MemoryFilled,
    /// KVM knows the memory.
    MemoryMapped,
    /// PCI functions, the chipset and their threads are there.
    DevicesMade,
    /// vCPUs and their threads are there, with their registers set.
    VcpusMade,
    /// Somebody asked for the guest to run.
    Started,
    /// The boot processor is about to enter the guest.
    FirstEntry,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Begun,
        Self::HostChecked,
        Self::MemoryMade,
        Self::VmMade,
        Self::MemoryFilled,
        Self::MemoryMapped,
        Self::DevicesMade,
        Self::VcpusMade,
        Self::Started,
        Self::FirstEntry,
    ];

    /// A name that stays.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::HostChecked => "host-checked",
            Self::MemoryMade => "memory-made",
            Self::VmMade => "vm-made",
            Self::MemoryFilled => "memory-filled",
            Self::MemoryMapped => "memory-mapped",
            Self::DevicesMade => "devices-made",
            Self::VcpusMade => "vcpus-made",
            Self::Started => "started",
            Self::FirstEntry => "first-entry",
        }
    }
}

/// Times of phases, written once by whichever thread comes there and read by anybody.
#[derive(Clone, Debug, Default)]
pub struct Timeline(Arc<[AtomicU64; Phase::ALL.len()]>);

impl Timeline {
    /// The machine is at `phase` now, if it is for the first time.
    pub(crate) fn note(&self, phase: Phase) {
        let entry = &self.0[phase as usize];
        if entry.load(Ordering::Relaxed) == 0 {
            entry.store(monotonic_ns(), Ordering::Relaxed);
        }
    }

    /// When the machine came to `phase`, in nanoseconds of `CLOCK_MONOTONIC`; `None` before.
    #[must_use]
    pub fn at(&self, phase: Phase) -> Option<u64> {
        let time = self.0[phase as usize].load(Ordering::Relaxed);
        (time > 0).then_some(time)
    }
}

/// Now, in nanoseconds of `CLOCK_MONOTONIC`; never 0.
#[must_use]
pub fn monotonic_ns() -> u64 {
    // Cannot fail for a clock that every kernel has.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(1, |now| nanoseconds(now).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_time_counts() {
        let timeline = Timeline::default();
        assert_eq!(timeline.at(Phase::Started), None);
        timeline.note(Phase::Started);
        let first = timeline.at(Phase::Started);
        assert!(first.is_some());
        timeline.note(Phase::Started);
        assert_eq!(timeline.at(Phase::Started), first);
        assert_eq!(timeline.at(Phase::FirstEntry), None);
    }

    #[test]
    fn phases_are_numbered_in_their_order() {
        for (index, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase as usize, index);
        }
    }
}
