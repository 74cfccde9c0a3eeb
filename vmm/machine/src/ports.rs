//! I/O ports and fixed memory ranges: from an exit to a device.

use std::sync::{Arc, Mutex, PoisonError};

use vmm_devices::BusDevice;
use vmm_memory::{ECAM_BASE, ECAM_BYTES};

use crate::pci::{PciBus, ecam_read, ecam_write};

/// A device that several ports lead to.
pub(crate) type SharedDevice = Arc<Mutex<dyn BusDevice>>;

struct PortRange {
    first: u16,
    count: u16,
    device: SharedDevice,
}

/// Everything that vCPU exits can reach.
pub(crate) struct Buses {
    /// Ascending by first port, not overlapping.
    ports: Vec<PortRange>,
    pci: Arc<PciBus>,
}

impl Buses {
    pub(crate) fn new(pci: Arc<PciBus>, ports: Vec<(u16, u16, SharedDevice)>) -> Self {
        let mut ports: Vec<_> = ports
            .into_iter()
            .map(|(first, count, device)| PortRange {
                first,
                count,
                device,
            })
            .collect();
        ports.sort_by_key(|range| range.first);
        Self { ports, pci }
    }

    fn port(&self, port: u16) -> Option<(&SharedDevice, u64)> {
        let at = self.ports.partition_point(|range| range.first <= port);
        let range = self.ports.get(at.checked_sub(1)?)?;
        let offset = port - range.first;
        (offset < range.count).then(|| (&range.device, u64::from(offset)))
    }

    /// `in` of `data.len()` bytes; ones where no device is.
    pub(crate) fn port_read(&self, port: u16, data: &mut [u8]) {
        match self.port(port) {
            Some((device, offset)) => device
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .read(offset, data),
            None => data.fill(0xff),
        }
    }

    /// `out` of `data.len()` bytes.
    pub(crate) fn port_write(&self, port: u16, data: &[u8]) {
        if let Some((device, offset)) = self.port(port) {
            device
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write(offset, data);
        }
    }

    /// A read outside RAM.
    pub(crate) fn mmio_read(&self, address: u64, data: &mut [u8]) {
        match config_offset(address) {
            Some(offset) => ecam_read(&self.pci, offset, data),
            None => self.pci.mmio_read(address, data),
        }
    }

    /// A write outside RAM.
    pub(crate) fn mmio_write(&self, address: u64, data: &[u8]) {
        match config_offset(address) {
            Some(offset) => ecam_write(&self.pci, offset, data),
            None => self.pci.mmio_write(address, data),
        }
    }
}

fn config_offset(address: u64) -> Option<u64> {
    address
        .checked_sub(ECAM_BASE)
        .filter(|offset| *offset < ECAM_BYTES)
}
