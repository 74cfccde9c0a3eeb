//! Plays the agent of one VMM, which is the process that made this one.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use integration::vmm_client::VmmClient;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto_vmm::v1::{self, ExitRecord, request::Kind};

use crate::ask::granted;
use crate::flags::Run;
use crate::relay::relay;
use crate::{machine, socket, status};

/// Configures the VMM `vmm` and boots, relays the console, and says on standard error what happens and how
/// the guest ended.
pub fn control(flags: &Run, socket: &str, vmm: Pid) -> anyhow::Result<()> {
    let driven = drive(flags, socket);
    if driven.is_err() {
        // Nobody else would ever end a VMM that has no guest. It may have ended already.
        kill(vmm, Signal::SIGKILL).ok();
    }
    driven
}

fn drive(flags: &Run, name: &str) -> anyhow::Result<()> {
    let assembled = machine::assemble(flags)?;
    let mut client = VmmClient::over(socket::connect(name)?)?;
    let configure = Kind::Configure(v1::Configure {
        machine: Some(assembled.machine),
        snapshot_fd: assembled.snapshot_fd,
    });
    // What was allocated beforehand, or read from a snapshot, is there when it is answered.
    client.socket().set_read_timeout(None)?;
    let descriptors: Vec<_> = assembled.descriptors.iter().map(AsFd::as_fd).collect();
    granted(&mut client, configure, &descriptors)?;
    // Sockets are closed with the VMM's descriptors.
    drop(descriptors);
    drop(assembled.descriptors);
    let console = attach_console(&mut client)?;
    granted(&mut client, Kind::Subscribe(v1::Subscribe {}), &[])?;
    let start = match flags.restore {
        None => Kind::Boot(v1::Boot {}),
        Some(_) => Kind::Resume(v1::Resume {}),
    };
    granted(&mut client, start, &[])?;
    let mut exit = None;
    while client.has_events() && exit.is_none() {
        exit = print_event(&mut client)?;
    }
    // The VMM ends, and with it the console, after all output was relayed.
    let control = client.socket().try_clone()?;
    let watched = exit.is_none().then(|| control.as_fd());
    relay(&console, watched, || {
        exit = print_event(&mut client)?;
        Ok(exit.is_none())
    })?;
    let exit = loop {
        match exit {
            Some(exit) => break exit,
            None => exit = print_event(&mut client)?,
        }
    };
    status::print(&format!(
        "ended: {} resets={} {}",
        exit.reason().as_str_name(),
        exit.resets,
        exit.detail
    ));
    Ok(())
}

/// Prints a line for the next event; gives what was recorded when it is the end.
fn print_event(client: &mut VmmClient) -> anyhow::Result<Option<ExitRecord>> {
    let event = client.next_event()?;
    let status = event.status.clone().unwrap_or_default();
    if status.exit.is_some() {
        return Ok(status.exit);
    }
    let name = event.kind().as_str_name();
    status::print(&format!("event: {name} {}", status::line(&status)));
    Ok(None)
}

/// Connects to the console.
fn attach_console(client: &mut VmmClient) -> anyhow::Result<UnixStream> {
    let (ours, vmms) = UnixStream::pair()?;
    let attach = Kind::AttachConsole(v1::AttachConsole {
        replay: true,
        client: "vmm-front".to_owned(),
        ..v1::AttachConsole::default()
    });
    granted(client, attach, &[vmms.as_fd()])?;
    Ok(ours)
}
