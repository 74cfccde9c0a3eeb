//! The table of GSI routes (`KVM_SET_GSI_ROUTING`).

use std::collections::BTreeMap;

use kvm_bindings::{
    KVM_IRQ_ROUTING_IRQCHIP, KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE,
    KvmIrqRouting, kvm_irq_routing_entry,
};
use kvm_ioctls::VmFd;

use crate::error::KvmError;

/// Pins of the IOAPIC.
pub(crate) const IOAPIC_PINS: u32 = 24;

pub(crate) const PIC_PINS: u32 = 8;

/// What `KVM_SET_GSI_ROUTING` was last given. It always replaces the whole table.
#[derive(Debug)]
pub(crate) struct RoutingTable {
    /// Addresses of messages hold 15 bits of destination instead of 8.
    pub uses_x2apic_ids: bool,
    chips: Vec<kvm_irq_routing_entry>,
    pub messages: BTreeMap<u32, kvm_irq_routing_entry>,
}

impl RoutingTable {
    /// The pins as KVM routes them after `KVM_CREATE_IRQCHIP`.
    pub(crate) fn with_chips() -> Self {
        let pic_pins = (0..2 * PIC_PINS).map(|gsi| {
            let chip = if gsi < PIC_PINS {
                KVM_IRQCHIP_PIC_MASTER
            } else {
                KVM_IRQCHIP_PIC_SLAVE
            };
            chip_entry(gsi, chip, gsi % PIC_PINS)
        });
        let ioapic_pins = (0..IOAPIC_PINS).map(|gsi| chip_entry(gsi, KVM_IRQCHIP_IOAPIC, gsi));
        Self {
            uses_x2apic_ids: false,
            chips: pic_pins.chain(ioapic_pins).collect(),
            messages: BTreeMap::new(),
        }
    }

    /// Hands the table to KVM.
    pub(crate) fn apply(&self, vm: &VmFd) -> Result<(), KvmError> {
        let entries: Vec<_> = self
            .chips
            .iter()
            .chain(self.messages.values())
            .copied()
            .collect();
        let table = KvmIrqRouting::from_entries(&entries).map_err(|_| KvmError::TableTooLong {
            call: "KVM_SET_GSI_ROUTING",
        })?;
        vm.set_gsi_routing(&table)
            .map_err(KvmError::ioctl("KVM_SET_GSI_ROUTING"))
    }
}

fn chip_entry(gsi: u32, irqchip: u32, pin: u32) -> kvm_irq_routing_entry {
    let mut entry = kvm_irq_routing_entry {
        gsi,
        type_: KVM_IRQ_ROUTING_IRQCHIP,
        ..kvm_irq_routing_entry::default()
    };
    entry.u.irqchip.irqchip = irqchip;
    entry.u.irqchip.pin = pin;
    entry
}
