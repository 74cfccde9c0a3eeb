//! `cargo xtask demo`: one guest from manifest to shell prompt and away again, before your eyes; or with `--story` from
//! the Debian package to a login.

mod escapes;
pub mod story;
mod svg;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use integration::agent::{Agent, GuestSpec};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::image::busybox::{self, GuestImage};
use integration::node::{Flavour, Node, NodeSpec};

use self::escapes::WithoutEscapes;
use crate::node::PROGRAMS;
use crate::progress::step;

/// Under nested emulation a stock kernel takes half a minute; on a crowded machine much longer.
const PATIENCE: Duration = Duration::from_secs(300);

/// What is typed at the guest's prompt.
const AT_THE_PROMPT: &[&str] = &[
    "cat /proc/partitions",
    "ip addr",
    "head -c 16 /dev/hwrng | xxd",
];

/// Options of `cargo xtask demo`.
#[derive(clap::Args)]
pub struct DemoOptions {
    /// From the Debian package, in a node in a box, to a login in a machine that one command makes.
    #[arg(long)]
    story: bool,
    /// Also draw the story's terminal, as SVG.
    #[arg(long, value_name = "FILE", requires = "story")]
    svg: Option<PathBuf>,
}

/// Runs the demo where stock kernels can run: on this host, else in a node in a box.
///
/// # Errors
/// When any step does not do what it has to.
pub fn run(root: &Path, options: &DemoOptions) -> anyhow::Result<()> {
    if options.story {
        let picture = options.svg.as_deref();
        return story::run(root, crate::images::cloud, None, picture);
    }
    step("build the programs", || crate::build::only(root, PROGRAMS))?;
    let image = step(
        "guest image: Debian's stock kernel and busybox",
        busybox::guest,
    )?;
    if let Some(reason) = host::without_stock_kernels().or_else(host::without_host) {
        eprintln!(
            "{reason}: the demo runs inside a node in a box (QEMU, emulated), which has a true KVM."
        );
        let mut spec = NodeSpec::bare(Flavour::Busybox)
            .with_programs(PROGRAMS)?
            .with(&image.directory, "images/busybox");
        // Nobody waits for a build of QEMU to see a guest for a minute.
        spec.is_mended = false;
        let node = step("boot the node", || Node::boot(spec))?;
        show(&node, "/opt/payload/images/busybox")
    } else {
        eprintln!("The demo runs on this host's KVM, in namespaces of its own.");
        show(&Host::enter()?, &image.directory.display().to_string())
    }
}

fn show<M: Commands>(machine: &M, image: &str) -> anyhow::Result<()> {
    let agent = step("start the agent", || {
        let agent = Agent::prepare(machine)?;
        agent.add_image(&format!("{image}/boot"), "busybox")?;
        agent.start()?;
        Ok(agent)
    })?;
    // Each character on the serial port is two exits, which are slow under emulation: notices are
    // enough to see the kernel boot.
    let words = "loglevel=6 kvmlet.ip=10.77.0.2/24,10.77.0.1";
    let manifest = GuestSpec::busybox("demo", words).manifest();
    machine.put("/run/demo.yaml", 0o644, manifest.as_bytes())?;
    let started = Instant::now();
    type_in(machine, "cat /run/demo.yaml")?;
    type_in(machine, "kvmctl apply -f /run/demo.yaml")?;
    type_in(
        machine,
        "kvmctl wait --for=condition=Ready vmi/demo --timeout=120s",
    )?;
    type_in(machine, "kvmctl get vmi -o wide")?;
    type_in(machine, "kvmctl describe vmi demo")?;
    console(&agent)?;
    eprintln!(
        "    from apply to the last answer of the guest: {:.1} s",
        started.elapsed().as_secs_f64()
    );
    type_in(machine, "kvmctl get vmi -o wide")?;
    type_in(machine, "kvmctl delete vmi demo")?;
    nothing_is_left(machine)
}

/// Shows a command and what it prints; it has to succeed.
fn type_in<M: Commands>(machine: &M, command: &str) -> anyhow::Result<()> {
    println!("\n$ {command}");
    let output = machine.run_for(&["sh", "-c", command], PATIENCE)?;
    print!("{}{}", output.stdout, output.stderr);
    anyhow::ensure!(
        output.code == Some(0),
        "{command} ended with {:?}",
        output.code
    );
    Ok(())
}

fn console<M: Commands>(agent: &Agent<'_, M>) -> anyhow::Result<()> {
    println!("\n$ kvmctl console demo");
    let mut console = agent.console("demo")?;
    // The guest's shell asks for the position of the cursor, and the answer of this terminal would go astray.
    let mut screen = WithoutEscapes::before(std::io::stdout());
    console.follow_until(GuestImage::PROMPT, PATIENCE, &mut screen)?;
    for command in AT_THE_PROMPT {
        console.write(format!("{command}\n").as_bytes())?;
        console.follow_until(GuestImage::PROMPT, PATIENCE, &mut screen)?;
    }
    // Ctrl+] leaves the console.
    console.write(&[0x1d])?;
    let output = console.wait(PATIENCE)?;
    anyhow::ensure!(
        output.code == Some(0),
        "kvmctl console ended with {:?}",
        output.code
    );
    println!("^]");
    screen.flush()?;
    Ok(())
}

fn nothing_is_left<M: Commands>(machine: &M) -> anyhow::Result<()> {
    machine.wait_for("! kvmctl get vmi demo >/dev/null 2>&1", PATIENCE)?;
    type_in(machine, "kvmctl get vmi")?;
    for (what, command) in [
        ("VMM processes", "pidof kvmlet-vmm || true"),
        (
            "taps",
            "ls /sys/class/net | grep -v -x -e lo -e br0 || true",
        ),
        (
            "directories of the VMI",
            "find /run/kvmlet/host/vmm /var/lib/kvmlet/host/vmm /var/lib/kvmlet/host/disks -mindepth 1 2>/dev/null || true",
        ),
    ] {
        let found = machine.sh(command)?;
        println!(
            "left {what}: {}",
            if found.trim().is_empty() {
                "none"
            } else {
                found.trim()
            }
        );
        anyhow::ensure!(found.trim().is_empty(), "{what} are left:\n{found}");
    }
    Ok(())
}
