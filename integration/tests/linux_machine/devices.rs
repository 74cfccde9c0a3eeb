//! Every device at once.

use anyhow::{Context, ensure};
use integration::image::busybox::GuestImage;
use integration::{skip, skip_if};

use crate::every_device::{DISK_MIB, DISKS, everything};
use crate::guest::{self, PATIENCE};
use crate::report::{Report, section};
use crate::snapshot;

fn script() -> String {
    let mut script = [
        ("lspci", "lspci -nn"),
        ("pci-access", "dmesg | grep PCI:"),
        (
            "lsblk",
            "lsblk -b -n -d -o NAME,SIZE,RO,LOG-SEC,PHY-SEC,SERIAL",
        ),
        ("link", "ip -d link; ip addr"),
        ("net-id", "udevadm test-builtin net_id /sys/class/net/eth0"),
        ("cpuinfo", "cat /proc/cpuinfo"),
        ("lscpu", "lscpu"),
        ("memory", "cat /proc/meminfo"),
        ("dmidecode", "dmidecode -q -t 1 -t 2 -t 3 -t 4 -t 11 -t 17"),
        ("drivers", "ls -d /sys/bus/pci/drivers/*/0000:*; ls -d /sys/bus/virtio/drivers/*/virtio*; cat /sys/class/virtio-ports/*/name"),
        ("numa", "numactl -H"),
        ("terminal", "echo from hvc0 >/dev/hvc0"),
        // One block in a thousand of true randomness fails.
        ("rng", "rngtest -c 20 </dev/hwrng || true"),
        // Until one answers: an emulated guest can stand still for as long as its ARP is patient.
        ("ping", "ping -c 1 -w 60 10.77.0.1"),
        ("to-host", "iperf3 -c 10.77.0.1 -n 2M"),
        ("from-host", "iperf3 -c 10.77.0.1 -p 5202 -n 2M -R"),
    ]
    .map(|(name, command)| section(name, command))
    .concat();
    for (name, serial, _) in DISKS {
        script += &section(
            serial,
            &format!(
                "fio --name={serial} --filename=/dev/{name} --rw=randwrite --bsrange=4k-64k \
                 --size=2M --ioengine=libaio --iodepth=16 --direct=1 --verify=crc32c --verify_fatal=1 \
                 --do_verify=1 --fdatasync=32 --minimal"
            ),
        );
    }
    script
        + &section(
            "discard",
            "blkdiscard -f /dev/vdc && blkdiscard -z /dev/vda",
        )
}

/// What `dmidecode` makes of SMBIOS.
const DMIDECODE: [&str; 14] = [
    "Manufacturer: Maker",
    "Product Name: Thing",
    "Version: 1.2",
    "Serial Number: S-17",
    "UUID: 6a1f0b2e-0d6b-4a7e-9f54-0123456789ab",
    "SKU Number: K-9",
    "Family: Things",
    "Manufacturer: Board Maker",
    "Serial Number: B-18",
    "Serial Number: C-19",
    "Asset Tag: A-20",
    "String 1: first text",
    "String 2: second text",
    "Size: 512 MB",
];

/// Two nodes, and what `numactl -H` makes of them.
const NUMA: [&str; 2] = [
    "--numa=128M,vcpus=0:3,distances=10:25",
    "--numa=384M,vcpus=1-2,distances=25:10",
];
const NUMACTL: [&str; 5] = [
    "available: 2 nodes (0-1)",
    "node 0 cpus: 0 3",
    "node 1 cpus: 1 2",
    "  0:  10  25",
    "  1:  25  10",
];

/// What `lspci -nn` finds of the machine's functions.
const FUNCTIONS: [&str; 9] = [
    "00:00.0 Host bridge [0600]: Intel Corporation 82G33/G31/P35/P31 Express DRAM Controller [8086:29c0]",
    "01:00.0 Ethernet controller [0200]: Red Hat, Inc. Virtio 1.0 network device [1af4:1041]",
    "Virtio 1.0 block device [1af4:1042]",
    "Virtio 1.0 console [1af4:1043]",
    "Virtio 1.0 RNG [1af4:1044]",
    "Virtio 1.0 memory balloon [1af4:1045]",
    "Virtio 1.0 socket [1af4:1053]",
    "[8086:25ab]",
    "[1b36:0011]",
];

/// What Linux says of configuration space, unless it uses memory for all of it.
const PORTS_ARE_USED: &str = "Using configuration type 1 for base access";

/// What drivers have bound, by `/sys`.
const DRIVERS: [&str; 7] = [
    "virtio/drivers/virtio_balloon/virtio",
    "virtio/drivers/virtio_console/virtio",
    "virtio/drivers/virtio_rng/virtio",
    "virtio/drivers/vmw_vsock_virtio_transport/virtio",
    "pci/drivers/pvpanic-pci/0000:00:",
    "org.qemu.guest_agent.0",
    "echo",
];

fn disks(report: &Report) -> anyhow::Result<()> {
    let bytes = DISK_MIB << 20;
    let lsblk: Vec<Vec<&str>> = report
        .of("lsblk")?
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for (name, serial, options) in DISKS {
        let sector = if options.contains("4096") {
            "4096"
        } else {
            "512"
        };
        let line = lsblk
            .iter()
            .find(|line| line.first() == Some(&name))
            .with_context(|| format!("no {name}: {lsblk:?}"))?;
        let wanted = [name, &bytes.to_string(), "0", sector];
        ensure!(line.starts_with(&wanted), "{line:?}, not {wanted:?}");
        ensure!(line.last() == Some(&serial), "{line:?} has not {serial}");
    }
    Ok(())
}

fn expect(report: &Report, cpus: usize) -> anyhow::Result<()> {
    let lspci = report.of("lspci")?;
    for function in FUNCTIONS {
        ensure!(lspci.contains(function), "no {function} in:\n{lspci}");
    }
    for (name, parts) in [("dmidecode", &DMIDECODE[..]), ("drivers", &DRIVERS[..])] {
        let output = report.of(name)?;
        for part in parts {
            ensure!(output.contains(part), "no {part} in:\n{output}");
        }
    }
    disks(report)?;
    let link = report.of("link")?;
    for part in ["02:00:00:00:00:07", "10.77.0.2/24"] {
        ensure!(link.contains(part), "no {part} in:\n{link}");
    }
    let id = report.of("net-id")?;
    ensure!(id.contains("ID_NET_NAME_PATH=enp1s0"), "{id}");
    let processors = report.of("cpuinfo")?.matches("processor\t:").count();
    ensure!(
        processors == cpus,
        "{processors} processors instead of {cpus}"
    );
    let rng = report.of("rng")?;
    let successes = rng
        .lines()
        .find_map(|line| line.split_once("FIPS 140-2 successes: "))
        .with_context(|| rng.to_owned())?;
    ensure!(successes.1.trim().parse::<u32>()? >= 18, "{rng}");
    for works in ["ping", "to-host", "from-host", "discard", "terminal"] {
        report.of(works)?;
    }
    for (_, serial, _) in DISKS {
        report.of(serial)?;
    }
    Ok(())
}

#[test]
fn a_guest_with_one_cpu_finds_and_uses_every_device() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let (node, mut flags) = everything(&script(), "1", "", "")?;
    flags.push("--generation-id=00112233445566778899aabbccddeeff".to_owned());
    flags.push("--memory-mapped-pci".to_owned());
    let report = guest::run(&node, &flags)?;
    expect(&report, 1).with_context(|| report.whole().to_owned())?;
    let access = report.of("pci-access")?;
    ensure!(
        access.contains("MMCONFIG at [mem") && !access.contains(PORTS_ARE_USED),
        "{access}"
    );
    Ok(())
}

fn expect_four(report: &Report) -> anyhow::Result<()> {
    expect(report, 4).with_context(|| report.whole().to_owned())?;
    let access = report.of("pci-access")?;
    ensure!(access.contains(PORTS_ARE_USED), "{access}");
    let lscpu = report.of("lscpu")?;
    for (name, count) in [("Socket(s):", "2"), ("Core(s) per socket:", "2")] {
        let line = lscpu
            .lines()
            .find_map(|line| line.trim().strip_prefix(name));
        ensure!(line.map(str::trim) == Some(count), "{name} in:\n{lscpu}");
    }
    Ok(())
}

#[test]
fn a_guest_with_four_cpus_uses_every_device_and_goes_on_in_other_processes() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let script = script() + snapshot::LOAD;
    let (node, mut flags) = everything(&script, "2x2x1", "", "kvmlet.after=shell")?;
    flags.push("--entry=pvh".to_owned());
    let mut machine = snapshot::start(&node, &flags, 0)?;
    let printed = machine.wait_for(GuestImage::PROMPT, PATIENCE)?;
    println!("{printed}");
    expect_four(&Report::read(&printed))?;
    snapshot::goes_on(&node, machine, &flags, 2)
}

/// `cargo test --profile suite -p integration --test linux_machine -- --ignored two_numa_nodes`
#[test]
#[ignore = "takes as long as the one before; for changes of NUMA and vhost-net"]
fn a_guest_finds_two_numa_nodes_and_uses_a_nic_of_vhost() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let (node, mut flags) = everything(&script(), "2x2x1", ",vhost", "")?;
    flags.extend(NUMA.map(str::to_owned));
    let report = guest::run(&node, &flags)?;
    println!("{}", report.whole());
    expect_four(&report)?;
    let numa = report.of("numa")?;
    for part in NUMACTL {
        ensure!(numa.contains(part), "no {part} in:\n{numa}");
    }
    Ok(())
}
