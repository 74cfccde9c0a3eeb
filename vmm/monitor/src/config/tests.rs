//! Whole configurations, and such with one wrong field.

use std::os::fd::OwnedFd;

use super::*;
use crate::console::SerialLine;

/// A configuration that is whole: a kernel, memory and two vCPUs. Descriptors 0 to 2 are taken.
pub(super) fn wire() -> v1::MachineConfig {
    v1::MachineConfig {
        vmi_uid: "u".to_owned(),
        incarnation: 1,
        cpus: Some(v1::Cpus {
            count: 2,
            sockets: 1,
            cores: 2,
            threads: 1,
            ..v1::Cpus::default()
        }),
        memory: Some(v1::Memory {
            size_bytes: 64 << 20,
            ..v1::Memory::default()
        }),
        kvm_fd: 0,
        exit_record_fd: 1,
        kernel: Some(v1::KernelBoot {
            kernel_fd: 2,
            cmdline: "console=ttyS0".to_owned(),
            ..v1::KernelBoot::default()
        }),
        ..v1::MachineConfig::default()
    }
}

fn descriptors(extra: usize) -> Descriptors {
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .unwrap();
    let mut all: Vec<OwnedFd> = vec![null.into()];
    all.extend((0..2 + extra).map(|_| OwnedFd::from(tempfile::tempfile().unwrap())));
    Descriptors::new(all)
}

/// COM1 of a machine that is never built.
pub(super) fn serial() -> SerialConfig {
    SerialLine::new().unwrap().0.config()
}

fn field_of(wire: &v1::MachineConfig) -> String {
    check(wire, descriptors(0), serial()).err().unwrap().field
}

#[test]
fn a_whole_configuration_is_accepted() {
    assert!(check(&wire(), descriptors(0), serial()).is_ok());
}

#[test]
fn every_wrong_field_is_named() {
    let mut config = wire();
    config.cpus.as_mut().unwrap().count = 3;
    assert_eq!(field_of(&config), "cpus.count");

    let mut config = wire();
    config.memory.as_mut().unwrap().size_bytes = 12345;
    assert_eq!(field_of(&config), "memory.size_bytes");

    let mut config = wire();
    config.kernel.as_mut().unwrap().cmdline = "x".repeat(2048);
    assert_eq!(field_of(&config), "kernel.cmdline");

    let mut config = wire();
    config.kernel.as_mut().unwrap().kernel_fd = 9;
    assert_eq!(field_of(&config), "kernel.kernel_fd");

    let mut config = wire();
    config.kernel.as_mut().unwrap().kernel_fd = 1;
    assert_eq!(field_of(&config), "kernel.kernel_fd");

    let mut config = wire();
    config.kernel = None;
    assert_eq!(field_of(&config), "kernel");

    let mut config = wire();
    config.firmware = Some(v1::FirmwareBoot::default());
    assert_eq!(field_of(&config), "firmware");

    let mut config = wire();
    config.kvm_fd = 2;
    assert_eq!(field_of(&config), "kvm_fd");

    let mut config = wire();
    config.vmi_uid.clear();
    assert_eq!(field_of(&config), "vmi_uid");

    let mut config = wire();
    config.reboot_policy = 77;
    assert_eq!(field_of(&config), "reboot_policy");
}

#[test]
fn devices_are_of_known_kinds() {
    let mut config = wire();
    config.devices = vec![v1::PciDevice {
        address: Some(v1::PciAddress {
            bus: 0,
            device: 1,
            function: 0,
        }),
        kind: None,
        ..v1::PciDevice::default()
    }];
    assert_eq!(field_of(&config), "devices[0]");
}

#[test]
fn a_descriptor_that_no_field_names_is_refused() {
    let error = check(&wire(), descriptors(1), serial()).err().unwrap();
    assert_eq!(error.field, "descriptors");
}
