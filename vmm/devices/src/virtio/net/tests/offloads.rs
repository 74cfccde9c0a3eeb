//! What the host may leave undone.

use super::*;
use crate::virtio::net::command::{ERROR, OK};
use crate::virtio::transport::INDIRECT_DESC;

const GUEST_CSUM: u64 = 1 << 1;
const GUEST_TSO4: u64 = 1 << 7;
const GUEST_USO4: u64 = 1 << 54;
const GUEST_USO6: u64 = 1 << 55;

fn offered(nic: &mut Nic) -> u64 {
    let half = |nic: &mut Nic, select: u32| {
        nic.driver.common(0, &select.to_le_bytes());
        let mut data = [0; 4];
        nic.driver.function.bar_read(0, 4, &mut data);
        u64::from(u32::from_le_bytes(data))
    };
    half(nic, 0) | half(nic, 1) << 32
}

#[test]
fn offloads_follow_what_the_driver_took() {
    let nic = Nic::new(GUEST_CSUM | GUEST_TSO4);
    let expected = TapOffloads {
        checksum: true,
        tso4: true,
        ..TapOffloads::default()
    };
    assert_eq!(nic.settings.lock().unwrap().offloads, Some(expected));
    let mut nic = Nic::new(0);
    let none = Some(TapOffloads::default());
    assert_eq!(nic.settings.lock().unwrap().offloads, none);

    // Segmentation without checksums is refused.
    nic.driver.set_status(0);
    nic.driver.set_status(3);
    nic.driver.negotiate(VERSION_1 | GUEST_TSO4);
    assert_eq!(nic.driver.status(), 3);
}

#[test]
fn offloads_change_by_command_within_what_was_taken() {
    let features = config::CTRL_VQ | config::CTRL_GUEST_OFFLOADS | GUEST_CSUM | GUEST_TSO4;
    let mut nic = Nic::new(features | GUEST_USO4 | GUEST_USO6);
    let set = |nic: &mut Nic, offloads: u64| {
        let mut command = vec![5, 0];
        command.extend(offloads.to_le_bytes());
        nic.command(2, &command)
    };
    assert_eq!(set(&mut nic, 0), OK);
    let none = Some(TapOffloads::default());
    assert_eq!(nic.settings.lock().unwrap().offloads, none);
    assert_eq!(set(&mut nic, GUEST_CSUM | GUEST_USO4 | GUEST_USO6), OK);
    let uso = TapOffloads {
        checksum: true,
        uso: true,
        ..TapOffloads::default()
    };
    assert_eq!(nic.settings.lock().unwrap().offloads, Some(uso));
    // TSO6 was not taken; bit 0 is nothing that a guest could say.
    assert_eq!(set(&mut nic, GUEST_CSUM | 1 << 8), ERROR);
    assert_eq!(set(&mut nic, 1), ERROR);
    nic.settings.lock().unwrap().refuses = true;
    assert_eq!(set(&mut nic, 0), ERROR);
    assert_eq!(nic.settings.lock().unwrap().offloads, Some(uso));
}

#[test]
fn segmentation_of_udp_is_offered_where_the_host_knows_it() {
    for knows_uso in [true, false] {
        let settings = Arc::default();
        let (mut backends, _wires) = backends(1, &settings);
        backends[0].knows_uso = knows_uso;
        let device = NetDevice::new(backends, &super::config()).unwrap();
        let uso = 1 << 56 | GUEST_USO4 | GUEST_USO6;
        let expected = if knows_uso { uso } else { 0 };
        assert_eq!(device.features() & uso, expected);
    }
}

#[test]
fn features_follow_the_configuration() {
    let mut nic = Nic::new(0);
    let features = offered(&mut nic);
    assert_eq!(features & (config::MQ | 1 << 63), 0);
    assert_ne!(features & (1 << 3), 0);
    assert_ne!(features & INDIRECT_DESC, 0);
    let config = NetConfig {
        mtu: 0,
        speed_mbps: 25_000,
        ..super::config()
    };
    let mut nic = Nic::with(2, &config, 0);
    let features = offered(&mut nic);
    assert_eq!(features & (1 << 3), 0);
    assert_ne!(features & config::MQ, 0);
    assert_ne!(features & (1 << 63), 0);
    let mut speed = [0; 4];
    nic.driver.function.bar_read(0, 0x200c, &mut speed);
    assert_eq!(u32::from_le_bytes(speed), 25_000);
    let mut duplex = [0];
    nic.driver.function.bar_read(0, 0x2010, &mut duplex);
    assert_eq!(duplex, [1]);
    assert_eq!(nic.configuration()[8..10], [2, 0]);
}

#[test]
fn features_come_with_those_they_need() {
    let alone = [
        1 << 7,
        1 << 8,
        1 << 9,
        1 << 10,
        1 << 11,
        1 << 13,
        1 << 14,
        GUEST_USO4,
        1 << 56,
        config::CTRL_RX,
        config::CTRL_RX_EXTRA | config::CTRL_VQ,
        config::MQ,
        config::GUEST_ANNOUNCE,
    ];
    for feature in alone {
        assert!(!config::consistent(feature), "{feature:#x}");
    }
    let all = config::features(
        &super::config(),
        Abilities {
            pairs: 2,
            uso: true,
        },
    );
    assert!(config::consistent(all));
    assert!(config::consistent(0));
}
