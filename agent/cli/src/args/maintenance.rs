//! What can be typed after `cordon`, `uncordon` and `drain`.

use std::time::Duration;

use clap::Args;

use super::dry_run::DryRun;
use crate::time::parse_duration;

/// Which node is cordoned.
#[derive(Args)]
pub struct Cordon {
    /// Name of the node, to be sure that it is that one; node/NAME works too
    #[arg(value_name = "NODE")]
    pub node: Option<String>,
    #[command(flatten)]
    pub dry_run: DryRun,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl drain --dry-run\n  kvmctl drain --grace-period 120 --timeout 1h\n  kvmctl drain --cancel\n  kvmctl uncordon\n\nBy evictionStrategy:\n  None, LiveMigrateIfPossible  the guest is shut down, with its grace period\n  LiveMigrate                  it is in the way, unless --force shuts it down\n  External                     it is left to its controller, which is waited for\n\nThe node goes on with a drain by itself, also when this command was interrupted or its time is over.\n\nExit codes: 0 no guest is left, 1 guests are in the way, 124 --timeout is over"
)]
pub struct Drain {
    /// Name of the node, to be sure that it is that one; node/NAME works too
    #[arg(value_name = "NODE")]
    pub node: Option<String>,
    #[command(flatten)]
    pub dry_run: DryRun,
    /// Shut guests down, too, that should be migrated
    #[arg(long, conflicts_with = "cancel")]
    pub force: bool,
    /// Seconds for each guest to shut down; 0 ends them at once. Their own when left out
    #[arg(long, conflicts_with = "cancel", value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..))]
    pub grace_period: Option<i64>,
    /// Guests that are shut down at a time
    #[arg(long, conflicts_with = "cancel", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub parallel: Option<u32>,
    /// Wait until no guest is left
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub wait: bool,
    /// Give up waiting after this long
    #[arg(long, value_parser = parse_duration, default_value = "30m", value_name = "DURATION")]
    pub timeout: Duration,
    /// End a drain: guests that are not being stopped yet go on, and the node stays cordoned
    #[arg(long, conflicts_with = "dry_run")]
    pub cancel: bool,
}
