//! Devices behind root ports.

use super::net::{self, Network};
use super::*;

/// Devices behind root ports, and an empty port between them.
fn behind_ports(devices: Vec<DeviceConfig>) -> Vec<(PciAddress, DeviceConfig)> {
    let mut all = Vec::new();
    for (index, device) in (0u8..).zip(devices) {
        let bus = 1 + 2 * index;
        for (port, secondary_bus) in [(10 + 2 * index, bus), (11 + 2 * index, bus + 1)] {
            let address = PciAddress::new(0, port).expect("a slot");
            all.push((address, DeviceConfig::RootPort { secondary_bus }));
        }
        all.push((PciAddress::new(bus, 0).expect("a slot"), device));
    }
    all
}

#[test]
fn devices_behind_root_ports_work_with_interrupts_and_by_polling() {
    skip_if!(without_machine().or_else(without_network));
    for mode in ["irq", "poll"] {
        let (file, disk) = disk();
        let nic = Network::new(1).nic(net::config());
        let devices = behind_ports(vec![nic, disk, DeviceConfig::Rng]);
        let command_line = format!("mode={mode} net_frames=64");
        let machine = Machine::boot_with(
            &command_line,
            KernelEntry::Default,
            devices,
            BTreeMap::new(),
        );
        let (status, results) = machine.ended();
        assert_eq!(
            results.one("done"),
            "passed=6 failed=0 skipped=0",
            "{results:#?}"
        );
        for (device, place) in [("net", "01:00.0"), ("blk", "03:00.0"), ("rng", "05:00.0")] {
            let line = results.one(device);
            assert!(line.contains(&format!("pci={place} ")), "{line}");
            assert_eq!(results.number(device, "irqs") > 0, mode == "irq", "{line}");
        }
        assert_eq!(first_word(&file), FIRST_WORD_ON_DISK);
        assert_powered_off(&status, &results);
    }
}
