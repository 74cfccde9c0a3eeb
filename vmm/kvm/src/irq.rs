//! GSI routing and irqfds.
//!
//! GSIs 0 to 23 are the pins of PIC and IOAPIC, as KVM routes them itself; those from 24 up are given
//! out for message-signalled interrupts.

use std::sync::{Arc, MutexGuard, PoisonError};

use kvm_bindings::{KVM_IRQ_ROUTING_MSI, kvm_irq_routing_entry};
use vmm_sys_util::eventfd::EventFd;

use crate::error::KvmError;
use crate::routing_table::{IOAPIC_PINS, PIC_PINS, RoutingTable};
use crate::vm::Vm;

/// Most GSIs for messages (`KVM_MAX_IRQ_ROUTES` is 4096).
const MAX_MESSAGE_GSIS: u32 = 4096 - IOAPIC_PINS - 2 * PIC_PINS;

fn message_entry(gsi: u32, address: u64, data: u32) -> kvm_irq_routing_entry {
    let [a0, a1, a2, a3, a4, a5, a6, a7] = address.to_le_bytes();
    let mut entry = kvm_irq_routing_entry {
        gsi,
        type_: KVM_IRQ_ROUTING_MSI,
        ..kvm_irq_routing_entry::default()
    };
    entry.u.msi.address_lo = u32::from_le_bytes([a0, a1, a2, a3]);
    entry.u.msi.address_hi = u32::from_le_bytes([a4, a5, a6, a7]);
    entry.u.msi.data = data;
    entry
}

/// Guests put bits 8 to 14 of a destination where only remapped messages have something, bits 5 to 11
/// of the address (`KVM_FEATURE_MSI_EXT_DEST_ID`, Documentation/virt/kvm/x86/cpuid.rst); KVM takes
/// them in bits 8 and up of the upper half.
fn extended_destination(address: u64) -> u64 {
    const BITS: u64 = 0x7f << 5;
    address & !BITS | (address & BITS) >> 5 << 40
}

/// Gives out GSIs for message-signalled interrupts, each once.
#[derive(Debug, Default)]
pub struct GsiPool {
    given: u32,
}

impl GsiPool {
    /// A GSI that nobody has, or `None` when there are no more.
    pub fn next_gsi(&mut self) -> Option<u32> {
        (self.given < MAX_MESSAGE_GSIS).then(|| {
            self.given += 1;
            IOAPIC_PINS + self.given - 1
        })
    }
}

/// Connects eventfds with interrupts of one VM.
#[derive(Clone, Debug)]
pub struct InterruptRouter {
    vm: Arc<Vm>,
}

impl InterruptRouter {
    /// The router of `vm`.
    #[must_use]
    pub fn new(vm: Arc<Vm>) -> Self {
        Self { vm }
    }

    /// Routes `gsi` to a message, or changes its message.
    ///
    /// # Errors
    /// The kernel's; the former route is kept then.
    pub fn set_message(&self, gsi: u32, address: u64, data: u32) -> Result<(), KvmError> {
        let mut table = self.table();
        let address = if table.uses_x2apic_ids {
            extended_destination(address)
        } else {
            address
        };
        let former = table
            .messages
            .insert(gsi, message_entry(gsi, address, data));
        let result = table.apply(self.vm.fd());
        if result.is_err() {
            match former {
                Some(entry) => table.messages.insert(gsi, entry),
                None => table.messages.remove(&gsi),
            };
        }
        result
    }

    /// Connects `event` with `gsi`: a write raises the interrupt.
    ///
    /// # Errors
    /// The kernel's, such as `EBUSY` when it is connected already.
    pub fn connect(&self, event: &EventFd, gsi: u32) -> Result<(), KvmError> {
        self.vm
            .fd()
            .register_irqfd(event, gsi)
            .map_err(KvmError::ioctl("KVM_IRQFD"))
    }

    /// Undoes [`Self::connect`].
    ///
    /// # Errors
    /// The kernel's; none is expected.
    pub fn disconnect(&self, event: &EventFd, gsi: u32) -> Result<(), KvmError> {
        self.vm
            .fd()
            .unregister_irqfd(event, gsi)
            .map_err(KvmError::ioctl("KVM_IRQFD"))
    }

    fn table(&self) -> MutexGuard<'_, RoutingTable> {
        self.vm.lock_routing()
    }
}

impl Vm {
    pub(crate) fn lock_routing(&self) -> MutexGuard<'_, RoutingTable> {
        // The table is whole whatever happened to another holder of the lock.
        self.routing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_above_255_go_to_the_upper_half() {
        // Destination 0x1a5: 0xa5 as ever, 1 in bit 5.
        assert_eq!(extended_destination(0xfeea_5020), 0x100_feea_5000);
        assert_eq!(extended_destination(0xfeea_5fe0), 0x7f00_feea_5000);
        assert_eq!(extended_destination(0xfeea_5004), 0xfeea_5004);
    }
}
