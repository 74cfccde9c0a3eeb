//! Connects the guest's sockets to programs of the host: port N is the Unix socket N of a directory.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair,
};

/// Bytes of a question and of an answer; see `VirtioVsock.broker_fd`.
const PACKET_BYTES: usize = 16;

/// Starts a thread that answers for as long as the VMM asks, and returns the VMM's side.
pub fn start(directory: &Path) -> anyhow::Result<OwnedFd> {
    let (unix, flags) = (AddressFamily::Unix, SockFlag::SOCK_CLOEXEC);
    let (ours, vmms) = socketpair(unix, SockType::SeqPacket, None, flags)?;
    let directory = directory.to_owned();
    thread::spawn(move || {
        if let Err(error) = serve(&ours, &directory) {
            eprintln!("vmm-front: broker: {error:#}");
        }
    });
    Ok(vmms)
}

fn serve(vmm: &OwnedFd, directory: &Path) -> anyhow::Result<()> {
    let mut question = [0; PACKET_BYTES];
    while recv(vmm.as_raw_fd(), &mut question, MsgFlags::empty())? == PACKET_BYTES {
        let [_, _, _, _, _, _, _, _, p0, p1, p2, p3, ..] = question;
        let port = u32::from_le_bytes([p0, p1, p2, p3]);
        let program = UnixStream::connect(directory.join(port.to_string()));
        let mut answer = [0; PACKET_BYTES];
        let (number, status) = answer.split_at_mut(8);
        number.copy_from_slice(&question[..8]);
        // A program that is not there is a refusal.
        status[0] = u8::from(program.is_ok());
        let raw: Vec<_> = program.iter().map(AsRawFd::as_raw_fd).collect();
        let rights: Vec<_> = program
            .iter()
            .map(|_| ControlMessage::ScmRights(&raw))
            .collect();
        let part = [IoSlice::new(&answer)];
        sendmsg::<()>(vmm.as_raw_fd(), &part, &rights, MsgFlags::empty(), None)?;
    }
    Ok(())
}
