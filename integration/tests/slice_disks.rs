//! Disks in a busybox node: owners of block devices, and a slice of `cargo xtask soak powercut`.

#![forbid(unsafe_code)]

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration::agent::{Agent, DISKS, GuestSpec};
use integration::commands::Commands;
use integration::node::{Flavour, Node, NodeSpec};
use integration::soak::powercut::{Campaign, Tally, power_cuts};
use integration::{skip, skip_if, testguest};

/// Each cut is one of every cache mode, on a file and on a block device. The controls, disks whose flushes go nowhere,
/// must lose something for it to pass.
#[test]
fn no_acknowledged_block_is_lost_by_a_power_cut_where_flushes_are_carried_out() -> anyhow::Result<()>
{
    skip_if!(skip::without_node(), Ok(()));
    let campaign = Campaign {
        seed: 7,
        cuts: 2,
        restart_every: u32::MAX,
    };
    let tally = power_cuts(campaign, Tally::default(), |tally| {
        println!("{tally:?}");
        Ok(())
    })?;
    assert_eq!(tally.cuts, 2);
    // Seven disks had been promised something before each.
    assert!(tally.found >= 14, "{tally:?}");
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(60);
const SECTOR_BYTES: usize = 512;

/// A disk of 16 MiB with two partitions of 4 MiB.
fn partitioned() -> Vec<u8> {
    let mut disk = vec![0; 16 << 20];
    for (index, first) in [(0, 2048_u32), (1, 16384)] {
        let entry = &mut disk[446 + index * 16..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&first.to_le_bytes());
        entry[12..].copy_from_slice(&8192_u32.to_le_bytes());
    }
    disk[SECTOR_BYTES - 2..SECTOR_BYTES].copy_from_slice(&[0x55, 0xaa]);
    disk
}

/// A guest with the block device below the name `device`.
fn with_device(name: &str, device: &str, read_only: bool) -> String {
    format!(
        "{}      disks:\n      - name: data\n        disk: {{bus: virtio, readonly: {read_only}}}\n  \
         volumes:\n  - name: data\n    hostDisk: {{path: {DISKS}/{device}, type: Disk}}\n",
        GuestSpec::testguest(name, "tests=none then=idle")
            .without_devices()
            .manifest()
    )
}

struct Owners<'a> {
    node: &'a Node,
    agent: Agent<'a, Node>,
}

impl Owners<'_> {
    fn runs(&self, name: &str, device: &str, read_only: bool) -> anyhow::Result<()> {
        self.agent.apply(&with_device(name, device, read_only))?;
        self.agent.wait_for_phase(name, "Running", PATIENCE)
    }

    /// A guest that may not have its disk says why, and goes.
    fn is_refused(
        &self,
        name: &str,
        (device, read_only): (&str, bool),
        words: &str,
    ) -> anyhow::Result<()> {
        self.agent.apply(&with_device(name, device, read_only))?;
        let script = format!("kvmctl describe vmi {name} | grep -F '{words}'");
        self.node
            .wait_for(&script, PATIENCE)
            .with_context(|| self.agent.log())?;
        assert_ne!(self.agent.value(name, ".status.phase")?, "Running");
        self.delete(name)
    }

    fn delete(&self, names: &str) -> anyhow::Result<()> {
        let order = format!("delete vmi {names} --grace-period 0");
        let deleted = self.agent.kvmctl(&order)?;
        ensure!(deleted.code == Some(0), "{deleted}\n{}", self.agent.log());
        Ok(())
    }
}

fn booted() -> anyhow::Result<(Node, tempfile::NamedTempFile)> {
    let mut disk = tempfile::NamedTempFile::new()?;
    disk.write_all(&partitioned())?;
    let mut spec = NodeSpec::bare(Flavour::Busybox)
        .with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?
        .with(testguest::elf()?, "testguest");
    spec.qemu_arguments.extend([
        "-drive".to_owned(),
        format!("if=none,id=owned,format=raw,file={}", disk.path().display()),
        "-device".to_owned(),
        "virtio-blk-pci,drive=owned,serial=owned".to_owned(),
    ]);
    let node = Node::boot(spec)?;
    // Each name is a node of its own.
    node.sh(&format!(
        "mkdir -p {DISKS} && cd {DISKS}
         for disk in /sys/block/vd*; do [ \"$(cat $disk/serial)\" != owned ] || owned=$disk; done
         make() {{ mknod $1 b $(tr : ' ' <$2/dev); }}
         make whole $owned && make again $owned
         make part1 $owned/${{owned##*/}}1 && make part2 $owned/${{owned##*/}}2
         ln -s /dev/${{owned##*/}}1 /dev/first"
    ))?;
    Ok((node, disk))
}

#[test]
fn a_block_device_has_one_owner_whatever_node_or_partition_names_it() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let (node, _disk) = booted()?;
    let agent = Agent::prepare(&node)?;
    agent.add_image("/opt/payload/testguest", "testguest")?;
    agent.start()?;
    let owners = Owners { node: &node, agent };

    owners.runs("owner", "whole", false)?;
    for device in ["whole", "again", "part1"] {
        owners.is_refused("late", (device, false), "DiskInUse")?;
        owners.is_refused("reader", (device, true), "DiskInUse")?;
    }
    // The claim is the VMM's, not the agent's.
    owners.agent.kill()?;
    owners.agent.start()?;
    owners.is_refused("late", ("part2", false), "DiskInUse")?;
    owners.delete("owner")?;

    owners.runs("one", "whole", true)?;
    owners.runs("two", "again", true)?;
    owners.runs("three", "part1", true)?;
    owners.is_refused("writer", ("again", false), "DiskInUse")?;
    owners.is_refused("writer", ("part2", false), "DiskInUse")?;
    owners.delete("one two")?;
    owners.is_refused("writer", ("whole", false), "DiskInUse")?;
    owners.delete("three")?;

    owners.runs("left", "part1", false)?;
    owners.runs("right", "part2", false)?;
    owners.is_refused("reader", ("whole", true), "DiskInUse")?;
    node.sh("mkdir /mnt/first && ! mount -t ext4 /dev/first /mnt/first")?;
    owners.delete("left right")?;

    node.sh("mke2fs -q /dev/first && mount -t ext4 /dev/first /mnt/first")?;
    let words = "1 is mounted at /mnt/first; unmount it";
    for device in ["part1", "whole"] {
        for read_only in [false, true] {
            owners.is_refused("late", (device, read_only), words)?;
        }
    }
    owners.runs("beside", "part2", false)?;
    owners.delete("beside")
}
