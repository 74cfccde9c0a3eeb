//! What can be typed after `port-forward`.

use clap::Args;

use crate::port_forward::ports::Ports;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl port-forward vmi/web 8080:80\n  kvmctl port-forward vm/web/team-a tcp/2222:22 udp/5353:53\n  ssh -o ProxyCommand='kvmctl port-forward --stdio vmi/web 22' admin@web\n\nThe agent connects to the guest over the bridge of its first interface, so the guest must have an address there: one that qemu-guest-agent tells, or that the node has seen it with.\n\nLocal port 0 takes a free one.\nCtrl+C ends it."
)]
pub struct PortForward {
    /// Which guest: vm/NAME or vmi/NAME, with /NAMESPACE behind it for one of another namespace
    #[arg(value_name = "TYPE/NAME")]
    pub what: String,
    /// Ports: of this machine, and of the guest if it is another number; tcp by default
    #[arg(required = true, value_name = "[PROTOCOL/]LOCAL[:TARGET]")]
    pub ports: Vec<Ports>,
    /// Address of this machine to listen on
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub address: String,
    /// Carry one connection over standard input and output instead of listening
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub stdio: bool,
}
