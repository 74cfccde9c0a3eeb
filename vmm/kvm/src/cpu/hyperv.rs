//! Hyper-V's enlightenments: what a guest that knows Hyper-V makes use of.
//!
//! Source: Hypervisor Top Level Functional Specification 6.0b, 2.4 and appendices; names are
//! KubeVirt's. The wire's field of each has the same name.

use super::error::CpuError;
use super::words::Register;

/// Longest vendor signature.
pub const MAX_HYPERV_VENDOR_BYTES: usize = 12;

/// An enlightenment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Enlightenment {
    /// No watchdogs that a slow host would trip.
    Relaxed,
    /// The APIC by MSRs, and the assist page.
    Vapic,
    /// Spin locks tell of long waits.
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

/// Everything but the limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HypervConfig {
    /// What is on.
    pub enlightenments: Vec<Enlightenment>,
    /// Every enlightenment that the host's KVM has is on, too.
    pub passthrough: bool,
    /// How often a spin lock is tried before the hypervisor is told; with `Spinlocks`.
    pub spinlock_retries: u32,
    /// Signature instead of "Microsoft Hv", at most 12 bytes.
    pub vendor: Option<String>,
}

/// Bits of a leaf.
pub(crate) type Bits = (u32, Register, u32);

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
    fn needs(self) -> &'static [Self] {
        match self {
            Self::Synic | Self::Tlbflush | Self::Ipi => &[Self::Vpindex],
            Self::Synictimer => &[Self::Synic, Self::Time],
            Self::SynictimerDirect => &[Self::Synictimer],
            Self::TlbflushExtended | Self::TlbflushDirect => &[Self::Tlbflush],
            Self::Evmcs => &[Self::Vapic],
            _ => &[],
        }
    }

    /// What tells a guest of it, and what a host says that can do it.
    pub(crate) fn bits(self) -> &'static [Bits] {
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

impl HypervConfig {
    /// Whether the guest is told of Hyper-V at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.passthrough || !self.enlightenments.is_empty() || self.vendor.is_some()
    }

    /// Whether `enlightenment` is asked for.
    #[must_use]
    pub fn has(&self, enlightenment: Enlightenment) -> bool {
        self.enlightenments.contains(&enlightenment)
    }

    /// Checks that nothing is on whose need is off.
    ///
    /// # Errors
    /// The first that is.
    pub fn check(&self) -> Result<(), CpuError> {
        for enlightenment in &self.enlightenments {
            if let Some(need) = enlightenment.needs().iter().find(|need| !self.has(**need)) {
                return Err(CpuError::HypervNeeds {
                    enlightenment: *enlightenment,
                    need: need.name(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(enlightenments: &[Enlightenment]) -> HypervConfig {
        HypervConfig {
            enlightenments: enlightenments.to_vec(),
            ..HypervConfig::default()
        }
    }

    #[test]
    fn nothing_is_on_whose_need_is_off() {
        use Enlightenment::{Evmcs, Ipi, Synic, Synictimer, Time, Tlbflush, Vapic, Vpindex};
        for (on, field) in [
            (vec![Synic], "hyperv.synic"),
            (vec![Ipi], "hyperv.ipi"),
            (vec![Tlbflush], "hyperv.tlbflush"),
            (vec![Vpindex, Synic, Synictimer], "hyperv.synictimer"),
            (vec![Evmcs], "hyperv.evmcs"),
            (
                vec![Enlightenment::SynictimerDirect],
                "hyperv.synictimer_direct",
            ),
        ] {
            assert_eq!(with(&on).check().unwrap_err().field(), field);
        }
        let fine = [
            Vpindex, Synic, Time, Synictimer, Tlbflush, Ipi, Vapic, Evmcs,
        ];
        assert_eq!(with(&fine).check(), Ok(()));
        assert_eq!(with(&Enlightenment::ALL).check(), Ok(()));
    }

    #[test]
    fn needs_come_first() {
        for (at, enlightenment) in Enlightenment::ALL.iter().enumerate() {
            for need in enlightenment.needs() {
                assert!(Enlightenment::ALL[..at].contains(need));
            }
        }
    }
}
