//! `run`: leaves a child that configures, and becomes the VMM.

use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Command};

use anyhow::Context;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::Pid;
use vmm_sys::split::{ForkedProcess, split};

use crate::control::control;
use crate::flags::Run;
use crate::socket;

/// Becomes `kvmlet-vmm`, which whoever measures this process then measures. Its child returns at the machine's end.
pub fn run(flags: &Run) -> anyhow::Result<()> {
    let name = flags
        .socket
        .clone()
        .unwrap_or_else(|| format!("@vmm-front-{}", process::id()));
    let listener = socket::listen(&name).with_context(|| format!("listening at {name}"))?;
    // The child goes on with the flags that are read already: another program would take as long to begin as the VMM
    // itself. Nobody waits for it, it ends after the VMM.
    let vmm = Pid::this();
    if split().context("starting the controller")? == ForkedProcess::Child {
        drop(listener);
        return control(flags, &name, vmm);
    }
    // The VMM inherits the socket under the number that it has here.
    fcntl(&listener, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let error = Command::new(&flags.vmm)
        .arg("--control-fd")
        .arg(listener.as_raw_fd().to_string())
        .stdin(process::Stdio::null())
        .exec();
    Err(error).with_context(|| flags.vmm.display().to_string())
}
