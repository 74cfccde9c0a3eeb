//! CPU models and hypervisors, as a stock kernel finds them.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::node::Node;
use integration::{skip, skip_if};

use crate::documented::{self, Documented};
use crate::guest;
use crate::report::{Report, section};
use crate::running::refusal;

/// The enlightenments of Hyper-V that the machine of all checks has.
const HYPERV: &str = "--hyperv=relaxed,vapic,spinlocks=8191,vpindex,runtime,time,synic,synictimer,reset,frequencies,tlbflush,ipi";

/// Rows of the page: what Linux shows besides on the node's CPU, which is AMD's.
const AMD: [&str; 2] = ["every guest", "a CPU by AMD"];
const FAMILY_16: &str = "a CPU by AMD of family 16 or later";
const FREQUENCY: &str = "a hypervisor that reports the TSC's frequency";
const SEVERAL: [&str; 2] = ["several vCPUs", "several vCPUs by AMD"];

/// Models whose every feature the node's emulated CPU has: it has no XSAVE.
const GIVEN: [&str; 3] = ["x86-64-v2", "Nehalem", "Westmere"];
/// Those that one with XSAVE has besides.
const GIVEN_WITH_XSAVE: [&str; 2] = ["x86-64-v3", "SandyBridge"];
const CPU_WITH_XSAVE: &str = "max,+svm,+npt,-erms,-mpx";
/// What Linux gives up there, because nested KVM does not see its XSETBV, and its XSAVE area then does not
/// suit its XCR0.
const BUILT_UPON_XSAVE: [&str; 4] = ["xsave", "avx", "avx2", "fma"];

fn model(name: &str) -> anyhow::Result<Documented> {
    let found = documented::models()?
        .into_iter()
        .find(|model| model.name == name);
    found.with_context(|| format!("{name} is not on the page"))
}

fn script() -> String {
    [
        ("cpuinfo", "cat /proc/cpuinfo"),
        (
            "hypervisor",
            "dmesg | grep -i -e hypervisor -e hyper-v -e kvm || true",
        ),
        (
            "clock",
            "cat /sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
    ]
    .map(|(name, command)| section(name, command))
    .concat()
}

/// Boots a stock guest without the tools disk.
fn boot(node: &Node, more: &[&str]) -> anyhow::Result<Report> {
    let mut flags = guest::small(node, &script())?;
    flags.extend(more.iter().map(|&flag| flag.to_owned()));
    guest::run(node, &flags)
}

/// Every model that the node cannot give is refused by the names of what is missing.
fn check_refusals(node: &Node) -> anyhow::Result<()> {
    let cpuinfo = node.sh("cat /proc/cpuinfo")?;
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    let mut has: BTreeSet<&str> = flags.unwrap_or_default().split_whitespace().collect();
    // What Linux adds the CPU need not have.
    for title in AMD {
        for flag in documented::row(title)? {
            has.remove(flag);
        }
    }
    for model in documented::models()? {
        if GIVEN.contains(&model.name) {
            continue;
        }
        let mut flags = guest::small(node, "")?;
        flags.push(format!("--cpus=1,model={}", model.name));
        let said = refusal(node, &flags)?;
        ensure!(said.contains("refused: cpus.model "), "{said}");
        let begin = format!("the CPU model {} needs ", model.name);
        let missing = said
            .split_once(&begin)
            .and_then(|(_, rest)| rest.split_once(", which this host's KVM cannot provide"))
            .with_context(|| said.clone())?
            .0;
        let missing: BTreeSet<&str> = missing.split(", ").collect();
        ensure!(missing.contains("xsave"), "{said}");
        for name in missing {
            ensure!(model.features.contains(name), "{name} is not of {said}");
            // AVX without XSAVE is not what a guest can be given.
            let builds_upon_xsave = name.starts_with("avx");
            ensure!(
                !has.contains(name) || builds_upon_xsave,
                "the node has {name}: {said}"
            );
        }
    }
    Ok(())
}

/// A guest that finds Hyper-V and not KVM in CPUID, and one that finds KVM.
fn check_hypervisors(node: &Node) -> anyhow::Result<()> {
    let report = boot(
        node,
        &["--cpus=1x2x1,model=Westmere", "--kvm=hidden", HYPERV],
    )?;
    check_hyperv(&report).with_context(|| report.whole().to_owned())?;
    let report = boot(node, &["--cpus=1,model=x86-64-v2"])?;
    let seen = report.of("hypervisor")?;
    ensure!(seen.contains("Hypervisor detected: KVM"), "{seen}");
    ensure!(
        report.of("clock")?.trim() == "kvm-clock",
        "{}",
        report.whole()
    );
    let rows = [&AMD[..], &[FAMILY_16, FREQUENCY]].concat();
    model("x86-64-v2")?.check(report.of("cpuinfo")?, &rows, &[])
}

fn check_hyperv(report: &Report) -> anyhow::Result<()> {
    let seen = report.of("hypervisor")?;
    ensure!(
        seen.contains("Hypervisor detected: Microsoft Hyper-V"),
        "{seen}"
    );
    ensure!(!seen.contains("Hypervisor detected: KVM"), "{seen}");
    ensure!(!seen.contains("kernel on KVM"), "{seen}");
    ensure!(
        report.of("clock")?.starts_with("hyperv_clocksource"),
        "{}",
        report.whole()
    );
    let rows = [&AMD[..], &SEVERAL, &[FREQUENCY]].concat();
    model("Westmere")?.check(report.of("cpuinfo")?, &rows, &[])
}

#[test]
fn a_guest_finds_the_cpu_and_the_hypervisor_that_it_was_promised() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let node = guest::node()?;
    check_refusals(&node)?;
    check_hypervisors(&node)
}

/// Boots a guest of each model, some with KVM hidden and no Hyper-V; all but `without` must be shown.
fn check_models(node: &Node, names: &[&str], without: &[&str]) -> anyhow::Result<()> {
    for name in names {
        let model = model(name)?;
        // A kernel that has to find out by itself how fast the TSC is fails at it on a busy node, and
        // then hides the timer that goes by it.
        let hides = !model.features.contains("tsc_deadline_timer");
        let mut flags = vec![format!("--cpus=1x2x1,model={name}")];
        flags.extend(hides.then(|| "--kvm=hidden".to_owned()));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let report = boot(node, &flags)?;
        let seen = report.of("hypervisor")?;
        println!("{name}: {}\n{seen}", report.of("cpuinfo")?);
        ensure!(seen.contains("Hypervisor detected") != hides, "{seen}");
        let cpuinfo = report.of("cpuinfo")?;
        let mut rows = [&AMD[..], &SEVERAL].concat();
        rows.extend((family(cpuinfo)? >= 16).then_some(FAMILY_16));
        rows.extend((!hides).then_some(FREQUENCY));
        model.check(cpuinfo, &rows, without)?;
    }
    Ok(())
}

/// The family of a guest's first CPU.
fn family(cpuinfo: &str) -> anyhow::Result<u32> {
    let line = cpuinfo.lines().find(|line| line.starts_with("cpu family"));
    let number = line.and_then(|line| line.split(": ").nth(1));
    let number = number.context("no family")?;
    Ok(number.trim().parse()?)
}

/// Every model that the node has, and the models of the host.
#[test]
#[ignore = "a campaign: five stock guests"]
fn every_model_that_the_node_can_give_is_as_documented() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let node = guest::node()?;
    check_models(&node, &GIVEN, &[])?;
    for name in ["host-model", "host-passthrough"] {
        let report = boot(&node, &[&format!("--cpus=1,model={name}")])?;
        let cpuinfo = report.of("cpuinfo")?;
        println!("{name}: {cpuinfo}\n{}", report.of("hypervisor")?);
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
        let flags: BTreeSet<&str> = flags.unwrap_or_default().split_whitespace().collect();
        ensure!(flags.contains("aes") && !flags.contains("avx"), "{flags:?}");
    }
    Ok(())
}

/// Models that a node with XSAVE has besides, but for what nested guests give up.
#[test]
#[ignore = "a campaign: two stock guests"]
fn models_with_avx_are_as_documented_but_for_what_builds_upon_xsave() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    // QEMU takes the last.
    let cpu = ["-cpu", CPU_WITH_XSAVE].map(str::to_owned);
    let node = guest::node_with(|spec| spec.qemu_arguments.extend(cpu))?;
    check_models(&node, &GIVEN_WITH_XSAVE, &BUILT_UPON_XSAVE)
}
