//! Every device at once.

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::{skip, skip_if};

use crate::guest::{self, SCRATCH};
use crate::report::{Report, section};

/// Disks of every way to do I/O, and the script's view of them.
const DISKS: [(&str, &str, &str); 3] = [
    ("vda", "ring", ""),
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
const DISK_MIB: u64 = 64;

fn script() -> String {
    let mut script = [
        ("lspci", "lspci -nn"),
        (
            "lsblk",
            "lsblk -b -n -d -o NAME,SIZE,RO,LOG-SEC,PHY-SEC,SERIAL",
        ),
        ("link", "ip -d link; ip addr"),
        ("net-id", "udevadm test-builtin net_id /sys/class/net/eth0"),
        ("cpuinfo", "cat /proc/cpuinfo"),
        ("lscpu", "lscpu"),
        ("memory", "cat /proc/meminfo"),
        // One block in a thousand of true randomness fails.
        ("rng", "rngtest -c 20 </dev/hwrng || true"),
        ("ping", "ping -c 1 10.77.0.1"),
        ("to-host", "iperf3 -c 10.77.0.1 -n 2M"),
        ("from-host", "iperf3 -c 10.77.0.1 -n 2M -R"),
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

fn machine_with(cpus: &str) -> anyhow::Result<Report> {
    let node = guest::node()?;
    for (_, serial, _) in DISKS {
        node.sh(&format!("truncate -s {DISK_MIB}M {SCRATCH}/{serial}"))?;
    }
    let disks =
        DISKS.map(|(_, serial, options)| format!("{SCRATCH}/{serial},serial={serial}{options}"));
    let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
    let mut flags = guest::flags(&node, &script(), &disks)?;
    flags.extend([
        format!("--cpus={cpus}"),
        "--memory=512M".to_owned(),
        "--net=tap0,mac=02:00:00:00:00:07".to_owned(),
        "--rng".to_owned(),
        "--spare-ports".to_owned(),
    ]);
    // Two tests of the guest's, one connection each.
    node.sh("for run in 1 2; do chroot /mnt/tools /usr/bin/iperf3 -s -1; done >/dev/null 2>&1 &")?;
    guest::run(&node, &flags)
}

fn expect(report: &Report, cpus: usize) -> anyhow::Result<()> {
    let lspci = report.of("lspci")?;
    for function in [
        "00:00.0 Host bridge [0600]: Intel Corporation 82G33/G31/P35/P31 Express DRAM Controller [8086:29c0]",
        "01:00.0 Ethernet controller [0200]: Red Hat, Inc. Virtio 1.0 network device [1af4:1041]",
        "[1af4:1042]",
        "[1af4:1044]",
    ] {
        ensure!(lspci.contains(function), "no {function} in:\n{lspci}");
    }
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
    for works in ["ping", "to-host", "from-host", "discard"] {
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
    let report = machine_with("1")?;
    expect(&report, 1).with_context(|| report.whole().to_owned())
}

#[test]
fn a_guest_with_four_cpus_finds_and_uses_every_device() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let report = machine_with("2x2x1")?;
    expect(&report, 4).with_context(|| report.whole().to_owned())?;
    let lscpu = report.of("lscpu")?;
    for part in ["Socket(s):", "Core(s) per socket:"] {
        ensure!(lscpu.contains(part), "{lscpu}");
    }
    Ok(())
}
