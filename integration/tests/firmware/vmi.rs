//! VMIs that firmware boots.

use integration::commands::Commands;

use crate::{PATIENCE, disk};

/// A disk with nothing on it.
pub const BLANK: &str = "emptyDisk: {capacity: 16Mi}";
/// What firmware with nothing to boot says, SeaBIOS and that of a few instructions alike.
pub const NOTHING: &str = "No bootable device.";

/// A VMI of this firmware and these disks: name, boot order if any, and source.
pub fn manifest(name: &str, firmware: &str, disks: &[(&str, &str, &str)]) -> String {
    let mut text = format!(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {{name: {name}}}\n\
         spec:\n  terminationGracePeriodSeconds: 0\n  domain:\n    memory: {{guest: 512Mi}}\n    \
         cpu: {{cores: 2}}\n    firmware: {firmware}\n    devices:\n      disks:\n"
    );
    for (disk, order, _) in disks {
        text.push_str(&format!("      - {{name: {disk}{order}}}\n"));
    }
    text.push_str("  volumes:\n");
    for (disk, _, source) in disks {
        text.push_str(&format!("  - {{name: {disk}, {source}}}\n"));
    }
    text
}

/// One with both stock disks, of which the second is to be booted.
pub fn of_stock_disks(name: &str, firmware: &str) -> String {
    let [first, second] = ["first", "second"].map(stock);
    let disks = [
        ("first", ", bootOrder: 2", first.as_str()),
        ("second", ", bootOrder: 1", second.as_str()),
    ];
    manifest(name, firmware, &disks)
}

/// The source of a stock disk.
pub fn stock(name: &str) -> String {
    format!("hostDisk: {{path: {}, type: Disk}}", disk(name))
}

/// Waits for the event about firmware that found nothing, which said `words`.
pub fn wait_for_no_bootable_device<M: Commands>(
    machine: &M,
    name: &str,
    words: &str,
) -> anyhow::Result<()> {
    let events = format!("kvmctl events --for vmi/{name} --types Warning");
    machine
        .wait_for(
            &format!("{events} | grep -q 'NoBootableDevice.*{words}'"),
            PATIENCE,
        )
        .map(drop)
}
