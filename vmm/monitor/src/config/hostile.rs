//! Configurations that nobody meant: whole ones of which some bytes are others.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use proptest::prelude::*;
use prost::Message;
use proto_vmm::v1::pci_device::Kind;

use super::tests::serial;
use super::*;

fn device(device: u32, kind: Kind) -> v1::PciDevice {
    v1::PciDevice {
        address: Some(v1::PciAddress {
            bus: 0,
            device,
            function: 0,
        }),
        kind: Some(kind),
        ..v1::PciDevice::default()
    }
}

/// One of every device that needs no tap, and something in most fields.
fn wire() -> v1::MachineConfig {
    let blk = v1::VirtioBlk {
        disk_fd: 3,
        queues: 2,
        serial: "serial".to_owned(),
        ..v1::VirtioBlk::default()
    };
    let port = v1::VirtioConsolePort {
        name: "port".to_owned(),
        listen_fd: Some(4),
        ..v1::VirtioConsolePort::default()
    };
    let console = v1::VirtioConsole {
        ports: vec![port],
        ..v1::VirtioConsole::default()
    };
    let balloon = v1::VirtioBalloon {
        target_bytes: 1 << 20,
        ..v1::VirtioBalloon::default()
    };
    let vsock = v1::VirtioVsock {
        guest_cid: 5,
        ..v1::VirtioVsock::default()
    };
    let root_port = v1::RootPort { secondary_bus: 1 };
    v1::MachineConfig {
        devices: vec![
            device(1, Kind::Blk(blk)),
            device(2, Kind::Rng(v1::VirtioRng {})),
            device(3, Kind::Console(console)),
            device(4, Kind::Balloon(balloon)),
            device(5, Kind::Vsock(vsock)),
            device(6, Kind::I6300esb(v1::I6300Esb::default())),
            device(16, Kind::RootPort(root_port)),
        ],
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
