//! Disks in a busybox node: users of block devices, devices that fail, and a slice of `cargo xtask soak powercut`.

#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG, DISKS, GuestSpec, IMAGES};
use integration::commands::Commands;
use integration::node::{Flavour, Node, NodeSpec};
use integration::soak::powercut::{Campaign, Tally, power_cuts};
use integration::testguest::Results;
use integration::{process, skip, skip_if, testguest, tools};

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
/// A directory with devices that is granted to two namespaces.
const GRANTED: &str = "/srv/devices";
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
    with_disk_at(name, &format!("{DISKS}/{disk}"), terms)
}

fn with_disk_at(name: &str, path: &str, terms: Terms) -> String {
    let (target, rest) = match terms {
        Terms::Alone => ("", ""),
        Terms::Reading => (", readonly: true", ""),
        Terms::Sharing => ("", "        shareable: true\n"),
    };
    format!(
        "{}      disks:\n      - name: data\n        disk: {{bus: virtio{target}}}\n{rest}  \
         volumes:\n  - name: data\n    hostDisk: {{path: {path}, type: Disk}}\n",
        GuestSpec::testguest(name, "tests=none then=idle")
            .without_devices()
            .manifest()
    )
}

struct DiskUsers<'a> {
    node: &'a Node,
    agent: Agent<'a, Node>,
}

impl DiskUsers<'_> {
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

/// A disk of a node, as QEMU's arguments have it.
fn drive(name: &str, image: &Path) -> [String; 4] {
    [
        "-drive".to_owned(),
        format!("if=none,id={name},format=raw,file={}", image.display()),
        "-device".to_owned(),
        format!("virtio-blk-pci,drive={name},serial={name}"),
    ]
}

fn booted() -> anyhow::Result<(Node, tempfile::NamedTempFile)> {
    let mut disk = tempfile::NamedTempFile::new()?;
    disk.write_all(&partitioned())?;
    let mut spec = NodeSpec::bare(Flavour::Busybox)
        .with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?
        .with(testguest::elf()?, "testguest");
    spec.qemu_arguments.extend(drive("owned", disk.path()));
    let node = Node::boot(spec)?;
    // Each name is a node of its own.
    node.sh(&format!(
        "mkdir -p {DISKS} && cd {DISKS}
         for disk in /sys/block/vd*; do [ \"$(cat $disk/serial)\" != owned ] || owned=$disk; done
         make() {{ mknod $1 b $(tr : ' ' <$2/dev); }}
         make whole $owned && make again $owned
         make part1 $owned/${{owned##*/}}1 && make part2 $owned/${{owned##*/}}2
         make first $owned/${{owned##*/}}1
         ln -s /dev/${{owned##*/}}1 /dev/first"
    ))?;
    Ok((node, disk))
}

#[test]
fn a_block_device_has_one_user_whatever_node_or_partition_names_it() -> anyhow::Result<()> {
    use Terms::{Alone, Reading, Sharing};

    skip_if!(skip::without_node(), Ok(()));
    let (node, _disk) = booted()?;
    let agent = Agent::prepare(&node)?;
    agent.add_image("/opt/payload/testguest", "testguest")?;
    agent.start()?;
    let users = DiskUsers { node: &node, agent };

    users.runs("owner", "whole", Alone)?;
    for device in ["whole", "again", "part1"] {
        users.is_refused("late", (device, Alone), "DiskInUse")?;
        users.is_refused("reader", (device, Reading), "DiskInUse")?;
    }
    // The VMM holds the lock, not the agent.
    users.agent.kill()?;
    users.agent.start()?;
    users.is_refused("late", ("part2", Alone), "DiskInUse")?;
    users.delete("owner")?;

    users.runs("one", "whole", Reading)?;
    users.runs("two", "again", Reading)?;
    users.runs("three", "part1", Reading)?;
    users.is_refused("writer", ("again", Alone), "DiskInUse")?;
    users.is_refused("writer", ("part2", Alone), "DiskInUse")?;
    users.delete("one two")?;
    users.is_refused("writer", ("whole", Alone), "DiskInUse")?;
    users.delete("three")?;

    for (name, disk) in [("one", "whole"), ("two", "again"), ("three", "part1")] {
        users.runs(name, disk, Sharing)?;
    }
    users.agent.kill()?;
    users.agent.start()?;
    users.runs("reader", "again", Reading)?;
    for disk in ["again", "part2"] {
        users.is_refused("writer", (disk, Alone), "DiskInUse")?;
    }
    users.delete("one two three reader")?;

    users.runs("left", "part1", Alone)?;
    users.runs("right", "part2", Alone)?;
    users.is_refused("reader", ("whole", Reading), "DiskInUse")?;
    node.sh("mkdir /mnt/first && ! mount -t ext4 /dev/first /mnt/first")?;
    users.delete("left right")?;

    node.sh("mke2fs -q /dev/first && mount -t ext4 /dev/first /mnt/first")?;
    let words = "1 is mounted at /mnt/first; unmount it";
    for device in ["part1", "whole"] {
        for terms in [Alone, Reading] {
            users.is_refused("late", (device, terms), words)?;
        }
    }
    users.runs("beside", "part2", Alone)?;
    users.delete("beside")?;
    node.sh("umount /mnt/first")?;
    a_disk_of_another_namespace_is_known_by_its_device(&users)
}

/// While no guest has it, too: the other namespace names a node of its own for the same device, or what is part of it.
fn a_disk_of_another_namespace_is_known_by_its_device(users: &DiskUsers<'_>) -> anyhow::Result<()> {
    let DiskUsers { node, agent } = users;
    node.sh(&format!(
        "mkdir -p {GRANTED} && cp -a {DISKS}/* {GRANTED}/ && printf \
         '[[paths.grants]]\\npath = \"{GRANTED}\"\\nnamespaces = [\"default\", \"shop\"]\\n\
          [[paths.grants]]\\npath = \"{IMAGES}\"\\nnamespaces = [\"*\"]\\n' >>{CONFIG}"
    ))?;
    agent.kill()?;
    agent.start()?;
    let owner = with_disk_at("owner", &format!("{GRANTED}/part1"), Terms::Alone);
    for _ in 0..2 {
        agent.apply(&owner)?;
        agent.wait_for_phase("owner", "Running", PATIENCE)?;
        users.delete("owner")?;
        // What others were accepted with since then takes nothing from the owner in the second round.
        for device in ["first", "whole"] {
            let text = with_disk_at("thief", &format!("{GRANTED}/{device}"), Terms::Alone);
            agent.apply(&in_shop(&text))?;
            let words = "the disk of another namespace, and not granted to namespace \"shop\"";
            let script = format!("kvmctl describe vmi thief -n shop | grep -F '{words}'");
            node.wait_for(&script, PATIENCE)
                .with_context(|| agent.log())?;
            let deleted = agent.kvmctl("delete vmi thief -n shop --grace-period 0")?;
            ensure!(deleted.code == Some(0), "{deleted}");
        }
    }
    // The thief never had the whole disk: its other partition is free, also for those who are not the thief.
    let free = format!("{GRANTED}/part2");
    agent.apply(&with_disk_at("free", &free, Terms::Alone))?;
    agent.wait_for_phase("free", "Running", PATIENCE)?;
    users.delete("free")
}

/// A manifest of another namespace than the default one.
fn in_shop(manifest: &str) -> String {
    manifest.replacen("metadata:\n", "metadata:\n  namespace: shop\n", 1)
}

/// Modes of caches, which are also the names of a guest's disks and of the devices that these lie on.
const CACHES: [&str; 3] = ["none", "writeback", "writethrough"];
/// Size of each device.
const FAILING_SECTORS: usize = 16384;
/// In a node, which has no udev that would be waited for.
const DMSETUP: &str = "DM_DISABLE_UDEV=1 /usr/sbin/dmsetup";

/// A node with a device for each mode, made by the device mapper of one disk of the node.
struct FailingHost {
    node: Node,
    _disk: tempfile::NamedTempFile,
}

/// How the devices answer requests.
#[derive(Clone, Copy)]
enum Fate {
    /// They are carried out.
    Done,
    /// Writes and flushes fail.
    Failed,
}

impl FailingHost {
    fn boot() -> anyhow::Result<Self> {
        tools::ensure(tools::TESTS)?;
        let disk = tempfile::NamedTempFile::new()?;
        let sectors = CACHES.len() * FAILING_SECTORS;
        disk.as_file().set_len((sectors * SECTOR_BYTES) as u64)?;
        let mut spec = NodeSpec::bare(Flavour::Busybox)
            .with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?
            .with_system_files(process::with_libraries(tools::DMSETUP)?)
            .with(testguest::elf()?, "testguest");
        spec.qemu_arguments.extend(drive("below", disk.path()));
        let host = Self {
            node: Node::boot(spec)?,
            _disk: disk,
        };
        host.node.sh(&format!(
            "cp -a /opt/payload/system/. / && mkdir -p {DISKS}
             for disk in /sys/block/vd*; do [ \"$(cat $disk/serial)\" != below ] || ln -s /dev/${{disk##*/}} /dev/below; done"
        ))?;
        host.for_each(|cache| {
            let table = Self::table(cache, Fate::Done);
            let numbers = "info -c --noheadings --separator ' ' -o major,minor";
            format!(
                "{DMSETUP} create {cache} --table '{table}' &&
                 mknod {DISKS}/{cache} b $({DMSETUP} {numbers} {cache})"
            )
        })?;
        Ok(host)
    }

    fn table(cache: &str, fate: Fate) -> String {
        let index = CACHES.iter().position(|name| *name == cache);
        let first = index.unwrap_or_default() * FAILING_SECTORS;
        match fate {
            Fate::Done => format!("0 {FAILING_SECTORS} linear /dev/below {first}"),
            // Never up, an hour down.
            Fate::Failed => {
                format!("0 {FAILING_SECTORS} flakey /dev/below {first} 0 3600 1 error_writes")
            }
        }
    }

    /// Runs a script for each of them, all at once: a command takes the node its time.
    fn for_each(&self, script: impl Fn(&str) -> String) -> anyhow::Result<()> {
        self.node.sh(&CACHES.map(script).join(" && ")).map(drop)
    }

    /// From now on. What the node's kernel has in its cache is not written back before.
    fn switch(&self, fate: Fate) -> anyhow::Result<()> {
        self.for_each(|cache| {
            let table = Self::table(cache, fate);
            format!(
                "{DMSETUP} load {cache} --table '{table}' &&
                 {DMSETUP} suspend --nolockfs {cache} && {DMSETUP} resume {cache}"
            )
        })
    }

    /// Waits for lines of the guest on each of its disks, `count` of them: "kept" or "lost".
    fn wait_for(&self, what: &str, count: usize) -> anyhow::Result<()> {
        let has_enough = CACHES.map(|cache| {
            let lines = format!("echo \"$log\" | grep -c 'TESTGUEST {what} {cache} '");
            format!("[ $({lines}) -ge {count} ]")
        });
        let script = format!("log=$(kvmctl logs web) && {}", has_enough.join(" && "));
        self.node.wait_for(&script, PATIENCE).map(drop)
    }

    fn results(&self) -> anyhow::Result<Results> {
        let printed = self.node.sh("kvmctl logs web")?;
        // The guest goes on writing: its last line may have no end yet.
        let (whole, _) = printed.rsplit_once('\n').unwrap_or_default();
        Ok(Results::of_console(whole))
    }
}

/// A guest that writes to all of them for ever.
fn writer() -> String {
    let disk = |cache: &&str| {
        format!(
            "      - name: {cache}\n        serial: {cache}\n        cache: {cache}\n        \
             errorPolicy: report\n        disk: {{bus: virtio}}\n"
        )
    };
    let volume = |cache: &&str| {
        format!("  - name: {cache}\n    hostDisk: {{path: {DISKS}/{cache}, type: Disk}}\n")
    };
    format!(
        "{}      disks:\n{}  volumes:\n{}",
        GuestSpec::testguest("web", "tests=none then=numbers")
            .without_devices()
            .manifest(),
        CACHES.iter().map(disk).collect::<String>(),
        CACHES.iter().map(volume).collect::<String>(),
    )
}

/// Address at which the agent serves its metrics.
const METRICS: &str = "127.0.0.1:9137";

/// By `kvmctl why`, besides the names of the disks.
const SAID: [&str; 2] = ["DiskSyncFailed", "kvmctl delete vmi web, check the disk"];

/// No number is kept after the first that was lost, and the last write and flush ended so.
fn expect_final(results: &Results, cache: &str, last: &str) {
    let of = |what| {
        let lines = results.0.iter().enumerate();
        let prefix = format!("{what} {cache} ");
        lines.filter(move |(_, line)| line.starts_with(&prefix))
    };
    let (first_lost, _) = of("lost").next().expect("something is lost");
    let (last_kept, _) = of("kept").next_back().expect("something was kept");
    assert!(last_kept < first_lost, "{cache}: {results:#?}");
    let (_, line) = of("lost").next_back().expect("something is lost");
    assert!(line.ends_with(last), "{line}");
}

#[test]
fn a_disk_whose_device_failed_fails_for_good_though_the_device_does_not_in_all_cache_modes()
-> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let host = FailingHost::boot()?;
    let agent = Agent::prepare(&host.node)?;
    agent.add_image("/opt/payload/testguest", "testguest")?;
    host.node.sh(&format!(
        "printf '[metrics]\\nlisten = \"{METRICS}\"\\n' >>{CONFIG}"
    ))?;
    agent.start()?;
    agent.apply(&writer())?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;
    host.wait_for("kept", 1)?;

    host.switch(Fate::Failed)?;
    host.wait_for("lost", 1)?;
    host.switch(Fate::Done)?;
    // The devices are whole again.
    host.for_each(|cache| {
        format!("dd if=/dev/zero of=/dev/mapper/{cache} bs=4096 count=1 conv=fsync")
    })?;
    // And are asked again, and again.
    let most = host.results()?.of("lost").len();
    host.wait_for("lost", most.div_ceil(CACHES.len()) + 3)?;
    let results = host.results()?;
    for (cache, last) in [
        ("none", "write=0 flush=1"),
        ("writeback", "write=0 flush=1"),
        ("writethrough", "write=1 flush=0"),
    ] {
        expect_final(&results, cache, last);
    }

    let disks = CACHES.map(|cache| format!("{cache:?} (Input/output error"));
    let said = disks.iter().map(String::as_str).chain(SAID);
    let said: String = said
        .map(|words| format!(" && grep -F '{words}' /run/why"))
        .collect();
    let why = format!("kvmctl why web >/run/why{said}");
    host.node.wait_for(&why, PATIENCE)?;
    let events = "kvmctl events --for vmi/web --types Warning -o 'jsonpath={.items[*].reason}'";
    host.node
        .wait_for(&format!("{events} | grep -w DiskSyncFailed"), PATIENCE)?;

    // The VMM's count of what the host failed is exported.
    host.node.sh(&format!(
        "busybox wget -q -O /run/metrics http://{METRICS}/metrics"
    ))?;
    host.for_each(|cache| {
        let line = format!("kvmlet_vmi_storage_host_errors_total{{.*drive=\"{cache}\".*}} [1-9]");
        format!("grep '{line}' /run/metrics")
    })?;

    // It ends with the VMM.
    let deleted = agent.kvmctl("delete vmi web --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}\n{}", agent.log());
    agent.apply(&writer())?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;
    host.wait_for("kept", 3)?;
    assert_eq!(host.results()?.of("lost"), [""; 0]);
    Ok(())
}
