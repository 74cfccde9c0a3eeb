//! Which of Hyper-V's enlightenments a guest gets, as it is asked for.

use proto_machine::hyperv::Enlightenment;

use super::error::CpuError;

/// Everything but the limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HypervConfig {
    /// The enlightenments that the guest is offered.
    pub enlightenments: Vec<Enlightenment>,
    /// Every enlightenment that the host's KVM has is on, too.
    pub passthrough: bool,
    /// How often a spin lock is tried before the guest calls the hypervisor; with `Spinlocks`.
    pub spinlock_retries: u32,
    /// Signature instead of "Microsoft Hv", at most 12 bytes.
    pub vendor: Option<String>,
}

impl HypervConfig {
    /// Whether CPUID shows Hyper-V at all.
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
}
