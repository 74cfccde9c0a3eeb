//! The socket device.

use std::sync::Arc;

use proto_vmm::v1;
use vmm_devices::virtio::vsock::{MAX_GUEST_CID, MIN_GUEST_CID, VsockConfig, VsockControl};
use vmm_machine::{DeviceConfig, PciAddress, chain};
use vmm_sys::socket::ListeningSocket;

use super::error::FieldError;
use crate::descriptors::{Access, Descriptors, Kind};

/// Reads a socket device.
pub(super) fn vsock(
    path: &str,
    wire: &v1::VirtioVsock,
    descriptors: &mut Descriptors,
) -> Result<DeviceConfig, FieldError> {
    let field = |name: &str| format!("{path}.vsock.{name}");
    let guest_cid = wire.guest_cid;
    if !(MIN_GUEST_CID..=MAX_GUEST_CID).contains(&guest_cid) {
        let rule = format!("is {guest_cid}; {MIN_GUEST_CID} to {MAX_GUEST_CID} are possible");
        return Err(FieldError::new(field("guest_cid"), rule));
    }
    let mut take = |name: &str, index: Option<u32>| {
        let take = |index| descriptors.take(&field(name), index, Kind::Socket, Access::ReadWrite);
        index.map(take).transpose()
    };
    let listen = take("listen_fd", wire.listen_fd)?;
    let broker = take("broker_fd", wire.broker_fd)?;
    let listener = listen
        .map(ListeningSocket::adopt)
        .transpose()
        .map_err(|error| FieldError::new(field("listen_fd"), chain(&error)))?;
    let control = VsockControl::new()
        .map_err(|error| FieldError::new(path, format!("cannot be made: {error}")))?;
    if let Some(broker) = broker {
        control
            .attach_broker(broker)
            .map_err(|error| FieldError::new(field("broker_fd"), chain(&error)))?;
    }
    Ok(DeviceConfig::Vsock(VsockConfig {
        guest_cid,
        listener,
        control: Arc::new(control),
    }))
}

/// A guest has one CID, and so one such device.
pub(super) fn check(devices: &[(PciAddress, DeviceConfig)]) -> Result<(), FieldError> {
    let is_vsock =
        |(_, device): &(PciAddress, DeviceConfig)| matches!(device, DeviceConfig::Vsock(_));
    let second = devices
        .iter()
        .enumerate()
        .filter(|(_, device)| is_vsock(device))
        .nth(1);
    match second {
        None => Ok(()),
        Some((index, _)) => Err(FieldError::new(
            format!("devices[{index}].vsock"),
            "is the second one; a machine has at most one",
        )),
    }
}

/// The handle on the machine's socket device, if it has one.
pub fn control(devices: &[(PciAddress, DeviceConfig)]) -> Option<Arc<VsockControl>> {
    devices.iter().find_map(|(_, device)| match device {
        DeviceConfig::Vsock(config) => Some(Arc::clone(&config.control)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixListener;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    fn sockets() -> Vec<OwnedFd> {
        let path = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(path.path().join("vsock")).unwrap();
        let (unix, none) = (AddressFamily::Unix, SockFlag::empty());
        let (broker, _) = socketpair(unix, SockType::SeqPacket, None, none).unwrap();
        let file = tempfile::tempfile().unwrap();
        vec![listener.into(), broker, file.into()]
    }

    fn read(change: fn(&mut v1::VirtioVsock)) -> Result<DeviceConfig, String> {
        let mut wire = v1::VirtioVsock {
            guest_cid: 3,
            listen_fd: Some(0),
            broker_fd: Some(1),
        };
        change(&mut wire);
        let mut descriptors = Descriptors::new(sockets());
        vsock("devices[0]", &wire, &mut descriptors).map_err(|error| error.field)
    }

    #[test]
    fn a_device_needs_nothing_but_a_cid() {
        assert!(read(|_| {}).is_ok());
        assert!(read(|wire| (wire.listen_fd, wire.broker_fd) = (None, None)).is_ok());
        assert!(read(|wire| wire.guest_cid = u32::MAX - 1).is_ok());
    }

    #[test]
    fn every_wrong_field_is_named() {
        let wrong = |change: fn(&mut v1::VirtioVsock), field: &str| {
            let expected = format!("devices[0].vsock.{field}");
            assert_eq!(read(change).err(), Some(expected));
        };
        for change in [
            (|wire| wire.guest_cid = 0) as fn(&mut v1::VirtioVsock),
            |wire| wire.guest_cid = 2,
            |wire| wire.guest_cid = u32::MAX,
        ] {
            wrong(change, "guest_cid");
        }
        wrong(|wire| wire.listen_fd = Some(2), "listen_fd");
        wrong(
            |wire| (wire.listen_fd, wire.broker_fd) = (Some(1), None),
            "listen_fd",
        );
        wrong(
            |wire| (wire.listen_fd, wire.broker_fd) = (None, Some(0)),
            "broker_fd",
        );
        wrong(|wire| wire.broker_fd = Some(0), "broker_fd");
        wrong(|wire| wire.broker_fd = Some(9), "broker_fd");
    }

    #[test]
    fn a_machine_has_one_such_device_at_most() {
        let place = |number| PciAddress::new(0, number).unwrap();
        let mut devices = vec![(place(1), DeviceConfig::Rng)];
        assert!(control(&devices).is_none());
        devices.push((place(2), read(|_| {}).unwrap()));
        assert!(check(&devices).is_ok() && control(&devices).is_some());
        devices.push((place(3), read(|_| {}).unwrap()));
        assert_eq!(check(&devices).unwrap_err().field, "devices[2].vsock");
    }
}
