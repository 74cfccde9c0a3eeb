//! What the agent's program does when it is started again as a helper.
//!
//! The agent cannot run code between fork and exec of a child, so what must happen there happens
//! at the start of a program: the agent starts itself anew with a hidden subcommand, which drops
//! its privileges as its first act. The daemon's `main` calls [`run`] before anything else.

mod become_vmm;
mod convert_image;
mod launch_arguments;
mod launch_vmm;
mod messages;
mod open_dhcp;
mod open_sockets;
mod pull_image;
mod read_archive;
mod read_layers;
mod run_hook;
mod sparse_file;
mod unpack_kernel;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

pub(crate) use become_vmm::CONTINUE;
pub(crate) use convert_image::{Reply, Request, SUBCOMMAND as CONVERT_IMAGE, Task};
pub(crate) use launch_arguments::LaunchArguments;
pub(crate) use launch_vmm::Launched;
pub(crate) use messages::{next_message, send_in_turn};
pub(crate) use open_dhcp::SUBCOMMAND as OPEN_DHCP;
#[cfg(test)]
pub(crate) use open_sockets::carry_out_here;
pub(crate) use open_sockets::{
    Outcome, SUBCOMMAND as OPEN_SOCKETS, SocketAnswer, SocketOrder, Wanted,
};
pub(crate) use pull_image::{
    Ask as PullAsk, BUSY as PULL_IS_BUSY, Request as PullRequest, SUBCOMMAND as PULL_IMAGE,
    is_digest,
};
pub(crate) use read_archive::{
    Reply as ArchiveReply, Request as ArchiveRequest, SUBCOMMAND as READ_ARCHIVE,
};
pub(crate) use read_layers::{
    Reply as LayersReply, Request as LayersRequest, SUBCOMMAND as READ_LAYERS,
};
pub(crate) use run_hook::SUBCOMMAND as RUN_HOOK;
pub(crate) use unpack_kernel::SUBCOMMAND as UNPACK_KERNEL;

use crate::oom_score;

/// Carries out a hidden subcommand. `None` when the first argument names none: then this process is
/// the agent itself.
///
/// `arguments` are those of the process without its own name. Call it before the first thread is
/// started: the helpers change what belongs to the whole process.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    let subcommand = arguments.next()?;
    match subcommand.to_str()? {
        unpack_kernel::SUBCOMMAND => Some(unpack_kernel::main()),
        become_vmm::SUBCOMMAND => Some(become_vmm::main(arguments)),
        run_hook::SUBCOMMAND => Some(run_hook::main(arguments)),
        open_dhcp::SUBCOMMAND => {
            let served = open_dhcp::serve(arguments);
            Some(exit_code(open_dhcp::SUBCOMMAND, served))
        }
        launch_vmm::SUBCOMMAND => {
            oom_score::spare();
            Some(launch_vmm::main(arguments))
        }
        name => {
            let (_, serve) = SERVING.iter().find(|(known, _)| *known == name)?;
            Some(exit_code(name, serve()))
        }
    }
}

type Serve = fn() -> io::Result<()>;

/// Helpers that have all they do from their standard input.
const SERVING: [(&str, Serve); 5] = [
    (convert_image::SUBCOMMAND, convert_image::serve),
    (read_archive::SUBCOMMAND, read_archive::serve),
    (read_layers::SUBCOMMAND, read_layers::serve),
    (pull_image::SUBCOMMAND, pull_image::serve),
    (open_sockets::SUBCOMMAND, open_sockets::serve),
];

/// The exit status says it all; why is for a log.
fn exit_code(subcommand: &str, served: io::Result<()>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // That nobody reads it changes nothing.
            drop(writeln!(io::stderr(), "{subcommand}: {error}"));
            ExitCode::FAILURE
        }
    }
}
