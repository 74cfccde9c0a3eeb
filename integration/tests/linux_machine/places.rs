//! Where a guest's memory and threads are on the node, as the node's kernel says, and what the guest
//! sees of it.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::node::Node;
use integration::{skip, skip_if};

use crate::guest;
use crate::report::section;
use crate::running::Running;

/// Two processors and two NUMA nodes with memory of their own. The second begins at 4 GiB and is large
/// enough to have a GiB in one piece.
fn node() -> anyhow::Result<Node> {
    guest::node_with(|spec| {
        spec.cpus = 2;
        spec.memory_mib = 5120;
        spec.qemu_arguments.extend(
            [
                "-object",
                "memory-backend-ram,id=half0,size=2G",
                "-object",
                "memory-backend-ram,id=half1,size=3G",
                "-numa",
                "node,nodeid=0,memdev=half0,cpus=0",
                "-numa",
                "node,nodeid=1,memdev=half1,cpus=1",
            ]
            .map(str::to_owned),
        );
    })
}

/// The pools that guests take from: in the second NUMA node, and one page of 1 GiB.
fn fill_pools(node: &Node) -> anyhow::Result<()> {
    node.sh(
        "cd /sys/devices/system/node/node1/hugepages
         echo 1 > hugepages-1048576kB/nr_hugepages
         echo 64 > hugepages-2048kB/nr_hugepages
         [ $(cat hugepages-1048576kB/nr_hugepages) = 1 ] && [ $(cat hugepages-2048kB/nr_hugepages) = 64 ]",
    )
    .map(drop)
}

/// Where each thread may run, by its name.
fn places(node: &Node, pid: u32) -> anyhow::Result<BTreeMap<String, String>> {
    let status = node.sh(&format!(
        "cat /proc/{pid}/task/*/status | grep -e ^Name: -e ^Cpus_allowed_list:"
    ))?;
    let mut places = BTreeMap::new();
    let mut name = "";
    for line in status.lines() {
        match line.split_once(":\t") {
            Some(("Name", value)) => name = value,
            Some((_, value)) => drop(places.insert(name.to_owned(), value.to_owned())),
            None => {}
        }
    }
    Ok(places)
}

/// The lines of `smaps` of guest memory.
fn smaps(machine: &Running<'_>) -> anyhow::Result<Vec<String>> {
    let text = machine.proc("smaps")?;
    let mut is_ram = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if first.contains('-') {
            is_ram = line.contains("kvmlet-guest-ram");
        } else if is_ram {
            lines.push(line.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    ensure!(!lines.is_empty(), "no guest memory in {text}");
    Ok(lines)
}

fn count(lines: &[String], wanted: &str) -> usize {
    lines.iter().filter(|line| *line == wanted).count()
}

/// The lines of `numa_maps` of guest memory.
fn numa_maps(machine: &Running<'_>) -> anyhow::Result<Vec<String>> {
    let maps = machine.proc("numa_maps")?;
    let of_ram = maps
        .lines()
        .filter(|line| line.contains("kvmlet-guest-ram"));
    Ok(of_ram.map(str::to_owned).collect())
}

/// Ordinary pages: each NUMA node of the guest where it was put, each thread on its CPU.
fn check_places(node: &Node) -> anyhow::Result<()> {
    node.sh("truncate -s 1M /tmp/slow")?;
    let mut flags = guest::small(node, "")?;
    flags.extend(
        [
            "--cpus=2x1x1",
            "--memory=192M",
            "--numa=64M,vcpus=0,bind=1",
            "--numa=64M,vcpus=1,interleave=0-1",
            "--numa=64M,preferred=1",
            "--prefault",
            "--disk=/tmp/slow,thread=slow",
            "--pin=0=1",
            "--pin=1=0",
            "--pin=emulator=0",
            "--pin=slow=1",
        ]
        .map(str::to_owned),
    );
    let machine = Running::start(node, "places", &flags)?;
    let maps = numa_maps(&machine)?;
    let mapped = |policy: &str, pages: &[&str]| {
        maps.iter().any(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            words.contains(&policy) && pages.iter().all(|page| words.contains(page))
        })
    };
    // 64 MiB are 16384 pages.
    ensure!(mapped("bind:1", &["N1=16384"]), "{maps:#?}");
    ensure!(
        mapped("interleave:0-1", &["N0=8192", "N1=8192"]),
        "{maps:#?}"
    );
    ensure!(
        maps.iter().any(|line| line.contains(" prefer")),
        "{maps:#?}"
    );
    let places = places(node, machine.pid)?;
    let wanted = [("vcpu0", "1"), ("vcpu1", "0"), ("io-slow", "1")];
    for (thread, cpus) in wanted {
        let place = places.get(thread).with_context(|| format!("{places:?}"))?;
        ensure!(place == cpus, "{thread}: {places:?}");
    }
    let others = places
        .iter()
        .filter(|(name, _)| !wanted.iter().any(|(thread, _)| thread == name));
    for (name, place) in others {
        ensure!(place == "0", "{name}: {places:?}");
    }
    machine.stop()
}

/// Huge pages that the host makes by itself: of all that is touched, if it is asked to.
fn check_transparent_pages(node: &Node) -> anyhow::Result<()> {
    const MEMORY_KIB: u64 = 256 << 10;
    for (flag, least, most) in [
        (None, MEMORY_KIB, MEMORY_KIB),
        // What the VMM makes huge under the kernel, where nobody made it so before.
        (Some("--small-pages"), 4 << 10, MEMORY_KIB / 2),
    ] {
        let mut flags = guest::small(node, "")?;
        flags.extend(["--memory=256M", "--prefault"].map(str::to_owned));
        flags.extend(flag.map(str::to_owned));
        let machine = Running::start(node, "transparent", &flags)?;
        let lines = smaps(&machine)?;
        let huge: u64 = lines
            .iter()
            .filter_map(|line| line.strip_prefix("ShmemPmdMapped: ")?.strip_suffix(" kB"))
            .filter_map(|kib| kib.parse::<u64>().ok())
            .sum();
        println!("{flag:?}: {huge} KiB of huge pages");
        ensure!((least..=most).contains(&huge), "{flag:?}: {lines:#?}");
        machine.stop()?;
    }
    Ok(())
}

/// Huge pages of both sizes.
fn check_huge_pages(node: &Node) -> anyhow::Result<()> {
    for (memory, size, kib) in [("128M", "2M", 2048), ("1G", "1G", 1 << 20)] {
        let mut flags = guest::small(node, "")?;
        flags.extend([
            format!("--memory={memory}"),
            format!("--hugepages={size}"),
            "--prefault".to_owned(),
        ]);
        let machine = Running::start(node, size, &flags)?;
        let lines = smaps(&machine)?;
        let page = format!("KernelPageSize: {kib} kB");
        ensure!(count(&lines, &page) > 0, "{lines:#?}");
        let other = lines
            .iter()
            .any(|line| line.starts_with("KernelPageSize:") && *line != page);
        ensure!(!other, "{lines:#?}");
        let pool = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/free_hugepages");
        let free = node.sh(&format!("cat {pool}"))?;
        ensure!(free.trim() == "0", "{free} pages of {size} are free");
        machine.stop()?;
        let all = if kib == 2048 { "64" } else { "1" };
        node.wait_for(
            &format!("[ $(cat {pool}) = {all} ]"),
            std::time::Duration::from_secs(20),
        )?;
    }
    Ok(())
}

/// What the guest finds.
fn check_guest(node: &Node) -> anyhow::Result<()> {
    let script = [("numactl", "numactl -H"), ("lscpu", "lscpu")]
        .map(|(name, command)| section(name, command))
        .concat();
    let mut flags = guest::flags(node, &script, &[], "")?;
    flags.extend(
        [
            "--cpus=2x2x1",
            "--memory=512M",
            "--numa=192M,vcpus=0-1,distances=10:30",
            "--numa=320M,vcpus=2-3,distances=30:10",
        ]
        .map(str::to_owned),
    );
    let report = guest::run(node, &flags)?;
    let hardware = report.of("numactl")?;
    for line in [
        "available: 2 nodes (0-1)",
        "node 0 cpus: 0 1",
        "node 1 cpus: 2 3",
        "node   0   1",
        "  0:  10  30",
        "  1:  30  10",
    ] {
        ensure!(hardware.contains(line), "no {line} in:\n{hardware}");
    }
    let lscpu = report.of("lscpu")?;
    let words: Vec<Vec<&str>> = lscpu
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for (what, number) in [
        ("Thread(s) per core:", "1"),
        ("Core(s) per socket:", "2"),
        ("Socket(s):", "2"),
        ("NUMA node(s):", "2"),
    ] {
        let mut line: Vec<&str> = what.split(' ').collect();
        line.push(number);
        ensure!(words.contains(&line), "no {line:?} in:\n{lscpu}");
    }
    Ok(())
}

#[test]
fn memory_and_threads_are_where_the_node_says_they_were_put() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let node = node()?;
    fill_pools(&node)?;
    check_places(&node)?;
    check_transparent_pages(&node)?;
    check_huge_pages(&node)?;
    // Stock guests run better on one processor; see `NodeSpec::cpus`.
    node.sh("echo 0 > /sys/devices/system/cpu/cpu1/online")?;
    check_guest(&node)
}
