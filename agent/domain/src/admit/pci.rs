//! PCI addresses: those that devices ask for, and how many there are.

use std::collections::BTreeMap;

use proto_node::vmi::Devices;

use super::review::Review;
use crate::error::{Bound, FieldError, Rule};
use crate::single_device::SingleDevice;
use crate::vmi::PciAddress;

/// Devices of bus 0: 0 is the host bridge, 31 what firmware takes for the ISA bridge.
const FIRST_DEVICE: u8 = 1;
const LAST_DEVICE: u8 = 30;

/// PCI functions that one guest can have: the slots of bus 0 but those of host bridge, LPC bridge and
/// the console, which every guest has for its agent.
const MAX_DEVICES: usize = 29;

/// Why an address cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadAddress {
    /// Not of the form 0000:00:00.0.
    Malformed,
    /// A place that no device can have here.
    Impossible,
}

/// Judges the addresses of all disks and interfaces: their form, and that they are distinct.
pub(super) fn check(devices: &Devices, review: &mut Review<'_>) {
    let disks = devices.disks.iter().enumerate().map(|(index, disk)| {
        let address = disk
            .disk
            .as_ref()
            .map_or("", |target| target.pci_address.as_str());
        let field = format!("spec.domain.devices.disks[{index}].disk.pciAddress");
        (
            field,
            "disk",
            format!("spec.domain.devices.disks[{index}].name"),
            address,
        )
    });
    let interfaces = devices.interfaces.iter().enumerate();
    let interfaces = interfaces.map(|(index, interface)| {
        let field = format!("spec.domain.devices.interfaces[{index}].pciAddress");
        let name = format!("spec.domain.devices.interfaces[{index}].name");
        (field, "interface", name, interface.pci_address.as_str())
    });
    let mut taken: BTreeMap<PciAddress, String> = BTreeMap::new();
    for (field, what, name, text) in disks.chain(interfaces) {
        match parse(text) {
            Ok(None) => {}
            Ok(Some(address)) => {
                if let Some(other) = taken.insert(address, field.clone()) {
                    let message = format!("{other} asks for it too");
                    review.push(FieldError::new(field, Rule::Duplicate, message).value(text));
                }
            }
            Err(BadAddress::Malformed) => {
                let message = format!("{what} {name} has malformed PCI address ({text}).");
                review.invalid(&field, text, message);
            }
            Err(BadAddress::Impossible) => {
                let error = FieldError::new(field, Rule::Invalid, "no device can sit there")
                    .value(text)
                    .fix("use 0000:00:01.0 to 0000:00:1e.0, or 0000:BB:00.0 with any other bus")
                    .beyond(Bound::Release);
                review.push(error);
            }
        }
    }
}

/// Refuses more devices than a machine has room for.
pub(super) fn check_count(devices: &Devices, review: &mut Review<'_>) {
    let singles: Vec<&str> = SingleDevice::wanted(devices)
        .filter(|single| *single != SingleDevice::Console)
        .map(SingleDevice::name)
        .collect();
    let count = devices.disks.len() + devices.interfaces.len() + singles.len();
    if count > MAX_DEVICES {
        let counted = [&["disks", "interfaces"], singles.as_slice()]
            .concat()
            .join(", ");
        review.push(
            FieldError::new(
                "spec.domain.devices",
                Rule::Invalid,
                format!("{count} devices ({counted}): a machine has room for {MAX_DEVICES}"),
            )
            .beyond(Bound::Release),
        );
    }
}

/// Reads `segment:bus:device.function`; an empty text asks for nothing.
pub(super) fn parse(text: &str) -> Result<Option<PciAddress>, BadAddress> {
    if text.is_empty() {
        return Ok(None);
    }
    let (segment, rest) = text.split_once(':').ok_or(BadAddress::Malformed)?;
    let (bus, rest) = rest.split_once(':').ok_or(BadAddress::Malformed)?;
    let (device, function) = rest.split_once('.').ok_or(BadAddress::Malformed)?;
    let segment = number(segment, 4)?;
    let (bus, device) = (number(bus, 2)?, number(device, 2)?);
    let function = number(function, 1)?;
    if function > 7 {
        return Err(BadAddress::Malformed);
    }
    let (Ok(bus), Ok(device)) = (u8::try_from(bus), u8::try_from(device)) else {
        return Err(BadAddress::Malformed);
    };
    let devices = if bus == 0 {
        FIRST_DEVICE..=LAST_DEVICE
    } else {
        0..=0
    };
    if segment != 0 || function != 0 || !devices.contains(&device) {
        return Err(BadAddress::Impossible);
    }
    Ok(Some(PciAddress { bus, device }))
}

/// Exactly so many hexadecimal digits.
fn number(text: &str, digits: usize) -> Result<u16, BadAddress> {
    if text.len() != digits || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(BadAddress::Malformed);
    }
    u16::from_str_radix(text, 16).map_err(|_| BadAddress::Malformed)
}

#[cfg(test)]
mod tests {
    use proto_node::vmi::Interface;

    use super::super::purpose::AdmissionPurpose;
    use super::*;

    #[test]
    fn devices_of_which_a_machine_has_one_count_too() {
        let refused = |devices: &Devices| {
            let mut review = Review::new(AdmissionPurpose::NewAnywhere);
            check_count(devices, &mut review);
            review.errors.pop().map(|error| error.message)
        };
        let mut devices = Devices {
            interfaces: vec![Interface::default(); 28],
            ..Devices::default()
        };
        assert_eq!(refused(&devices), None);
        devices.autoattach_vsock = Some(true);
        let message = "30 devices (disks, interfaces, balloon, vsock): a machine has room for 29";
        assert_eq!(refused(&devices), Some(message.to_owned()));
    }

    #[test]
    fn addresses_are_read_or_refused() {
        let at = |bus, device| Ok(Some(PciAddress { bus, device }));
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse("0000:00:01.0"), at(0, 1));
        assert_eq!(parse("0000:00:1E.0"), at(0, 30));
        assert_eq!(parse("0000:81:00.0"), at(0x81, 0));
        for impossible in [
            "0000:00:00.0",
            "0000:00:1f.0",
            "0000:00:01.1",
            "0000:01:01.0",
            "0001:00:01.0",
        ] {
            assert_eq!(parse(impossible), Err(BadAddress::Impossible));
        }
        for malformed in ["1", "0000:00:01", "00:01.0", "0000:00:01.8", "0000:+1:01.0"] {
            assert_eq!(parse(malformed), Err(BadAddress::Malformed));
        }
    }
}
