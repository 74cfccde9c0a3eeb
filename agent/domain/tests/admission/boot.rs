//! What boots a VMI.

use agent_domain::{Admitted, Boot, BootDevice, Bootloader, FirmwareBoot, Lack};
use serde_json::{Value, json};

use super::{admit, admit_with, caps, with};

/// The VMI with this firmware, and these disks if any.
fn booted(firmware: Value, disks: Option<Value>) -> (FirmwareBoot, Admitted) {
    let mut changes = vec![("/spec/domain/firmware", firmware)];
    changes.extend(disks.map(|disks| ("/spec/domain/devices/disks", disks)));
    let admitted = admit(with(&changes)).unwrap();
    let Boot::Firmware(boot) = admitted.vmi.boot.clone() else {
        panic!("{:?}", admitted.vmi.boot);
    };
    (boot, admitted)
}

fn name(device: &BootDevice) -> &str {
    match device {
        BootDevice::Disk(name) | BootDevice::Interface(name) => name.as_str(),
    }
}

fn names(boot: &FirmwareBoot) -> Vec<&str> {
    boot.order.iter().map(name).collect()
}

#[test]
fn without_a_kernel_bios_boots_from_the_disks_in_their_order() {
    for firmware in [
        json!({}),
        json!({"bootloader": {}}),
        json!({"kernelBoot": {}}),
        json!({"bootloader": {"bios": {}}}),
    ] {
        let (boot, admitted) = booted(firmware, None);
        assert_eq!(boot.bootloader, Bootloader::Bios { serial: true });
        assert_eq!(names(&boot), ["root", "scratch"]);
        assert!(admitted.warnings.is_empty());
    }
    let silent = json!({"bootloader": {"bios": {"useSerial": false}}});
    let (boot, _) = booted(silent, None);
    assert_eq!(boot.bootloader, Bootloader::Bios { serial: false });
}

#[test]
fn uefi_is_without_secure_boot_and_may_keep_its_variables() {
    let efi = |efi: Value| {
        booted(json!({"bootloader": {"efi": efi}}), None)
            .0
            .bootloader
    };
    let plain = Bootloader::Efi { persistent: false };
    assert_eq!(efi(json!({"secureBoot": false})), plain);
    let kept = Bootloader::Efi { persistent: true };
    assert_eq!(efi(json!({"secureBoot": false, "persistent": true})), kept);
}

#[test]
fn once_a_device_has_a_boot_order_the_others_are_not_tried() {
    let disks = json!([{"name": "root"}, {"name": "scratch", "bootOrder": 7}]);
    let (boot, admitted) = booted(json!({}), Some(disks));
    assert_eq!(names(&boot), ["scratch"]);
    let again = agent_domain::Vmi::admit(admitted.object.clone(), &caps()).unwrap();
    assert_eq!(admitted, again);

    let nic = json!([{"name": "net", "bridge": {}, "bootOrder": 3}]);
    let disks = json!([{"name": "root", "bootOrder": 4}, {"name": "scratch", "bootOrder": 2}]);
    let order = |firmware: Value| {
        let changes = [
            ("/spec/domain/firmware", firmware),
            ("/spec/domain/devices/disks", disks.clone()),
            ("/spec/domain/devices/interfaces", nic.clone()),
        ];
        let admitted = admit(with(&changes)).unwrap();
        let boot = admitted.vmi.boot.firmware().unwrap().clone();
        assert_eq!(names(&boot), ["scratch", "net", "root"]);
        admitted.warnings
    };
    assert!(order(json!({"bootloader": {"efi": {"secureBoot": false}}})).is_empty());
    assert_eq!(
        order(json!({})),
        [
            "spec.domain.devices.interfaces[0].bootOrder: BIOS boots from no network in this release and goes on to the next"
        ]
    );
}

#[test]
fn what_has_no_effect_is_said() {
    let smm = ("/spec/domain/features", json!({"smm": {}}));
    let ignored = |changes: &[(&str, Value)]| {
        let admitted = admit(with(changes)).unwrap();
        let paths = admitted.ignored.into_iter().map(|remark| remark.path);
        paths.collect::<Vec<_>>()
    };
    let efi = json!({"bootloader": {"efi": {"secureBoot": false}}});
    for firmware in [efi, json!({})] {
        let changes = [("/spec/domain/firmware", firmware), smm.clone()];
        assert_eq!(ignored(&changes), ["spec.domain.features.smm"]);
    }
    let beside = (
        "/spec/domain/firmware/bootloader",
        json!({"bios": {"useSerial": true}}),
    );
    assert_eq!(
        ignored(&[beside]),
        ["spec.domain.firmware.bootloader.bios.useSerial"]
    );
    assert!(ignored(&[("/spec/domain/firmware/bootloader", json!({"bios": {}}))]).is_empty());
}

#[test]
fn firmware_that_a_node_lacks_is_refused_there_and_nothing_else_is() {
    let lack = |why: &str| Lack {
        why: format!("{why} is missing"),
        way_out: "apt install it".to_owned(),
    };
    let mut caps = caps();
    caps.firmware.bios = Some(lack("bios"));
    caps.firmware.efi = Some(lack("efi"));
    let on = |firmware: Value| admit_with(with(&[("/spec/domain/firmware", firmware)]), &caps);
    assert_eq!(
        on(json!({})).unwrap_err(),
        ["spec.domain.firmware.bootloader: Forbidden: bios is missing (apt install it)"]
    );
    assert_eq!(
        on(json!({"bootloader": {"efi": {"secureBoot": false}}})).unwrap_err(),
        ["spec.domain.firmware.bootloader.efi: Forbidden: efi is missing (apt install it)"]
    );
    let kernel = admit_with(with(&[]), &caps).unwrap();
    agent_domain::Vmi::restore(booted(json!({}), None).1.object).unwrap();
    assert_eq!(kernel.vmi.boot.firmware(), None);
}
