//! The q35 host bridge (Intel 3 Series Express Chipset Family, 82G33 MCH), as far as software looks.

use vmm_devices::{ConfigEffect, Payload, PciFunction};
use vmm_memory::ECAM_BASE;

const VENDOR_INTEL: [u8; 2] = 0x8086u16.to_le_bytes();
const DEVICE_Q35_MCH: [u8; 2] = 0x29c0u16.to_le_bytes();
const CLASS_HOST_BRIDGE: [u8; 3] = [0, 0, 6];
/// PCIEXBAR: base of configuration space, 256 MiB, enabled.
const PCIEXBAR: usize = 0x60;
const PCIEXBAR_ENABLE: u64 = 1;

/// All read only: configuration space does not move.
pub(super) struct HostBridge {
    config: [u8; 256],
}

impl HostBridge {
    pub(super) fn new() -> Self {
        let mut config = [0; 256];
        let fields: [(usize, &[u8]); 4] = [
            (0, &VENDOR_INTEL),
            (2, &DEVICE_Q35_MCH),
            (9, &CLASS_HOST_BRIDGE),
            (PCIEXBAR, &(ECAM_BASE | PCIEXBAR_ENABLE).to_le_bytes()),
        ];
        for (at, bytes) in fields {
            if let Some(field) = config.get_mut(at..at + bytes.len()) {
                field.copy_from_slice(bytes);
            }
        }
        Self { config }
    }
}

impl PciFunction for HostBridge {
    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        let at = usize::from(offset);
        match self.config.get(at..at + data.len()) {
            Some(bytes) => data.copy_from_slice(bytes),
            // A function of conventional PCI: there is no extended space, and guests that see that do
            // not look for capabilities there.
            None => data.fill(0xff),
        }
    }

    fn config_write(&mut self, _: u16, _: &[u8]) -> ConfigEffect {
        ConfigEffect::default()
    }

    fn reset(&mut self) {}

    /// Nothing in it changes.
    fn save(&self) -> Vec<Payload> {
        Vec::new()
    }
}
