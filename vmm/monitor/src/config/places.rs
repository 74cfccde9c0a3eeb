//! Places of PCI functions: each its own, each on a bus that something leads to.

use proto_vmm::v1;
use vmm_machine::{DeviceConfig, PciAddress};

use super::error::FieldError;

/// A root port in each place of bus 0, and a function behind each.
pub(super) const MAX_DEVICES: usize = 2 * PciAddress::MAX_ON_BUS_0;

/// Reads an address.
pub(super) fn address(path: &str, wire: Option<&v1::PciAddress>) -> Result<PciAddress, FieldError> {
    let field = format!("{path}.address");
    let wire = wire.ok_or_else(|| FieldError::new(field.as_str(), "is missing"))?;
    let place = u8::try_from(wire.bus)
        .ok()
        .zip(u8::try_from(wire.device).ok());
    place
        .filter(|_| wire.function == 0)
        .and_then(|(bus, device)| PciAddress::new(bus, device))
        .ok_or_else(|| {
            let rule = format!(
                "is {:02x}:{:02x}.{}; allowed are 00:01.0 to 00:1e.0, and device 00 behind a root port",
                wire.bus, wire.device, wire.function
            );
            FieldError::new(field, rule)
        })
}

/// Reads a root port.
pub(super) fn root_port(path: &str, wire: &v1::RootPort) -> Result<DeviceConfig, FieldError> {
    u8::try_from(wire.secondary_bus)
        .ok()
        .filter(|bus| *bus != 0)
        .map(|secondary_bus| DeviceConfig::RootPort { secondary_bus })
        .ok_or_else(|| {
            let rule = format!("is {}; allowed are 1 to 255", wire.secondary_bus);
            FieldError::new(format!("{path}.root_port.secondary_bus"), rule)
        })
}

/// Checks all places together.
pub(super) fn check(devices: &[(PciAddress, DeviceConfig)]) -> Result<(), FieldError> {
    let mut buses = vec![0];
    for (index, (address, config)) in devices.iter().enumerate() {
        let path = format!("devices[{index}]");
        if devices
            .iter()
            .take(index)
            .any(|(taken, _)| taken == address)
        {
            let rule = format!("is {address}, where another device is");
            return Err(FieldError::new(format!("{path}.address"), rule));
        }
        let DeviceConfig::RootPort { secondary_bus } = config else {
            continue;
        };
        if address.bus() != 0 {
            let rule = format!("is {address}; root ports are on bus 0");
            return Err(FieldError::new(format!("{path}.address"), rule));
        }
        if buses.contains(secondary_bus) {
            let rule = format!("is {secondary_bus}, which another root port leads to");
            let field = format!("{path}.root_port.secondary_bus");
            return Err(FieldError::new(field, rule));
        }
        buses.push(*secondary_bus);
    }
    for (index, (address, _)) in devices.iter().enumerate() {
        if !buses.contains(&address.bus()) {
            let rule = format!("is {address}, and no root port leads to that bus");
            return Err(FieldError::new(format!("devices[{index}].address"), rule));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(bus: u32, device: u32, function: u32) -> v1::PciAddress {
        v1::PciAddress {
            bus,
            device,
            function,
        }
    }

    fn rng(bus: u8, device: u8) -> (PciAddress, DeviceConfig) {
        (PciAddress::new(bus, device).unwrap(), DeviceConfig::Rng)
    }

    fn placed_root_port(device: u8, secondary_bus: u8) -> (PciAddress, DeviceConfig) {
        let address = PciAddress::new(0, device).unwrap();
        (address, DeviceConfig::RootPort { secondary_bus })
    }

    fn field_of(devices: &[(PciAddress, DeviceConfig)]) -> String {
        check(devices)
            .err()
            .map_or(String::new(), |error| error.field)
    }

    #[test]
    fn addresses_that_no_function_can_have_are_refused() {
        assert!(address("d", Some(&wire(0, 1, 0))).is_ok());
        assert!(address("d", Some(&wire(0x81, 0, 0))).is_ok());
        for refused in [
            wire(0, 0, 0),
            wire(0, 31, 0),
            wire(0, 1, 1),
            wire(1, 1, 0),
            wire(256, 0, 0),
            wire(0, 257, 0),
        ] {
            let error = address("d", Some(&refused)).err().unwrap();
            assert_eq!(error.field, "d.address");
        }
        assert!(address("d", None).is_err());
        assert!(root_port("d", &v1::RootPort { secondary_bus: 0 }).is_err());
        assert!(root_port("d", &v1::RootPort { secondary_bus: 256 }).is_err());
    }

    #[test]
    fn every_function_has_its_own_place_on_a_bus_that_is_there() {
        assert_eq!(
            field_of(&[rng(0, 1), rng(1, 0), placed_root_port(2, 1)]),
            ""
        );
        assert_eq!(field_of(&[rng(0, 1), rng(0, 1)]), "devices[1].address");
        assert_eq!(
            field_of(&[placed_root_port(2, 1), rng(2, 0)]),
            "devices[1].address"
        );
        let twice = [placed_root_port(2, 1), placed_root_port(3, 1)];
        assert_eq!(field_of(&twice), "devices[1].root_port.secondary_bus");
        let (nested, config) = (PciAddress::new(1, 0).unwrap(), placed_root_port(3, 2).1);
        assert_eq!(
            field_of(&[placed_root_port(2, 1), (nested, config)]),
            "devices[1].address"
        );
    }
}
