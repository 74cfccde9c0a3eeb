//! Plays the agent of one VMM, which is the process that made this one.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use anyhow::Context;
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
    let exit = tell_events(&mut client)?;
    // The VMM ends, and with it the console, after all output was relayed.
    console
        .join()
        .ok()
        .context("the thread that relays the console failed")??;
    eprintln!(
        "vmm-front: ended: {} resets={} {}",
        exit.reason().as_str_name(),
        exit.resets,
        exit.detail
    );
    Ok(())
}

/// Prints a line for each event until the one that tells the end.
fn tell_events(client: &mut VmmClient) -> anyhow::Result<ExitRecord> {
    loop {
        let event = client.next_event()?;
        let status = event.status.clone().unwrap_or_default();
        if let Some(exit) = status.exit {
            return Ok(exit);
        }
        let name = event.kind().as_str_name();
        eprintln!("vmm-front: event: {name} {}", status::line(&status));
    }
}

/// Connects the console to standard input and output. The thread ends with the console.
fn attach_console(client: &mut VmmClient) -> anyhow::Result<thread::JoinHandle<io::Result<()>>> {
    let (ours, vmms) = UnixStream::pair()?;
    let attach = Kind::AttachConsole(v1::AttachConsole {
        replay: true,
        client: "vmm-front".to_owned(),
        ..v1::AttachConsole::default()
    });
    granted(client, attach, &[vmms.as_fd()])?;
    Ok(relay(ours)?)
}
