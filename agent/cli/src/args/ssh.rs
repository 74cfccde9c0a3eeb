//! What can be typed after `ssh` and `scp`: the flags of `virtctl`, and `--wait`.

use std::time::Duration;

use clap::Args;

use crate::time::parse_duration;

/// How the local program is called.
#[derive(Args)]
pub struct SshOptions {
    /// User to log in as, if the target names none [default: yours]
    #[arg(short = 'l', long, value_name = "USER")]
    pub username: Option<String>,
    /// Private key; without it those of ssh and of its agent
    #[arg(short, long, value_name = "FILE")]
    pub identity_file: Option<String>,
    /// File of known hosts; without it ssh's own
    #[arg(long, value_name = "FILE")]
    pub known_hosts: Option<String>,
    /// Port of the guest
    #[arg(short, long, default_value_t = 22, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Option for the local program, such as '-o StrictHostKeyChecking=accept-new'; may be repeated
    #[arg(short = 't', long, value_name = "OPTION", allow_hyphen_values = true)]
    pub local_ssh_opts: Vec<String>,
    /// How long to wait for the guest to run and to answer there; 0s not at all
    #[arg(long, value_parser = parse_duration, default_value = "5m", value_name = "DURATION")]
    pub wait: Duration,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl ssh debian@vm/web\n  kvmctl ssh -i key -t '-o StrictHostKeyChecking=accept-new' debian@vm/web\n  kvmctl ssh -c 'uname -r' debian@vm/web/team-a\n\nThe local ssh is run, with a ProxyCommand that goes through the agent: the guest needs no route from here. Its known\nhosts have the name vm.NAME.NAMESPACE. The exit code is that of ssh."
)]
pub struct Ssh {
    /// Target: a vm or a vmi
    #[arg(value_name = "[USER@]TYPE/NAME[/NAMESPACE]")]
    pub target: String,
    #[command(flatten)]
    pub options: SshOptions,
    /// Command to run in the guest, instead of a shell
    #[arg(short, long, value_name = "COMMAND", allow_hyphen_values = true)]
    pub command: Option<String>,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl scp notes.txt debian@vm/web:notes.txt\n  kvmctl scp -r debian@vm/web/team-a:/var/log ./log"
)]
pub struct Scp {
    /// Source: a local path, or one in a guest
    #[arg(value_name = "PATH | [USER@]TYPE/NAME[/NAMESPACE]:PATH")]
    pub source: String,
    /// Destination: a path on the other side
    pub destination: String,
    #[command(flatten)]
    pub options: SshOptions,
    /// Copy directories with their content
    #[arg(short, long)]
    pub recursive: bool,
    /// Keep times and modes of files
    #[arg(long)]
    pub preserve: bool,
}
