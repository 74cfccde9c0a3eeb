//! `kvmctl start` and `restart`.

use clap::Args;

use super::dry_run::DryRun;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl start web\n  kvmctl start vm web --paused && kvmctl unpause vmi web"
)]
pub struct Start {
    /// Names of VirtualMachines, with their type or without: `web db`, `vm web db`, `vm/web vm/db`
    #[arg(required = true, value_name = "NAME")]
    pub what: Vec<String>,
    /// Hold the guest before its first instruction, until it is unpaused
    #[arg(long)]
    pub paused: bool,
    #[command(flatten)]
    pub dry_run: DryRun,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl restart web\n  kvmctl restart vm web --grace-period 0 --force"
)]
pub struct Restart {
    /// Names of VirtualMachines, with their type or without: `web db`, `vm web db`, `vm/web vm/db`
    #[arg(required = true, value_name = "NAME")]
    pub what: Vec<String>,
    /// Seconds for the guest to shut down: 0, with --force. Its own when left out
    #[arg(long, value_name = "SECONDS")]
    pub grace_period: Option<i64>,
    /// End the guest at once: what it has not written is lost
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub dry_run: DryRun,
}
