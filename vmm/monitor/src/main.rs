//! `kvmlet-vmm`: the process of one guest.
//!
//! It starts with nothing but an inherited listening socket, waits there for whoever configures it,
//! and is given every file as a descriptor. It outlives its agent, and leaves an exit record.
//!
//! Threads: `main` (this crate: control socket, console, signals) and those of the machine.

#![forbid(unsafe_code)]

mod answers;
mod arguments;
mod balloon;
mod config;
mod nic_requests;

mod connection;
mod console;
mod console_port_requests;
mod console_ports;
mod descriptors;
mod device_stats;
mod exit_record;
mod guest;
mod guest_lifecycle;
mod harden;
mod identity;
mod log;
mod log_file;
mod notices;
mod poller;
mod requests;
mod server;
mod snapshot_file;
mod status;
mod timeline;
mod timeline_request;
mod vsock;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use log::Log;
use timeline::ProcessTimes;
use vmm_machine::MachineThread;
use vmm_sys::signal::{Signal, signals_as_fd};
use vmm_sys::threads::ThreadKind;

/// Usage errors, as in sysexits.h.
const EXIT_USAGE: u8 = 64;
/// The VMM itself could not go on.
const EXIT_FAILURE: u8 = 1;

fn main() -> ExitCode {
    let times = ProcessTimes::begin();
    let log = Log::new();
    let arguments = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(Command::Run(arguments)) => arguments,
        Ok(Command::Print(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            log.error("usage", &error.to_string());
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match run(arguments, &log, times) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.error("failed", &vmm_machine::chain(error.as_ref()));
            ExitCode::from(EXIT_FAILURE)
        }
    }
}

fn run(
    arguments: Arguments,
    log: &Log,
    times: ProcessTimes,
) -> Result<(), Box<dyn std::error::Error>> {
    let listener = arguments::control_socket(&arguments)?;
    harden::at_start()?;
    let identity = identity::Identity::of_this_process();
    // Before the first thread, which would get them otherwise.
    let signals = signals_as_fd(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP])?;
    let threads = harden::before_threads(log)?;
    let machine = MachineThread::start(threads)?;
    let peers = arguments.controllers;
    let server = server::Server::new(listener, signals, peers, identity, log.clone(), machine)?;
    threads.confine(ThreadKind::Main)?;
    server.serve(times)?;
    Ok(())
}
