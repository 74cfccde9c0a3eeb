//! `run`: leaves a child that configures, and becomes the VMM.

use std::convert::Infallible;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Command};

use anyhow::Context;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::flags::Run;
use crate::socket;

/// Becomes `kvmlet-vmm`, which whoever measures this process then measures.
pub fn run(flags: &Run) -> anyhow::Result<Infallible> {
    let name = flags
        .socket
        .clone()
        .unwrap_or_else(|| format!("@vmm-front-{}", process::id()));
    let listener = socket::listen(&name).with_context(|| format!("listening at {name}"))?;
    start_controller(flags, &name)?;
    // The VMM inherits the socket under the number that it has here.
    fcntl(&listener, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let error = Command::new(&flags.vmm)
        .arg("--control-fd")
        .arg(listener.as_raw_fd().to_string())
        .stdin(process::Stdio::null())
        .exec();
    Err(error).with_context(|| flags.vmm.display().to_string())
}

/// The same program with the same flags. Nobody waits for it: it ends after the VMM.
fn start_controller(flags: &Run, name: &str) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("the path of this program")?;
    let given = std::env::args_os().skip_while(|argument| argument != "run");
    let mut controller = Command::new(own);
    controller.arg("control").args(given.skip(1));
    if flags.socket.is_none() {
        controller.arg(format!("--socket={name}"));
    }
    controller.spawn().context("starting the controller")?;
    Ok(())
}
