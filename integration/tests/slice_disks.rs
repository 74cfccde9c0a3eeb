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

/// How a guest has its disk.
#[derive(Clone, Copy)]
enum Terms {
    Alone,
    Reading,
    Sharing,
}

/// A guest with the disk below the name `disk`.
fn with_disk(name: &str, disk: &str, terms: Terms) -> String {
    let (target, rest) = match terms {
        Terms::Alone => ("", ""),
        Terms::Reading => (", readonly: true", ""),
        Terms::Sharing => ("", "        shareable: true\n"),
    };
    format!(
        "{}      disks:\n      - name: data\n        disk: {{bus: virtio{target}}}\n{rest}  \
         volumes:\n  - name: data\n    hostDisk: {{path: {DISKS}/{disk}, type: Disk}}\n",
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
    fn runs(&self, name: &str, disk: &str, terms: Terms) -> anyhow::Result<()> {
        self.agent.apply(&with_disk(name, disk, terms))?;
        self.agent.wait_for_phase(name, "Running", PATIENCE)
    }

    /// A guest that may not have its disk says why, and goes.
    fn is_refused(
        &self,
        name: &str,
        (disk, terms): (&str, Terms),
        words: &str,
    ) -> anyhow::Result<()> {
        self.agent.apply(&with_disk(name, disk, terms))?;
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
    use Terms::{Alone, Reading, Sharing};

    skip_if!(skip::without_node(), Ok(()));
    let (node, _disk) = booted()?;
    let agent = Agent::prepare(&node)?;
    agent.add_image("/opt/payload/testguest", "testguest")?;
    agent.start()?;
    let owners = Owners { node: &node, agent };

    owners.runs("owner", "whole", Alone)?;
    for device in ["whole", "again", "part1"] {
        owners.is_refused("late", (device, Alone), "DiskInUse")?;
        owners.is_refused("reader", (device, Reading), "DiskInUse")?;
    }
    // The claim is the VMM's, not the agent's.
    owners.agent.kill()?;
    owners.agent.start()?;
    owners.is_refused("late", ("part2", Alone), "DiskInUse")?;
    owners.delete("owner")?;

    owners.runs("one", "whole", Reading)?;
    owners.runs("two", "again", Reading)?;
    owners.runs("three", "part1", Reading)?;
    owners.is_refused("writer", ("again", Alone), "DiskInUse")?;
    owners.is_refused("writer", ("part2", Alone), "DiskInUse")?;
    owners.delete("one two")?;
    owners.is_refused("writer", ("whole", Alone), "DiskInUse")?;
    owners.delete("three")?;

    for (name, disk) in [("one", "whole"), ("two", "again"), ("three", "part1")] {
        owners.runs(name, disk, Sharing)?;
    }
    owners.agent.kill()?;
    owners.agent.start()?;
    owners.runs("reader", "again", Reading)?;
    for disk in ["again", "part2"] {
        owners.is_refused("writer", (disk, Alone), "DiskInUse")?;
    }
    owners.delete("one two three reader")?;

    owners.runs("left", "part1", Alone)?;
    owners.runs("right", "part2", Alone)?;
    owners.is_refused("reader", ("whole", Reading), "DiskInUse")?;
    node.sh("mkdir /mnt/first && ! mount -t ext4 /dev/first /mnt/first")?;
    owners.delete("left right")?;

    node.sh("mke2fs -q /dev/first && mount -t ext4 /dev/first /mnt/first")?;
    let words = "1 is mounted at /mnt/first; unmount it";
    for device in ["part1", "whole"] {
        for terms in [Alone, Reading] {
            owners.is_refused("late", (device, terms), words)?;
        }
    }
    owners.runs("beside", "part2", Alone)?;
    owners.delete("beside")
}
