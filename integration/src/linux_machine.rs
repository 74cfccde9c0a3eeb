//! Stock Linux in machines without an agent: a node with all that it takes to run them by `vmm-front`.

mod machine;

use std::time::Duration;

use crate::commands::Commands;
use crate::image::kernel::{self, PERIODIC_TICKS};
use crate::image::{busybox, tools_disk};
use crate::node::{Flavour, Node, NodeSpec};

pub use machine::Machine;

/// A stock guest takes up to half a minute to boot under emulation, and a minute to try its devices.
pub const PATIENCE: Duration = Duration::from_secs(450);
/// Where a node's scratch files lie: on its ext4 disk.
pub const SCRATCH: &str = "/var/lib/kvmlet/scratch";

/// The tools disk in the node.
const TOOLS: &str = "/dev/disk-tools";
const IMAGES: &str = "/opt/payload/images";

/// A busybox node with the VMM, `vmm-front`, the stock guest and the tools disk.
///
/// # Errors
/// When an image cannot be made or the node does not come up.
pub fn node() -> anyhow::Result<Node> {
    node_with(|_| {})
}

/// The same node, changed.
///
/// # Errors
/// As [`node`].
pub fn node_with(change: impl FnOnce(&mut NodeSpec)) -> anyhow::Result<Node> {
    let kernel = kernel::stock()?;
    let tools = tools_disk::tools_disk(&kernel)?;
    let mut spec = NodeSpec::bare(Flavour::Busybox)
        .with_programs(&["kvmlet-vmm", "vmm-front"])?
        // Unpacked here, which under emulation saves more than it costs.
        .with(kernel.vmlinux(), "images/vmlinux")
        .with(busybox::guest()?.initrd(), "images/initrd");
    let drive = format!(
        "file={},format=raw,if=none,id=tools,read-only=on",
        tools.display()
    );
    spec.qemu_arguments.extend([
        "-drive".to_owned(),
        drive,
        "-device".to_owned(),
        "virtio-blk-pci,drive=tools,serial=tools".to_owned(),
    ]);
    change(&mut spec);
    let node = Node::boot(spec)?;
    node.sh(&format!(
        "mkdir -p {SCRATCH} /mnt/tools
         for disk in /sys/block/vd*; do
             [ \"$(cat $disk/serial)\" != tools ] || ln -s /dev/${{disk##*/}} {TOOLS}
         done
         mount -t ext4 -o ro {TOOLS} /mnt/tools
         mount -t tmpfs tmp /mnt/tools/tmp
         for kept in dev proc sys; do mount --bind /$kept /mnt/tools/$kept; done
         chroot /mnt/tools /sbin/ip tuntap add tap0 mode tap vnet_hdr && ip link set tap0 up && ip addr add 10.77.0.1/24 dev tap0"
    ))?;
    Ok(node)
}

/// The flags of every machine: kernel, initramfs, the tools disk as the last disk, `script` before it,
/// more `words` on the command line.
///
/// # Errors
/// When the script cannot be put on the node.
pub fn flags(
    node: &Node,
    script: &str,
    disks: &[&str],
    words: &str,
) -> anyhow::Result<Vec<String>> {
    let file = put(node, script)?;
    let letter = |index: usize| (b'a' + u8::try_from(index).unwrap_or(u8::MAX)) as char;
    let (script_disk, root) = (letter(disks.len()), letter(disks.len() + 1));
    let mut flags = boot_flags();
    flags.push(format!(
        "--cmdline=console=ttyS0 quiet {PERIODIC_TICKS} kvmlet.ip=10.77.0.2/24 \
         kvmlet.script=/dev/vd{script_disk} kvmlet.root=/dev/vd{root} {words}"
    ));
    flags.extend(disks.iter().map(|disk| format!("--disk={disk}")));
    flags.push(format!("--disk={file},ro"));
    flags.push(format!("--disk={TOOLS},ro,serial=tools"));
    Ok(flags)
}

/// The flags of a machine that has no disk but one with `script`, which busybox runs.
///
/// # Errors
/// When the script cannot be put on the node.
pub fn small(node: &Node, script: &str) -> anyhow::Result<Vec<String>> {
    let file = put(node, script)?;
    let mut flags = boot_flags();
    flags.push("--cmdline=console=ttyS0 quiet kvmlet.ip=none kvmlet.script=/dev/vda".to_owned());
    flags.push(format!("--disk={file},ro"));
    Ok(flags)
}

fn boot_flags() -> Vec<String> {
    vec![
        "--vmm=/opt/payload/bin/kvmlet-vmm".to_owned(),
        format!("--kernel={IMAGES}/vmlinux"),
        format!("--initrd={IMAGES}/initrd"),
    ]
}

/// A file of the node whose first bytes are `script`; as a disk it has whole sectors, and zeros follow.
fn put(node: &Node, script: &str) -> anyhow::Result<String> {
    let file = format!("{SCRATCH}/script");
    let mut content = script.as_bytes().to_vec();
    content.resize((content.len() + 1).next_multiple_of(512), 0);
    node.put(&file, 0o600, &content)?;
    Ok(file)
}
