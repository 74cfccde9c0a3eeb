//! A machine without an agent: `vmm-front run FLAGS` opens what the flags name and becomes a
//! `kvmlet-vmm` that runs the machine; `vmm-front ask SOCKET QUESTION` talks to one that runs.
//!
//! For benchmarks, which compare whole programs by their command lines, and for tests that want every
//! device in one machine. It is not shipped.

#![forbid(unsafe_code)]

mod arguments;
mod ask;
mod broker;
mod control;
mod cpu_options;
mod files;
mod firmware;
mod flags;
mod machine;
mod options;
mod peripherals;
mod place_options;
mod relay;
mod run;
mod smbios;
mod socket;
mod status;
mod tuning;

use std::process::ExitCode;

use arguments::Arguments;
use flags::{ASK_HELP, Command, HELP};

fn main() -> ExitCode {
    let done = match Command::parse(Arguments::of_this_process()) {
        Ok(Command::Run(run)) => run::run(&run),
        Ok(Command::Ask(ask)) => ask::ask(&ask),
        Ok(Command::Help) => {
            print!("{HELP}{}{ASK_HELP}", peripherals::HELP);
            Ok(())
        }
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            status::print(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
