//! `cargo xtask`: demo, test, check, audit, layers, gen, images, node, bench, syscalls,
//! fuzz, sim, soak, verdicts, build, package.
//!
//! Owns how the project is built, proved and shown on a developer's machine and in CI. What boots
//! nodes and makes images is in the `integration` library; here are only the commands.

#![forbid(unsafe_code)]

mod audit;
mod bench;
mod build;
mod check;
mod cycles;
mod demo;
mod documented;
mod fuzz;
mod r#gen;
mod images;
mod layers;
mod node;
mod package;
mod progress;
mod sbom;
mod sim;
mod soak;
mod syscalls;
mod test;
mod verdicts;
mod words;
mod workspace;

use clap::{Parser, Subcommand};
use integration::artifacts;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, proves and shows kvmlet.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Watch one guest from manifest to shell prompt and away again.
    Demo(demo::DemoOptions),
    /// Check everything, then run every test; the last line counts them.
    Test(test::TestOptions),
    /// Formatting, clippy, documentation, dependencies, layers, generated code.
    Check,
    /// Compare dependencies with known vulnerabilities, and check their licences and sources.
    Audit(audit::AuditOptions),
    /// Fail when a crate imports what the table of crates does not allow, or files of one import each other in cycles.
    Layers {
        /// Only list the cycles of files that import each other.
        #[arg(long)]
        cycles: bool,
    },
    /// Write the code that derives from the .proto files.
    Gen {
        /// Write nothing; fail when what is checked in differs from what would be written.
        #[arg(long)]
        check: bool,
    },
    /// Make the images that nodes and guests boot from.
    Images {
        /// Take the newest stock kernel that apt knows.
        #[arg(long)]
        refresh: bool,
        /// Also the Debian disk, which only `soak firmware` and `soak story` boot.
        #[arg(long)]
        debian: bool,
    },
    /// An interactive node in a box with the programs in it.
    Node {
        /// With systemd instead of busybox.
        #[arg(long)]
        systemd: bool,
    },
    /// Measure, and print figures beside their budgets.
    Bench {
        /// Also write the figures to this file.
        #[arg(long, value_name = "FILE", global = true)]
        json: Option<std::path::PathBuf>,
        #[command(subcommand)]
        what: Option<Bench>,
    },
    /// Compare the system calls that VMMs make with those that their filters allow.
    Syscalls(syscalls::SyscallsOptions),
    /// Feed fuzz targets, and print executions and findings.
    Fuzz(fuzz::FuzzOptions),
    /// Show one of the simulator's schedules step by step.
    Sim {
        /// Seed of the schedule.
        #[arg(long)]
        seed: u64,
        /// One of control planes and several nodes, instead of one VMI's.
        #[arg(long)]
        cluster: bool,
    },
    /// The long campaigns, by seed and count.
    Soak {
        #[command(subcommand)]
        what: soak::Soak,
    },
    /// Write the page of verdicts on KubeVirt's examples.
    Verdicts(verdicts::VerdictsOptions),
    /// Build the programs and the test guest as they are tested.
    Build,
    /// Make the Debian package.
    Package(package::PackageOptions),
}

/// Benchmarks that are not part of the usual ones.
#[derive(Subcommand)]
enum Bench {
    /// kvmlet-vmm beside QEMU, in one node in a box.
    Vmm {
        /// Count instructions instead of time: noise of this machine plays no part.
        #[arg(long)]
        icount: bool,
        /// Measure only this: boot, idle, disk or net.
        #[arg(long, value_name = "WORK")]
        only: Option<integration::vmm_bench::Work>,
    },
    /// Random reads by a guest on this machine's own KVM, beside io_uring without one.
    Io(bench::io::IoOptions),
    /// An image from a registry to a raw disk, beside skopeo and qemu-img; and the guests that share its disk.
    Images(bench::images::ImagesOptions),
    /// An agent with hundreds of guests on this machine's own KVM.
    Agent(bench::agent::AgentOptions),
    /// VirtualMachines that are halted, beside guests that run, on this machine's own KVM.
    Machines {
        #[arg(long, default_value_t = 1000)]
        halted: u32,
        #[arg(long, default_value_t = 200)]
        running: u32,
    },
    /// What the pod network adds to starts, and what masquerade costs connections.
    Net(bench::net::NetOptions),
    /// Many small machines at once on this machine's own KVM.
    Crowd {
        #[arg(long, default_value_t = 900)]
        count: usize,
    },
}

fn main() -> std::process::ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let root = workspace::root()?;
    if matches!(command, Command::Bench { .. }) && artifacts::profile()? != bench::PROFILE {
        return bench::in_release(&root);
    }
    match command {
        Command::Demo(options) => demo::run(&root, &options),
        Command::Test(options) => test::run(&root, &options),
        Command::Check => check::run(&root),
        Command::Audit(options) => audit::run(&root, &options),
        Command::Layers { cycles: true } => cycles::print(&root),
        Command::Layers { cycles: false } => layers::run(&root),
        Command::Gen { check } => r#gen::run(&root, check),
        Command::Images { refresh, debian } => images::all(refresh, debian),
        Command::Node { systemd } => node::run(&root, systemd),
        Command::Syscalls(options) => syscalls::run(&root, &options),
        Command::Fuzz(options) => fuzz::run(&root, &options),
        Command::Sim { seed, cluster } => sim::replay(seed, cluster),
        Command::Soak { what } => soak::run(&root, &what),
        Command::Package(options) => package::run(&root, &options),
        Command::Bench { json, what: None } => bench::run(&root, json),
        Command::Bench {
            json,
            what: Some(Bench::Vmm { icount, only }),
        } => bench::vmm::run(&root, icount, only, json),
        Command::Bench {
            json,
            what: Some(Bench::Io(options)),
        } => bench::io::run(&root, options, json),
        Command::Bench {
            json,
            what: Some(Bench::Agent(options)),
        } => bench::agent::run(&root, &options, json),
        Command::Bench {
            json,
            what: Some(Bench::Machines { halted, running }),
        } => bench::machines::run(&root, halted, running, json),
        Command::Bench {
            json,
            what: Some(Bench::Images(options)),
        } => bench::images::run(&root, options, json),
        Command::Bench {
            json,
            what: Some(Bench::Net(options)),
        } => bench::net::run(&root, &options, json),
        Command::Bench {
            json,
            what: Some(Bench::Crowd { count }),
        } => bench::crowd::run(&root, count, json),
        Command::Verdicts(options) => verdicts::run(&root, &options),
        Command::Build => build::run(&root),
    }
}
