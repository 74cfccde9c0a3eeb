//! What can be typed after `top`.

use std::time::Duration;

use clap::Args;

use crate::output::OutputFormat;
use crate::time::parse_duration;

/// By what a table is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// By name.
    Name,
    /// The busiest first.
    Cpu,
    /// The largest first.
    Memory,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl top\n  kvmctl top vm\n  kvmctl top -A --once --sort cpu\n  kvmctl top -o json\n\nCPU counts thousandths of a CPU of the node, the VMM's own work included. RESIDENT is memory that the\nVMM's process has, that of the guest included; MEMORY is what the guest was given. A question mark\nstands where a VMM did not answer in time. `top vm` shows the state of each machine, too, those without guest among them.\n\nKeys of the live view: n, c and m sort by name, CPU and memory; arrows, j, k, page up, page down, home and end\nscroll; q or Ctrl+C leaves."
)]
pub struct Top {
    /// vmi, which is the default, or vm, and names of some
    #[arg(value_name = "TYPE [NAME...]")]
    pub of: Vec<String>,
    /// In all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Print one table and end; so does standard output that is no terminal
    #[arg(long)]
    pub once: bool,
    /// Interval between updates, over which rates are computed
    #[arg(long, value_parser = parse_duration, default_value = "2s", value_name = "DURATION")]
    pub interval: Duration,
    /// Order of the rows
    #[arg(long, value_enum, default_value_t = Sort::Name)]
    pub sort: Sort,
    /// json or yaml; implies --once
    #[arg(short, long)]
    pub output: Option<OutputFormat>,
}
