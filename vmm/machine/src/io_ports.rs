//! I/O ports, and memory of ECAM, firmware and BARs: from an exit to a device. Devices at fixed addresses of memory have no
//! table yet.

use std::sync::{Arc, PoisonError};

use crate::acpi::PM_PORTS;
use crate::firmware::Platform;
use crate::firmware::decode::Decode;
use crate::pci::{PciBus, ecam_read, ecam_write};
use crate::port_device::{PlacedDevice, SharedDevice};

struct IoPortRange {
    first: u16,
    count: u16,
    device: SharedDevice,
}

/// Everything that vCPU exits can reach.
pub(crate) struct Buses {
    /// Ascending by first port, not overlapping.
    io_ports: Vec<IoPortRange>,
    pci: Arc<PciBus>,
    decode: Arc<Decode>,
    firmware: Option<FirmwareDecoding>,
}

/// What a machine with firmware has besides.
struct FirmwareDecoding {
    platform: Arc<Platform>,
    /// ACPI hardware, where firmware puts it.
    power: SharedDevice,
}

impl Buses {
    pub(crate) fn new(pci: Arc<PciBus>, devices: &[PlacedDevice]) -> Self {
        let fixed = devices.iter().filter_map(|placed| {
            let (first, count) = placed.ports?;
            Some(IoPortRange {
                first,
                count,
                device: Arc::clone(&placed.device),
            })
        });
        let mut io_ports: Vec<_> = fixed.collect();
        io_ports.sort_by_key(|range| range.first);
        Self {
            io_ports,
            pci,
            decode: Arc::new(Decode::fixed()),
            firmware: None,
        }
    }

    /// Those of a machine whose firmware says where `power` and the rest of `platform` are.
    pub(crate) fn with_firmware(
        pci: Arc<PciBus>,
        devices: &[PlacedDevice],
        platform: Arc<Platform>,
        power: SharedDevice,
    ) -> Self {
        Self {
            decode: Arc::clone(platform.decode()),
            firmware: Some(FirmwareDecoding { platform, power }),
            ..Self::new(pci, devices)
        }
    }

    fn device_of(&self, port: u16) -> Option<(&SharedDevice, u64)> {
        self.fixed_device(port).or_else(|| self.moved_device(port))
    }

    fn fixed_device(&self, port: u16) -> Option<(&SharedDevice, u64)> {
        let at = self.io_ports.partition_point(|range| range.first <= port);
        let range = self.io_ports.get(at.checked_sub(1)?)?;
        let offset = port - range.first;
        (offset < range.count).then(|| (&range.device, u64::from(offset)))
    }

    fn moved_device(&self, port: u16) -> Option<(&SharedDevice, u64)> {
        let power = &self.firmware.as_ref()?.power;
        let offset = port.checked_sub(self.decode.power()?)?;
        (offset < PM_PORTS).then(|| (power, u64::from(offset)))
    }

    /// `in` of `data.len()` bytes; ones where no device is.
    pub(crate) fn port_read(&self, port: u16, data: &mut [u8]) {
        match self.device_of(port) {
            Some((device, offset)) => device
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .read(offset, data),
            None => data.fill(0xff),
        }
    }

    /// `out` of `data.len()` bytes.
    pub(crate) fn port_write(&self, port: u16, data: &[u8]) {
        if let Some((device, offset)) = self.device_of(port) {
            device
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write(offset, data);
        }
    }

    /// A read outside RAM.
    pub(crate) fn mmio_read(&self, address: u64, data: &mut [u8]) {
        if let Some(offset) = self.decode.ecam_offset(address) {
            return ecam_read(&self.pci, offset, data);
        }
        let firmware = self.firmware.as_ref();
        if !firmware.is_some_and(|moved| moved.platform.read(address, data)) {
            self.pci.mmio_read(address, data);
        }
    }

    /// A write outside RAM.
    pub(crate) fn mmio_write(&self, address: u64, data: &[u8]) {
        if let Some(offset) = self.decode.ecam_offset(address) {
            return ecam_write(&self.pci, offset, data);
        }
        let firmware = self.firmware.as_ref();
        if !firmware.is_some_and(|moved| moved.platform.write(address, data)) {
            self.pci.mmio_write(address, data);
        }
    }
}
