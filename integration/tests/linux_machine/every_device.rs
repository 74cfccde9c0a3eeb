//! A node, and the flags of a machine in it that has every device.

use integration::commands::Commands;
use integration::node::Node;

use crate::guest::{self, SCRATCH};

/// Directory of the sockets, for programs of the tools disk, and for all others.
pub const INSIDE: &str = "/tmp/sockets";
pub const OUTSIDE: &str = "/mnt/tools/tmp/sockets";

/// Disks of every way to do I/O, and the script's view of them.
pub const DISKS: [(&str, &str, &str); 3] = [
    ("vda", "ring", ",queues=4"),
    (
        "vdb",
        "direct",
        ",cache=none,queues=2,logical=4096,physical=4096",
    ),
    (
        "vdc",
        "threads",
        ",cache=writethrough,io=threads,discard,thread=slow",
    ),
];
pub const DISK_MIB: u64 = 64;

/// What SMBIOS is asked to tell.
const SMBIOS: [&str; 4] = [
    "system,manufacturer=Maker,product=Thing,version=1.2,serial=S-17,uuid=6a1f0b2e-0d6b-4a7e-9f54-0123456789ab,sku=K-9,family=Things",
    "board,manufacturer=Board Maker,serial=B-18",
    "chassis,serial=C-19,asset=A-20,sku=K-21",
    "oem,first text,second text",
];

/// A node, and the flags of a machine in it that has every device but a generation id: `cpus`, options
/// of its `nic`, a `script`, more `words` of the command line.
pub fn everything(
    script: &str,
    cpus: &str,
    nic: &str,
    words: &str,
) -> anyhow::Result<(Node, Vec<String>)> {
    let node = guest::node()?;
    for (_, serial, _) in DISKS {
        node.sh(&format!("truncate -s {DISK_MIB}M {SCRATCH}/{serial}"))?;
    }
    let disks =
        DISKS.map(|(_, serial, options)| format!("{SCRATCH}/{serial},serial={serial}{options}"));
    let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
    let mut flags = guest::flags(&node, script, &disks, words)?;
    flags.extend([
        format!("--cpus={cpus}"),
        "--memory=512M".to_owned(),
        format!("--net=tap0,mac=02:00:00:00:00:07{nic}"),
        format!("--vsock=5,listen={OUTSIDE}/vsock,broker={OUTSIDE}"),
    ]);
    let devices = [
        "--rng",
        "--port=console,console",
        "--port=org.qemu.guest_agent.0",
        "--balloon=16M,oom,reporting,stats=1000",
        "--watchdog=reset",
        "--pvpanic=isa",
        "--pvpanic=pci",
        "--spare-ports",
    ];
    flags.extend(devices.map(str::to_owned));
    flags.push(format!("--port=echo,listen={OUTSIDE}/port"));
    flags.extend(SMBIOS.map(|table| format!("--smbios={table}")));
    serve(&node)?;
    // Two tests of the guest's, one connection each.
    node.sh("for port in 5201 5202; do chroot /mnt/tools /usr/bin/iperf3 -s -1 -p $port >/dev/null 2>&1 & done")?;
    Ok((node, flags))
}

/// The other ends of what the guest does.
fn serve(node: &Node) -> anyhow::Result<()> {
    node.sh(&format!(
        "mkdir -p {OUTSIDE}
         chroot /mnt/tools socat TCP-LISTEN:5001 EXEC:cat >/dev/null 2>&1 &
         chroot /mnt/tools socat UNIX-LISTEN:{INSIDE}/7,fork EXEC:cat >/dev/null 2>&1 &"
    ))?;
    Ok(())
}
