//! What can be typed after `expand`: the flags of `virtctl`.

use std::path::PathBuf;

use clap::Args;

use crate::output::OutputFormat;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl expand --vm web\n  kvmctl create vm --instancetype u1.small --name web | kvmctl expand --file -\n\nDefaults that a node fills in are left out: kvmctl validate --defaulted shows those."
)]
pub struct Expand {
    /// Name of a VirtualMachine of the node
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub vm: Option<String>,
    /// Manifest of a VirtualMachine, or - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// yaml or json
    #[arg(short, long, default_value = "yaml")]
    pub output: OutputFormat,
}
