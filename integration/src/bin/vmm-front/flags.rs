//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::firmware::FirmwareFlags;
use crate::options::{CpusFlag, DiskFlag, NetFlag, SizeFlag};
use crate::peripherals::Peripherals;
use crate::tuning::Tuning;

/// A machine without an agent.
#[derive(Debug, Parser)]
#[command(name = "vmm-front")]
pub struct Flags {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs a machine; its serial console is on standard input and output.
    Run(Box<Run>),
    /// Asks a VMM that runs.
    Ask(Ask),
}

/// A machine.
#[derive(Debug, Args)]
pub struct Run {
    /// The VMM's program.
    #[arg(long, default_value = "/usr/local/bin/kvmlet-vmm")]
    pub vmm: PathBuf,
    /// The VMM's control socket: a path, or @NAME for one without a file [default: a new name].
    #[arg(long)]
    pub socket: Option<String>,
    /// ELF with a PVH note, or bzImage.
    #[arg(
        long,
        required_unless_present = "firmware",
        conflicts_with = "firmware"
    )]
    pub kernel: Option<PathBuf>,
    #[command(flatten)]
    pub firmware: FirmwareFlags,
    #[arg(long)]
    pub initrd: Option<PathBuf>,
    #[arg(long, default_value = "")]
    pub cmdline: String,
    /// COUNT, or SOCKETSxCORESxTHREADS; then ,model=NAME
    #[arg(long, default_value = "1")]
    pub cpus: CpusFlag,
    /// With a suffix K, M or G.
    #[arg(long, default_value = "256M")]
    pub memory: SizeFlag,
    #[command(flatten)]
    pub tuning: Tuning,
    /// PATH, then any of: ,ro ,serial=S ,queues=N ,cache=none ,cache=writethrough ,io=threads
    /// ,discard ,logical=BYTES ,physical=BYTES ,granularity=BYTES ,thread=NAME
    #[arg(long)]
    pub disk: Vec<DiskFlag>,
    /// TAP, then any of: ,mac=AA:BB:CC:DD:EE:FF ,mtu=N ,vhost
    #[arg(long)]
    pub net: Vec<NetFlag>,
    #[command(flatten)]
    pub peripherals: Peripherals,
    /// Empty hot-plug slots, by the rule of agents.
    #[arg(long)]
    pub spare_ports: bool,
    /// Ends at a reset of the guest.
    #[arg(long)]
    pub no_reboot: bool,
    /// Goes on with this snapshot.
    #[arg(long)]
    pub restore: Option<PathBuf>,
}

/// A question.
#[derive(Debug, Args)]
pub struct Ask {
    /// The VMM's control socket: a path or @NAME.
    pub socket: String,
    #[command(subcommand)]
    pub question: Question,
}

#[derive(Debug, Subcommand)]
pub enum Question {
    /// Prints the machine's status.
    Status,
    /// Prints when it came how far on its start, in nanoseconds after the process began.
    Timeline,
    /// Asks the guest to do without this much memory.
    Balloon {
        target: SizeFlag,
    },
    /// Prints what the guest last said of its memory, and asks it anew.
    BalloonStats,
    /// Connects standard input and output to a port of the virtio console, until either ends.
    Port {
        /// Empty: the console.
        #[arg(default_value = "")]
        name: String,
    },
    Pause,
    Resume,
    Reset,
    PowerButton,
    Stop,
    /// Writes a snapshot of the paused machine to a new file.
    Save {
        file: PathBuf,
    },
}
