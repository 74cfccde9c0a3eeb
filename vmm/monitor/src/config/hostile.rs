//! Configurations that nobody meant: whole ones of which some bytes are others.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use proptest::prelude::*;
use prost::Message;
use proto_vmm::v1::pci_device::Kind;

use super::tests::serial;
use super::*;

/// One of each kind of device that the protocol has, with no field set.
fn kinds() -> impl Iterator<Item = Kind> {
    // A field of no bytes: the number of a kind makes one, all others are something else or unknown.
    (1..64).filter_map(|number: u64| {
        let mut bytes = Vec::new();
        prost::encoding::encode_varint(number << 3 | 2, &mut bytes);
        bytes.push(0);
        v1::PciDevice::decode(bytes.as_slice()).ok()?.kind
    })
}

/// Something in most fields; nothing for what needs a tap.
fn filled(kind: Kind) -> Option<Kind> {
    Some(match kind {
        Kind::Net(_) => return None,
        Kind::Blk(_) => Kind::Blk(v1::VirtioBlk {
            disk_fd: 3,
            queues: 2,
            serial: "serial".to_owned(),
            ..v1::VirtioBlk::default()
        }),
        Kind::Console(_) => Kind::Console(v1::VirtioConsole {
            ports: vec![v1::VirtioConsolePort {
                name: "port".to_owned(),
                listen_fd: Some(4),
                ..v1::VirtioConsolePort::default()
            }],
            ..v1::VirtioConsole::default()
        }),
        Kind::Balloon(_) => Kind::Balloon(v1::VirtioBalloon {
            target_bytes: 1 << 20,
            ..v1::VirtioBalloon::default()
        }),
        Kind::Vsock(_) => Kind::Vsock(v1::VirtioVsock {
            guest_cid: 5,
            ..v1::VirtioVsock::default()
        }),
        Kind::RootPort(_) => Kind::RootPort(v1::RootPort { secondary_bus: 1 }),
        // What needs more than this does not pass the first test below.
        other => other,
    })
}

/// One of every device that needs no tap.
fn wire() -> v1::MachineConfig {
    let devices = (1..)
        .zip(kinds().filter_map(filled))
        .map(|(device, kind)| v1::PciDevice::at(0, device, kind));
    v1::MachineConfig {
        devices: devices.collect(),
        ..super::tests::wire()
    }
}

fn descriptors() -> Descriptors {
    let null = File::options().read(true).write(true).open("/dev/null");
    let file = || OwnedFd::from(tempfile::tempfile().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(directory.path().join("port")).unwrap();
    Descriptors::new(vec![
        null.unwrap().into(),
        file(),
        file(),
        file(),
        listener.into(),
    ])
}

#[test]
fn the_configuration_is_whole_before_it_is_changed() {
    assert!(wire().devices.len() > 7);
    let checked = check(&wire(), descriptors(), serial());
    assert_eq!(checked.err(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Taken, or refused with the path of a field and a rule.
    #[test]
    fn any_bytes_are_taken_or_refused_by_field(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..6),
    ) {
        let mut bytes = wire().encode_to_vec();
        for (index, value, how) in changes {
            let at = index.index(bytes.len());
            match how {
                0 => bytes[at] = value,
                1 => bytes.insert(at, value),
                _ => drop(bytes.remove(at)),
            }
        }
        if let Ok(wire) = v1::MachineConfig::decode(bytes.as_slice())
            && let Err(error) = check(&wire, descriptors(), serial())
        {
            prop_assert!(!error.field.is_empty() && !error.rule.is_empty());
        }
    }
}
