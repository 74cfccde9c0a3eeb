//! `control`: plays the agent of one VMM, which is the parent of this process.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use anyhow::Context;
use integration::vmm_client::VmmClient;
use nix::sys::signal::{Signal, kill};
use nix::unistd::getppid;
use proto_vmm::v1::{self, Response, request::Kind};

use crate::flags::Run;
use crate::{machine, socket};

/// Configures the VMM and boots, relays the console, and says on standard error how the guest ended.
pub fn control(flags: &Run) -> anyhow::Result<()> {
    let vmm = getppid();
    let driven = drive(flags);
    if driven.is_err() {
        // Nobody else would ever end a VMM that has no guest. It may have ended already.
        kill(vmm, Signal::SIGKILL).ok();
    }
    driven
}

fn drive(flags: &Run) -> anyhow::Result<()> {
    let name = flags.socket.as_deref().context("--socket is missing")?;
    let assembled = machine::assemble(flags)?;
    let mut client = VmmClient::over(socket::connect(name)?)?;
    let configure = Kind::Configure(v1::Configure {
        machine: Some(assembled.machine),
        snapshot_fd: assembled.snapshot_fd,
    });
    let descriptors: Vec<_> = assembled.descriptors.iter().map(AsFd::as_fd).collect();
    granted(client.request(configure, &descriptors)?)?;
    let console = attach_console(&mut client)?;
    granted(client.request(Kind::Subscribe(v1::Subscribe {}), &[])?)?;
    let start = match flags.restore {
        None => Kind::Boot(v1::Boot {}),
        Some(_) => Kind::Resume(v1::Resume {}),
    };
    granted(client.request(start, &[])?)?;
    // A guest may live for as long as it likes.
    client.socket().set_read_timeout(None)?;
    let exit = client.wait_for_exit()?;
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

fn granted(response: Response) -> anyhow::Result<()> {
    match response.error {
        None => Ok(()),
        Some(error) => anyhow::bail!("refused: {} {}", error.field, error.message),
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
    granted(client.request(attach, &[vmms.as_fd()])?)?;
    let to_guest = ours.try_clone()?;
    // It is left behind in its read when the guest ends.
    thread::spawn(move || copy(io::stdin().lock(), &to_guest));
    Ok(thread::spawn(move || {
        let copied = copy(&ours, io::stdout().lock());
        // Standard input may have nothing more to say.
        ours.shutdown(Shutdown::Both).ok();
        copied
    }))
}

/// Copies what comes as it comes.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // The VMM was killed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        };
        to.write_all(buffer.get(..count).unwrap_or_default())?;
        to.flush()?;
    }
}
