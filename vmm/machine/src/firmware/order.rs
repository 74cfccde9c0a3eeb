//! What is booted from, as firmware's file `bootorder` tells it: paths of Open Firmware, one a line.

use crate::config::DeviceConfig;
use crate::firmware::error::FirmwareError;
use crate::pci::address::PciAddress;

/// Root of all paths: the host bridge, by its I/O ports.
const HOST_BRIDGE: &str = "/pci@i0cf8";

/// Behind the last path: what is not named before is not booted from.
const NOTHING_ELSE: &str = "HALT";

/// Devices that can be booted from, and how they are reached.
pub(crate) struct BootOrder {
    paths: Vec<(PciAddress, String)>,
}

impl BootOrder {
    /// Learns where all devices are.
    pub(crate) fn of(devices: &[(PciAddress, DeviceConfig)]) -> Self {
        let root_port = |bus: u8| {
            devices.iter().find_map(|(address, config)| match config {
                DeviceConfig::RootPort { secondary_bus } if *secondary_bus == bus => Some(*address),
                _ => None,
            })
        };
        let path = |(address, config): &(PciAddress, DeviceConfig)| {
            let device = address.device();
            let tail = match config {
                DeviceConfig::Blk { .. } => format!("/scsi@{device:x}/disk@0,0"),
                DeviceConfig::Net(_) => format!("/ethernet@{device:x}/ethernet-phy@0"),
                _ => return None,
            };
            let bridge = match address.bus() {
                0 => String::new(),
                bus => format!("/pci-bridge@{:x}", root_port(bus)?.device()),
            };
            Some((*address, format!("{HOST_BRIDGE}{bridge}{tail}")))
        };
        Self {
            paths: devices.iter().filter_map(path).collect(),
        }
    }

    /// The file's content, for devices in this order; nothing when there is no order. Paths are divided
    /// by line ends, and all is followed by a NUL.
    pub(super) fn file(&self, order: &[PciAddress]) -> Result<Option<Vec<u8>>, FirmwareError> {
        if order.is_empty() {
            return Ok(None);
        }
        let path = |address: &PciAddress| {
            let mut known = self.paths.iter();
            let found = known.find(|(known, _)| known == address);
            found.map_or(Err(FirmwareError::BootOrder(*address)), |(_, path)| {
                Ok(path.as_str())
            })
        };
        let mut paths: Vec<&str> = order.iter().map(path).collect::<Result<_, _>>()?;
        paths.push(NOTHING_ELSE);
        let mut file = paths.join("\n").into_bytes();
        file.push(0);
        Ok(Some(file))
    }
}

#[cfg(test)]
mod tests {
    use vmm_devices::virtio::blk::BlkConfig;

    use super::*;

    #[test]
    fn disks_are_named_by_the_way_to_them() {
        let place = |bus, device| PciAddress::new(bus, device).unwrap();
        let disk = || DeviceConfig::Blk {
            image: tempfile::tempfile().unwrap().into(),
            config: BlkConfig::default(),
        };
        let devices = [
            (place(0, 2), disk()),
            (place(0, 0x11), DeviceConfig::RootPort { secondary_bus: 1 }),
            (place(1, 0), disk()),
            (place(0, 3), DeviceConfig::Rng),
        ];
        let order = BootOrder::of(&devices);
        let file = order.file(&[place(1, 0), place(0, 2)]).unwrap().unwrap();
        assert_eq!(
            file,
            b"/pci@i0cf8/pci-bridge@11/scsi@0/disk@0,0\n/pci@i0cf8/scsi@2/disk@0,0\nHALT\0"
        );
        assert_eq!(order.file(&[]).unwrap(), None);
        let error = order.file(&[place(0, 3)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "0000:00:03.0 is in the boot order, but no disk or network device is there"
        );
    }
}
