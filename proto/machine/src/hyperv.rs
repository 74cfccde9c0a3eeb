//! Hyper-V's enlightenments, their CPUID bits and what they need of each other.
//!
//! Agent and VMM have this one table, so that what one admits the other knows.
//!
//! Source: Hypervisor Top Level Functional Specification 6.0b, 2.4 and appendices; names are KubeVirt's. The wire's
//! field of each has the same name.

use crate::cpu_features::Register;

/// Longest vendor signature.
pub const MAX_HYPERV_VENDOR_BYTES: usize = 12;

/// KubeVirt's least number of tries for a spin lock, and its default.
pub const MIN_SPINLOCK_RETRIES: u32 = 4096;

/// A feature that a guest finds in Hyper-V's CPUID leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Enlightenment {
    /// No watchdogs that a slow host would trip.
    Relaxed,
    /// The APIC by MSRs, and the assist page.
    Vapic,
    /// Spin locks notify the hypervisor of long waits.
    Spinlocks,
    /// Numbers of virtual processors.
    Vpindex,
    /// Time that a virtual processor has run.
    Runtime,
    /// Synthetic interrupt controller.
    Synic,
    /// Synthetic timers.
    Synictimer,
    /// Synthetic timers that interrupt without a message.
    SynictimerDirect,
    /// Reset by MSR.
    Reset,
    /// Frequencies of TSC and APIC by MSR.
    Frequencies,
    /// Notice of a migration to another frequency.
    Reenlightenment,
    /// TLB flushes of other processors by hypercall.
    Tlbflush,
    /// The same, of ranges.
    TlbflushExtended,
    /// TLB flushes of nested guests' hypercalls without exits.
    TlbflushDirect,
    /// Interrupts between processors by hypercall.
    Ipi,
    /// Enlightened VMCS for nested guests.
    Evmcs,
    /// Reference counter and reference TSC page.
    Time,
    /// Crash MSRs.
    Crash,
}

/// Bits of a leaf: its number, the register, and the bits in it.
pub type Bits = (u32, Register, u32);

const FEATURES: u32 = 0x4000_0003;

const RECOMMENDATIONS: u32 = 0x4000_0004;

const NESTED: u32 = 0x4000_000a;

impl Enlightenment {
    /// All, in an order in which none comes before what it needs.
    pub const ALL: [Self; 18] = [
        Self::Relaxed,
        Self::Vapic,
        Self::Spinlocks,
        Self::Vpindex,
        Self::Runtime,
        Self::Time,
        Self::Synic,
        Self::Synictimer,
        Self::SynictimerDirect,
        Self::Reset,
        Self::Frequencies,
        Self::Reenlightenment,
        Self::Tlbflush,
        Self::TlbflushExtended,
        Self::TlbflushDirect,
        Self::Ipi,
        Self::Evmcs,
        Self::Crash,
    ];

    /// KubeVirt's name, as a path below `hyperv`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Relaxed => "relaxed",
            Self::Vapic => "vapic",
            Self::Spinlocks => "spinlocks",
            Self::Vpindex => "vpindex",
            Self::Runtime => "runtime",
            Self::Synic => "synic",
            Self::Synictimer => "synictimer",
            Self::SynictimerDirect => "synictimer_direct",
            Self::Reset => "reset",
            Self::Frequencies => "frequencies",
            Self::Reenlightenment => "reenlightenment",
            Self::Tlbflush => "tlbflush",
            Self::TlbflushExtended => "tlbflush_extended",
            Self::TlbflushDirect => "tlbflush_direct",
            Self::Ipi => "ipi",
            Self::Evmcs => "evmcs",
            Self::Time => "time",
            Self::Crash => "crash",
        }
    }

    /// What it builds upon.
    #[must_use]
    pub fn needs(self) -> &'static [Self] {
        match self {
            Self::Synic | Self::Tlbflush | Self::Ipi => &[Self::Vpindex],
            Self::Synictimer => &[Self::Synic, Self::Time],
            Self::SynictimerDirect => &[Self::Synictimer],
            Self::TlbflushExtended | Self::TlbflushDirect => &[Self::Tlbflush],
            Self::Evmcs => &[Self::Vapic],
            _ => &[],
        }
    }

    /// CPUID bits by which a guest sees it, and those by which a host reports that it can do it.
    #[must_use]
    pub fn bits(self) -> &'static [Bits] {
        use Register::{Eax, Edx};
        match self {
            Self::Relaxed => &[(RECOMMENDATIONS, Eax, 1 << 5)],
            Self::Vapic => &[(FEATURES, Eax, 1 << 4), (RECOMMENDATIONS, Eax, 1 << 3)],
            // A number in EBX of the recommendations.
            Self::Spinlocks => &[],
            Self::Vpindex => &[(FEATURES, Eax, 1 << 6)],
            Self::Runtime => &[(FEATURES, Eax, 1)],
            Self::Synic => &[(FEATURES, Eax, 1 << 2)],
            Self::Synictimer => &[(FEATURES, Eax, 1 << 3)],
            Self::SynictimerDirect => &[(FEATURES, Edx, 1 << 19)],
            Self::Reset => &[(FEATURES, Eax, 1 << 7)],
            Self::Frequencies => &[(FEATURES, Eax, 1 << 11), (FEATURES, Edx, 1 << 8)],
            Self::Reenlightenment => &[(FEATURES, Eax, 1 << 13)],
            // Sets of more than 64 processors come with both hypercalls.
            Self::Tlbflush => &[(RECOMMENDATIONS, Eax, 1 << 2 | 1 << 11)],
            Self::TlbflushExtended => &[(FEATURES, Edx, 1 << 14)],
            Self::TlbflushDirect => &[(NESTED, Eax, 1 << 17)],
            Self::Ipi => &[(RECOMMENDATIONS, Eax, 1 << 10 | 1 << 11)],
            Self::Evmcs => &[(RECOMMENDATIONS, Eax, 1 << 14)],
            Self::Time => &[(FEATURES, Eax, 1 << 1 | 1 << 9)],
            Self::Crash => &[(FEATURES, Edx, 1 << 10)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_come_first() {
        for (at, enlightenment) in Enlightenment::ALL.iter().enumerate() {
            for need in enlightenment.needs() {
                assert!(Enlightenment::ALL[..at].contains(need));
            }
        }
    }
}
