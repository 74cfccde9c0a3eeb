//! What the agent's program does when it is started again as a helper.
//!
//! The agent cannot run code between fork and exec of a child, so what must happen there happens
//! at the start of a program: the agent starts itself anew with a hidden subcommand, which drops
//! its privileges as its first act. The daemon's `main` calls [`run`] before anything else.

mod answer_dhcp;
mod become_vmm;
mod confine;
mod convert_image;
mod descriptors;
mod dhcp_orders;
mod drop_privileges;
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
use std::process::ExitCode;

#[cfg(test)]
pub(crate) use answer_dhcp::serve_unconfined as serve_dhcp;
pub(crate) use become_vmm::GO_ON;
pub(crate) use convert_image::{Reply, Request, SUBCOMMAND as CONVERT_IMAGE, Task};
pub(crate) use descriptors::send;
pub(crate) use dhcp_orders::{Order as DhcpOrder, send as send_dhcp_order};
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
        convert_image::SUBCOMMAND => Some(convert_image::main()),
        read_archive::SUBCOMMAND => Some(read_archive::main()),
        read_layers::SUBCOMMAND => Some(read_layers::main()),
        pull_image::SUBCOMMAND => Some(pull_image::main()),
        answer_dhcp::SUBCOMMAND => Some(answer_dhcp::main()),
        open_dhcp::SUBCOMMAND => Some(open_dhcp::main()),
        open_sockets::SUBCOMMAND => Some(open_sockets::main()),
        become_vmm::SUBCOMMAND => Some(become_vmm::main(arguments)),
        run_hook::SUBCOMMAND => Some(run_hook::main(arguments)),
        launch_vmm::SUBCOMMAND => {
            oom_score::spare();
            Some(launch_vmm::main(arguments))
        }
        _ => None,
    }
}
