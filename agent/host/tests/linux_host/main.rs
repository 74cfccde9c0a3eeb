//! The Linux host with real processes, sockets, taps and, where this machine has KVM, real guests.
//!
//! The test program is its own helper: the agent starts itself anew to launch VMMs and to unpack
//! kernels, and here the agent is this program. So it has a `main` of its own. As root it runs in a
//! network namespace of its own.

#![allow(clippy::unwrap_used, reason = "a test")]

mod dialer;
mod guest;
mod guest_agent;
mod kernels;
mod launcher;
mod namespaces;
mod network;
mod pulls;
mod support;
mod vmm;
mod vsock;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Some(code) = namespaces::run_forbidden(std::env::args_os().skip(1)) {
        return code;
    }
    if let Some(code) = agent_host::child::run(std::env::args_os().skip(1)) {
        return code;
    }
    let arguments = Arguments::from_args();
    if !arguments.list {
        support::enter_namespaces();
    }
    let trials: Vec<Trial> = [
        dialer::trials(),
        guest_agent::trials(),
        kernels::trials(),
        launcher::trials(),
        namespaces::trials(),
        network::trials(),
        pulls::trials(),
        guest::trials(),
        vmm::trials(),
        vsock::trials(),
    ]
    .into_iter()
    .flatten()
    .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
