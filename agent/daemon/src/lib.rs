//! `kvmlet`: one actor per VMI, shutdown and wiring. A library, so that a test can run an agent with kinds of its own.

#![forbid(unsafe_code)]
// What an actor may await takes memory once for each VMI, for as long as it waits.
#![warn(clippy::large_futures)]

mod actor;
mod actors;
mod agent;
mod check_store;
mod clock;
mod config;
mod connector;
mod control_plane;
mod doctor;
mod durable;
mod error;
mod events;
mod facts;
mod generated_name;
mod given;
mod guests;
mod heaps;
mod hooks;
mod idempotency;
mod image;
mod listeners;
mod lock;
mod locked;
mod logging;
mod memory;
mod metrics;
mod node;
mod node_maintenance;
mod node_service;
mod nvram;
mod object;
mod object_source;
mod objects;
mod orders;
mod paths;
mod pods;
mod reload;
mod reservations;
mod resources;
mod secrets;
mod service;
mod status;
mod store;
mod traces;
mod uid;
mod vsock;
mod watchdog;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};

use self::config::{CONFIG, Config};
use self::memory::WORKERS;

/// Threads for calls that block, such as a sync of the ledger.
const BLOCKING_THREADS: usize = 16;

/// None of them ends before the agent. A child that is to die with the agent dies with the *thread* that started it
/// (`PR_SET_PDEATHSIG`, prctl(2)); and after `block_in_place` a worker's thread is one that blocks, which tokio would end when it
/// was idle for ten seconds.
const THREADS_STAY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// How long the end of the agent waits for threads that block.
const THREADS_END: Duration = Duration::from_secs(1);

/// Runs virtual machines on this node, as the kubelet runs pods.
#[derive(Debug, Parser)]
#[command(
    name = "kvmlet",
    version,
    about = "Runs virtual machines on this node, as the kubelet runs pods"
)]
struct Arguments {
    /// Configuration file. Without the option, a missing default file means the defaults.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read the configuration, say what is wrong with it, and end.
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say what this node has for guests, what it lacks, and the way out; change nothing
    #[command(
        after_help = "Examples:\n  kvmlet doctor\n  kvmlet doctor -o json > node.json && kvmctl validate -f web.yaml --node node.json\n\nExit codes: 0 guests can run, 1 something fails"
    )]
    Doctor {
        /// Print one JSON object instead of lines
        #[arg(short, long, value_enum)]
        output: Option<doctor::Output>,
    },
    /// Disk images: what one is, and the raw disk that guests can have of it
    #[command(subcommand)]
    Image(image::ImageCommand),
    /// What UEFI firmware remembers for VMIs with efi.persistent, also when they are gone
    #[command(subcommand)]
    Nvram(nvram::NvramCommand),
    /// Check whether the agent's ledger is sound, while no agent has it
    #[command(
        name = "check-store",
        after_help = "Every page and row is read. Guests are not affected, whether they run or not. A ledger of an earlier release gets the format of this one, as at the start of the agent; the earlier release refuses it afterwards.\n\nExamples:\n  systemctl stop kvmlet && kvmlet check-store; systemctl start kvmlet\n\nExit codes: 0 it is sound, 1 it is not, or cannot be read"
    )]
    CheckStore,
    /// Print the manual page, for packages
    #[command(name = "manual-page", hide = true)]
    ManualPage,
}

/// The program `kvmlet`, with what stands on its command line. It serves the kinds of
/// [`Kinds::this_release`](agent_objects::Kinds::this_release).
#[must_use]
pub fn main() -> ExitCode {
    // Helpers of the host are this program under hidden names. They come before anything else: some
    // change the whole process and must run while it has one thread.
    if let Some(code) = agent_host::child::run(std::env::args_os().skip(1)) {
        return code;
    }
    let arguments = Arguments::parse();
    // For anybody, also who may not read the agent's configuration.
    if let Some(Command::Image(command)) = &arguments.command {
        return image::run(command).unwrap_or_else(|error| fail(&error));
    }
    if let Some(Command::ManualPage) = arguments.command {
        return manual_page().map_or_else(|error| fail(&error.into()), |()| ExitCode::SUCCESS);
    }
    let config = match read_config(&arguments) {
        Ok(config) => config,
        Err(error) => return fail(&error),
    };
    if arguments.check {
        return ExitCode::SUCCESS;
    }
    if let Some(Command::Doctor { output }) = arguments.command {
        return doctor::run(&config, output).unwrap_or_else(|error| fail(&error));
    }
    if let Some(Command::CheckStore) = arguments.command {
        return check_store::run(&config).unwrap_or_else(|error| fail(&error));
    }
    if let Some(Command::Nvram(command)) = &arguments.command {
        return nvram::run(&config, command).unwrap_or_else(|error| fail(&error));
    }
    heaps::start_with_few();
    let level = match logging::start(&config) {
        Ok(level) => level,
        Err(error) => return fail(&error.into()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(THREADS_STAY)
        .enable_all()
        .build();
    let ended = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let ended = runtime.block_on(service::run(config, level));
        // A thread that waits for a file system may wait for ever.
        runtime.shutdown_timeout(THREADS_END);
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// `kvmlet.8`, of what the command line says of itself.
fn manual_page() -> std::io::Result<()> {
    let page = clap_mangen::Man::new(Arguments::command())
        .section("8")
        .manual("kvmlet")
        .source(format!("kvmlet {}", env!("CARGO_PKG_VERSION")));
    page.render(&mut std::io::stdout().lock())
}

fn read_config(arguments: &Arguments) -> anyhow::Result<Config> {
    match &arguments.config {
        Some(path) => Ok(Config::read(path)?),
        None if !std::path::Path::new(CONFIG).exists() => Ok(Config::default()),
        None => Ok(Config::read(std::path::Path::new(CONFIG))?),
    }
}

/// The one place where a chain of causes is printed.
fn fail(error: &anyhow::Error) -> ExitCode {
    let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
    eprintln!("kvmlet: {}", chain.join(": "));
    ExitCode::FAILURE
}
