//! NICs and their limits.

use std::collections::BTreeSet;

use proto_machine::MAX_ACPI_INDEX;
use proto_vmm::v1;
use vmm_devices::virtio::net::{MAX_PAIRS, NetConfig, NetLimits};
use vmm_devices::virtio::rate::RateLimit;
use vmm_machine::{DeviceConfig, NicConfig, PciAddress};

use super::error::FieldError;
use crate::descriptors::{Access, Descriptors, Kind};

/// Least MTU that a NIC may have (VIRTIO 1.2, 5.1.4.1).
const MIN_MTU: u16 = 68;

/// Reads a NIC.
pub(super) fn nic(
    path: &str,
    wire: &v1::VirtioNet,
    descriptors: &mut Descriptors,
) -> Result<DeviceConfig, FieldError> {
    let field = |name: &str| format!("{path}.net.{name}");
    let config = config(wire, field)?;
    let count = wire.more_tap_fds.len() + 1;
    if count > MAX_PAIRS {
        let rule = format!("make {count} pairs of queues, more than {MAX_PAIRS}");
        return Err(FieldError::new(field("more_tap_fds"), rule));
    }
    let (kind, access) = (Kind::CharacterDevice, Access::ReadWrite);
    let mut taps = vec![descriptors.take(&field("tap_fd"), wire.tap_fd, kind, access)?];
    for (index, more) in wire.more_tap_fds.iter().enumerate() {
        let field = field(&format!("more_tap_fds[{index}]"));
        taps.push(descriptors.take(&field, *more, kind, access)?);
    }
    if !wire.vhost_fds.is_empty() && wire.vhost_fds.len() != count {
        let rule = format!("are {}, of {count} taps", wire.vhost_fds.len());
        return Err(FieldError::new(field("vhost_fds"), rule));
    }
    if !wire.vhost_fds.is_empty() && config.limits != NetLimits::default() {
        let rule = "cannot be with vhost-net, which knows none";
        return Err(FieldError::new(field("limits"), rule));
    }
    let mut vhost = Vec::new();
    for (index, one) in wire.vhost_fds.iter().enumerate() {
        let field = field(&format!("vhost_fds[{index}]"));
        vhost.push(descriptors.take(&field, *one, kind, access)?);
    }
    Ok(DeviceConfig::Net(NicConfig {
        taps,
        vhost,
        config,
        acpi_index: acpi_index(wire, field)?,
    }))
}

fn acpi_index(
    wire: &v1::VirtioNet,
    field: impl Fn(&str) -> String,
) -> Result<Option<u16>, FieldError> {
    u16::try_from(wire.acpi_index)
        .ok()
        .filter(|index| *index <= MAX_ACPI_INDEX)
        .map(|index| (index > 0).then_some(index))
        .ok_or_else(|| {
            let rule = format!("is {}; allowed are 1 to {MAX_ACPI_INDEX}", wire.acpi_index);
            FieldError::new(field("acpi_index"), rule)
        })
}

/// Checks the numbers of all NICs together.
pub(super) fn check_acpi_indexes(devices: &[(PciAddress, DeviceConfig)]) -> Result<(), FieldError> {
    let mut taken = BTreeSet::new();
    for (index, (_, config)) in devices.iter().enumerate() {
        let DeviceConfig::Net(nic) = config else {
            continue;
        };
        if let Some(number) = nic.acpi_index.filter(|number| !taken.insert(*number)) {
            let rule = format!("is {number}, which another NIC has");
            let field = format!("devices[{index}].net.acpi_index");
            return Err(FieldError::new(field, rule));
        }
    }
    Ok(())
}

fn config(wire: &v1::VirtioNet, field: impl Fn(&str) -> String) -> Result<NetConfig, FieldError> {
    let mac = <[u8; 6]>::try_from(wire.mac.as_slice())
        .ok()
        .filter(|[first, ..]| first & 1 == 0)
        .ok_or_else(|| FieldError::new(field("mac"), "is not a unicast address of 6 bytes"))?;
    let mtu = u16::try_from(wire.mtu)
        .ok()
        .filter(|mtu| *mtu == 0 || *mtu >= MIN_MTU)
        .ok_or_else(|| {
            let rule = format!("is {}; allowed are {MIN_MTU} to {}", wire.mtu, u16::MAX);
            FieldError::new(field("mtu"), rule)
        })?;
    Ok(NetConfig {
        mac,
        mtu,
        speed_mbps: wire.speed_mbps,
        link_down: wire.link_down,
        shared_vector: wire.shared_vector,
        limits: limits(wire.limits.as_ref()),
    })
}

/// Limits; any numbers will do.
pub fn limits(wire: Option<&v1::NetLimits>) -> NetLimits {
    let Some(wire) = wire else {
        return NetLimits::default();
    };
    let limit = |wire: &Option<v1::RateLimit>| {
        wire.as_ref()
            .map_or(RateLimit::default(), |wire| RateLimit {
                per_second: wire.per_second,
                burst: wire.burst,
            })
    };
    NetLimits {
        receive_bytes: limit(&wire.receive_bytes),
        receive_frames: limit(&wire.receive_frames),
        transmit_bytes: limit(&wire.transmit_bytes),
        transmit_frames: limit(&wire.transmit_frames),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    fn wire() -> v1::VirtioNet {
        v1::VirtioNet {
            mac: vec![2, 0, 0, 0, 0, 7],
            ..v1::VirtioNet::default()
        }
    }

    /// The NIC, with three character devices to choose from.
    fn read(wire: &v1::VirtioNet) -> Result<NicConfig, String> {
        let null = || {
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).open("/dev/null").unwrap()
        };
        let all = (0..3).map(|_| OwnedFd::from(null())).collect();
        match nic("devices[0]", wire, &mut Descriptors::new(all)) {
            Ok(DeviceConfig::Net(nic)) => Ok(nic),
            Ok(_) => panic!("no NIC"),
            Err(error) => Err(error.field),
        }
    }

    #[test]
    fn a_nic_of_nothing_but_tap_and_address_has_one_pair() {
        let nic = read(&wire()).unwrap();
        assert_eq!(nic.taps.len(), 1);
        let expected = NetConfig {
            mac: [2, 0, 0, 0, 0, 7],
            ..NetConfig::default()
        };
        assert_eq!((nic.config, nic.acpi_index), (expected, None));
    }

    #[test]
    fn everything_else_is_as_it_says() {
        let limit = |per_second| {
            Some(v1::RateLimit {
                per_second,
                burst: 9,
            })
        };
        let wire = v1::VirtioNet {
            mtu: 9000,
            more_tap_fds: vec![2, 1],
            vhost_fds: vec![],
            link_down: true,
            shared_vector: true,
            speed_mbps: 10_000,
            acpi_index: 16_383,
            limits: Some(v1::NetLimits {
                receive_bytes: limit(1),
                receive_frames: limit(2),
                transmit_bytes: limit(3),
                transmit_frames: limit(4),
            }),
            ..wire()
        };
        let nic = read(&wire).unwrap();
        assert_eq!(nic.taps.len(), 3);
        let limits = nic.config.limits;
        let all = [
            limits.receive_bytes,
            limits.receive_frames,
            limits.transmit_bytes,
            limits.transmit_frames,
        ];
        assert_eq!(all.map(|limit| limit.per_second), [1, 2, 3, 4]);
        assert_eq!(all.map(|limit| limit.burst), [9; 4]);
        assert!(nic.config.link_down && nic.config.shared_vector);
        assert_eq!((nic.config.mtu, nic.config.speed_mbps), (9000, 10_000));
        assert_eq!(nic.acpi_index, Some(16_383));
    }

    #[test]
    fn every_wrong_field_is_named() {
        let wrong = |change: fn(&mut v1::VirtioNet), field: &str| {
            let mut wire = wire();
            change(&mut wire);
            let found = read(&wire).err();
            assert_eq!(found, Some(format!("devices[0].net.{field}")));
        };
        wrong(|net| net.mac = vec![2; 5], "mac");
        wrong(|net| net.mac = vec![3; 6], "mac");
        wrong(|net| net.mtu = 67, "mtu");
        wrong(|net| net.mtu = 65_536, "mtu");
        wrong(|net| net.acpi_index = 16_384, "acpi_index");
        wrong(|net| net.acpi_index = 65_537, "acpi_index");
        wrong(|net| net.tap_fd = 3, "tap_fd");
        wrong(|net| net.more_tap_fds = vec![1, 1], "more_tap_fds[1]");
        wrong(|net| net.more_tap_fds = vec![1; 32], "more_tap_fds");
        wrong(|net| net.vhost_fds = vec![1, 2], "vhost_fds");
        wrong(|net| net.vhost_fds = vec![0], "vhost_fds[0]");
        let limits = |net: &mut v1::VirtioNet| {
            net.vhost_fds = vec![1];
            let limit = v1::RateLimit {
                per_second: 1,
                burst: 0,
            };
            net.limits = Some(v1::NetLimits {
                receive_bytes: Some(limit),
                ..v1::NetLimits::default()
            });
        };
        wrong(limits, "limits");
    }

    #[test]
    fn no_two_nics_have_one_number() {
        let nic = |device, acpi_index| {
            let wire = v1::VirtioNet {
                acpi_index,
                ..wire()
            };
            let address = PciAddress::new(0, device).unwrap();
            (address, DeviceConfig::Net(read(&wire).unwrap()))
        };
        let field = |devices: &[_]| check_acpi_indexes(devices).err().map(|error| error.field);
        assert_eq!(field(&[nic(1, 0), nic(2, 7), nic(3, 0), nic(4, 8)]), None);
        let twice = field(&[nic(1, 7), nic(2, 7)]);
        assert_eq!(twice.as_deref(), Some("devices[1].net.acpi_index"));
    }
}
