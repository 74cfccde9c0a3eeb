//! `cargo xtask bench agent`: an agent with hundreds of guests on this machine's own KVM.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration::agent::{Agent, GuestSpec, LOG};
use integration::artifacts;
use integration::commands::Commands;
use integration::host::{self, Host};

use super::figure::{self, Better, Figure};
use super::{objects, stores};
use crate::package;
use crate::progress::step;

/// Everything must be as it should be after this.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long agent and VMMs are watched doing nothing.
const IDLE: Duration = Duration::from_secs(60);
/// Programs of the package.
const SHIPPED_PROGRAMS: [&str; 4] = ["kvmlet", "kvmlet-dhcp", "kvmlet-vmm", "kvmctl"];
const MIB: f64 = 1024.0;

/// Options of `cargo xtask bench agent`.
#[derive(clap::Args)]
pub struct AgentOptions {
    /// VMIs of the agent.
    #[arg(long, default_value_t = 200)]
    guests: u32,
    /// A kube-apiserver to measure beside: a program of a Kubernetes release.
    #[arg(
        long,
        value_name = "PROGRAM",
        required_unless_present = "without_kube_apiserver",
        conflicts_with = "without_kube_apiserver"
    )]
    kube_apiserver: Option<PathBuf>,
    /// Leave out the lines of kube-apiserver.
    #[arg(long)]
    without_kube_apiserver: bool,
}

/// Applies VMIs at once, kills the agent and starts it again, and watches them do nothing.
///
/// # Errors
/// When one does not run, or does not go on.
pub fn run(root: &Path, options: &AgentOptions, json: Option<PathBuf>) -> anyhow::Result<()> {
    if let Some(reason) = host::without_host() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    step("build", || crate::build::run(root))?;
    // Memory is that of the programs that users get: a third of the agent's is program text, which other profiles have more of.
    step("build of what is shipped", || package::build(root))?;
    step("guest of what is shipped", || package::boot(root))?;
    let figures = step("guests", || measure(options))?;
    figure::print(&figures);
    match json {
        Some(path) => figure::write(&figures, &path),
        None => Ok(()),
    }
}

fn measure(options: &AgentOptions) -> anyhow::Result<Vec<Figure>> {
    let guests = options.guests;
    let host = Host::enter()?;
    use_shipped(&host)?;
    let _disk = ledger_on_disk(&host)?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    let mut figures = vec![start(&host, &agent, guests)?];
    figures.extend(restart(&host, &agent, guests)?);
    figures.push(memory(&host, guests)?);
    figures.extend(idle(&host, guests)?);
    figures.extend(objects::measure(&host, &agent, guests)?);
    figures.extend(stores::measure(&host, options.kube_apiserver.as_ref())?);
    Ok(figures)
}

/// Has the corner run the programs that are shipped.
fn use_shipped(host: &Host) -> anyhow::Result<()> {
    let built = package::built()?;
    let programs = SHIPPED_PROGRAMS.map(|name| format!("'{}'", built.join(name).display()));
    host.sh(&format!("cp {} /run/bin/", programs.join(" ")))
        .map(drop)
}

/// What is synced is to reach a disk, as on a node, and not memory. The directory is removed with the answer.
pub(super) fn ledger_on_disk(host: &Host) -> anyhow::Result<tempfile::TempDir> {
    let disk = tempfile::tempdir_in(artifacts::directory()?)?;
    let path = disk.path().display();
    host.sh(&format!("chmod 755 {path} && mount --bind {path} /var/lib"))?;
    Ok(disk)
}

/// All of them in one file, by one command.
pub(super) fn start(host: &Host, agent: &Agent<'_, Host>, guests: u32) -> anyhow::Result<Figure> {
    let manifests: Vec<String> = (0..guests)
        .map(|number| GuestSpec::testguest(&format!("guest-{number}"), "tests=none then=idle"))
        .map(|guest| guest.manifest())
        .collect();
    let seconds = apply(host, agent, &manifests)?;
    Ok(Figure::new(
        &format!("apply of {guests} VMIs to all Running"),
        seconds,
        "s",
        Better::Less,
    )
    .how("kvmctl apply -f with all of them, 16 MiB, disk, NIC and entropy; until kvmctl get shows all Running"))
}

/// Seconds from one command with all manifests until as many guests run.
pub(super) fn apply(
    host: &Host,
    agent: &Agent<'_, Host>,
    manifests: &[String],
) -> anyhow::Result<f64> {
    host.put("/run/fleet.yaml", 0o644, manifests.join("---\n").as_bytes())?;
    let begun = Instant::now();
    let applied = agent.kvmctl("apply -f /run/fleet.yaml")?;
    ensure!(applied.code == Some(0), "{applied}");
    let guests = manifests.len();
    host.wait_for(
        &format!("test $(kvmctl get vmi --no-headers | grep -c Running) = {guests}"),
        PATIENCE,
    )?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Every VMM is the one that it was.
fn restart(host: &Host, agent: &Agent<'_, Host>, guests: u32) -> anyhow::Result<[Figure; 2]> {
    let vmms = || host.sh("pidof kvmlet-vmm | tr ' ' '\\n' | sort -n");
    let before = vmms()?;
    ensure!(before.lines().count() == guests as usize, "{before}");
    agent.kill()?;
    host.sh(&format!(": >{LOG}"))?;
    let begun = Instant::now();
    agent.launch()?;
    agent.wait_until_it_answers()?;
    let answers = begun.elapsed().as_secs_f64();
    host.wait_for(
        &format!("test $(grep -c 'adopted a running guest' {LOG}) = {guests}"),
        PATIENCE,
    )?;
    let adopted = begun.elapsed().as_secs_f64();
    ensure!(vmms()? == before, "a VMM came or went with the agent");
    Ok([
        Figure::new(
            "agent restart until it answers",
            answers,
            "s",
            Better::Less,
        )
        .how("start of kvmlet after kill -9, until kvmctl get is answered"),
        Figure::new(
            &format!("agent restart until {guests} VMIs are re-adopted"),
            adopted,
            "s",
            Better::Less,
        )
        .budget(2.0, 0.3)
        .how("start of kvmlet after kill -9, until its log has named them all; seen some hundredths late"),
    ])
}

fn memory(host: &Host, guests: u32) -> anyhow::Result<Figure> {
    let kib = host.sh("awk '/^VmRSS/ {print $2}' /proc/$(pidof kvmlet)/status")?;
    let guests_kib = f64::from(guests);
    Ok(Figure::new(
        &format!("kvmlet resident memory, {guests} VMIs"),
        kib.trim().parse::<f64>()? / MIB,
        "MiB",
        Better::Less,
    )
    .budget(
        40.0 + 64.0 * guests_kib / MIB,
        32.0 + 16.0 * guests_kib / MIB,
    )
    .how("VmRSS of the agent that adopted them"))
}

/// CPU time that agent and VMMs take while nobody wants anything of them.
fn idle(host: &Host, guests: u32) -> anyhow::Result<[Figure; 2]> {
    let [agent, vmms] = idle_percent(host)?;
    let how = "utime and stime over 60 s, guests halted; a process that took less than a hundredth of a second took none";
    Ok([
        Figure::new("idle CPU of kvmlet", agent, "% of 1", Better::Less).how(how),
        Figure::new(
            &format!("idle CPU of {guests} kvmlet-vmm together"),
            vmms,
            "% of 1",
            Better::Less,
        )
        .how(how),
    ])
}

/// Percent of a CPU that the agent, and all VMMs together, take while nobody wants anything of them.
pub(super) fn idle_percent(host: &Host) -> anyhow::Result<[f64; 2]> {
    // In hundredths of a second, of all threads, also of those that are gone (proc(5)).
    let spent = |program: &str| -> anyhow::Result<f64> {
        let script = format!(
            "for pid in $(pidof {program}); do cat /proc/$pid/stat; done | sed 's/.*) //' | \
             awk '{{ticks += $12 + $13}} END {{printf \"%d\", ticks}}'"
        );
        let ticks = host.sh(&script)?;
        ticks
            .trim()
            .parse::<f64>()
            .with_context(|| format!("{program}: {ticks:?}"))
    };
    let before = [spent("kvmlet")?, spent("kvmlet-vmm")?];
    // How long is measured.
    std::thread::sleep(IDLE);
    let after = [spent("kvmlet")?, spent("kvmlet-vmm")?];
    // A hundred ticks are a second, and all of a CPU.
    let seconds = IDLE.as_secs_f64();
    Ok([
        (after[0] - before[0]) / seconds,
        (after[1] - before[1]) / seconds,
    ])
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::AgentOptions;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: AgentOptions,
    }

    #[test]
    fn kube_apiserver_is_left_out_only_on_demand() {
        let of = |words: &[&str]| {
            let line = Line::try_parse_from([&["agent"], words].concat());
            line.map(|line| {
                let AgentOptions {
                    kube_apiserver,
                    without_kube_apiserver,
                    ..
                } = line.options;
                (kube_apiserver.is_some(), without_kube_apiserver)
            })
            .ok()
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["--kube-apiserver", "program"]), Some((true, false)));
        assert_eq!(of(&["--without-kube-apiserver"]), Some((false, true)));
        let both = ["--kube-apiserver", "program", "--without-kube-apiserver"];
        assert_eq!(of(&both), None);
    }
}
