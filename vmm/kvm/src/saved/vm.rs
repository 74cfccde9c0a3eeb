//! State of a VM: interrupt chips, PIT, clock.

use kvm_bindings::{
    KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, kvm_clock_data, kvm_irqchip,
};

use super::error::SavedStateError;
use super::raw;
use crate::error::KvmError;
use crate::vm::Vm;

/// State of what all vCPUs share.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VmState {
    /// `struct kvm_irqchip` of the master PIC.
    #[prost(bytes = "vec", tag = "1")]
    pic_master: Vec<u8>,
    /// `struct kvm_irqchip` of the slave PIC.
    #[prost(bytes = "vec", tag = "2")]
    pic_slave: Vec<u8>,
    /// `struct kvm_irqchip` of the IOAPIC.
    #[prost(bytes = "vec", tag = "3")]
    ioapic: Vec<u8>,
    /// `struct kvm_pit_state2`; empty without a PIT.
    #[prost(bytes = "vec", tag = "4")]
    pit: Vec<u8>,
    /// kvmclock, in nanoseconds.
    #[prost(uint64, tag = "5")]
    clock_ns: u64,
}

impl Vm {
    /// Takes the state. No vCPU runs.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn save(&self) -> Result<VmState, SavedStateError> {
        let clock = self
            .fd()
            .get_clock()
            .map_err(KvmError::ioctl("KVM_GET_CLOCK"))?;
        Ok(VmState {
            pic_master: self.chip(KVM_IRQCHIP_PIC_MASTER)?,
            pic_slave: self.chip(KVM_IRQCHIP_PIC_SLAVE)?,
            ioapic: self.chip(KVM_IRQCHIP_IOAPIC)?,
            pit: self.pit()?.as_ref().map(raw::bytes).unwrap_or_default(),
            clock_ns: clock.clock,
        })
    }

    /// Brings a VM that never ran to `state`. Its clock runs from now on.
    ///
    /// # Errors
    /// When the state is damaged or the host refuses.
    pub fn restore(&self, state: &VmState) -> Result<(), SavedStateError> {
        let chips = [
            (KVM_IRQCHIP_PIC_MASTER, &state.pic_master),
            (KVM_IRQCHIP_PIC_SLAVE, &state.pic_slave),
            (KVM_IRQCHIP_IOAPIC, &state.ioapic),
        ];
        for (chip_id, bytes) in chips {
            let chip = kvm_irqchip {
                chip_id,
                ..raw::read("kvm_irqchip", bytes)?
            };
            self.fd()
                .set_irqchip(&chip)
                .map_err(KvmError::ioctl("KVM_SET_IRQCHIP"))?;
        }
        if self.has_pit() {
            self.fd()
                .set_pit2(&raw::read("kvm_pit_state2", &state.pit)?)
                .map_err(KvmError::ioctl("KVM_SET_PIT2"))?;
        }
        let clock = kvm_clock_data {
            clock: state.clock_ns,
            ..kvm_clock_data::default()
        };
        self.fd()
            .set_clock(&clock)
            .map_err(KvmError::ioctl("KVM_SET_CLOCK"))?;
        Ok(())
    }

    fn chip(&self, chip_id: u32) -> Result<Vec<u8>, KvmError> {
        let mut chip = kvm_irqchip {
            chip_id,
            ..kvm_irqchip::default()
        };
        self.fd()
            .get_irqchip(&mut chip)
            .map_err(KvmError::ioctl("KVM_GET_IRQCHIP"))?;
        Ok(raw::bytes(&chip))
    }
}
