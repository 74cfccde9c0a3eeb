//! `kvmlet-dhcp`, which the agent starts: see [`agent_dhcp_server::serve`].

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use agent_dhcp_server::{PROGRAM, serve};

/// The exit status says it all; why is for a log.
fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // That nobody reads it changes nothing.
            drop(writeln!(io::stderr(), "{PROGRAM}: {error}"));
            ExitCode::FAILURE
        }
    }
}
