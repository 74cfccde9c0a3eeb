//! `kvmlet open-dhcp PROGRAM`: opens the sockets by which [`agent_dhcp_server`] hears and answers guests.
//!
//! A socket is bound by the rules of the cgroup of whoever opens it, and the agent's unit may talk to nobody
//! (`IPAddressDeny=`). So this process is moved to a cgroup of its own before it gets its first order. It reads what
//! the agent says and nothing else; what guests write is read by the process that it starts, which has no rights.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agent_confined::{Received, receive_message};
use agent_dhcp_server::{Order, send_order_waiting};
use agent_domain::PodBinding;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::pod::sockets::{Opened, open};

/// The hidden subcommand's name.
pub(crate) const SUBCOMMAND: &str = "open-dhcp";

/// How long the server may leave an order unread.
const PATIENCE: Duration = Duration::from_secs(10);

/// The process that answers. It ends with its socket, and this process with it.
struct Server {
    orders: OwnedFd,
    process: Child,
}

impl Server {
    fn start(program: &OsStr) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (orders, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        // It is sent one order for each guest at once when an agent starts, and has yet to start itself.
        set_socket_timeout(&orders, Timeout::Send, Some(PATIENCE))?;
        let process = Command::new(program)
            .stdin(Stdio::from(theirs))
            // Standard output is where it counts.
            .spawn()
            .map_err(|error| {
                io::Error::other(format!("{} cannot be started: {error}", program.display()))
            })?;
        Ok(Self { orders, process })
    }
}

/// Until the agent or the server is gone. The argument is the server's program.
pub(super) fn serve(mut arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    let program = arguments.next();
    let program = program
        .ok_or_else(|| io::Error::other("the server's program is missing in its arguments"))?;
    let orders = io::stdin().as_fd().try_clone_to_owned()?;
    let mut server: Option<Server> = None;
    loop {
        let mut watched = vec![PollFd::new(orders.as_fd(), PollFlags::POLLIN)];
        if let Some(server) = &server {
            // Its end is reported whatever is asked for; it has nothing to say.
            watched.push(PollFd::new(server.orders.as_fd(), PollFlags::empty()));
        }
        match poll(&mut watched, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_gone = watched
            .get(1)
            .is_some_and(|server| server.any() == Some(true));
        if let (Some(server), true) = (&mut server, is_gone) {
            // One that a guest took over may close its socket and stay.
            server.process.kill()?;
            let status = server.process.wait()?;
            return Err(io::Error::other(format!("the server ended with {status}")));
        }
        let (order, descriptors) = match receive_message(&orders)? {
            Received::Message(order, descriptors) => (order, descriptors),
            Received::Nothing => continue,
            Received::End => return Ok(()),
        };
        let running = match server.take() {
            Some(running) => running,
            None => Server::start(&program)?,
        };
        pass_on(&running, &order, descriptors)?;
        server = Some(running);
    }
}

/// A guest whose sockets cannot be opened is gone, or is not answered: others are.
fn pass_on(server: &Server, order: &Order, descriptors: Vec<OwnedFd>) -> io::Result<()> {
    let Order::Serve {
        id, bridged, guest, ..
    } = order
    else {
        return send_order_waiting(&server.orders, order, &[]);
    };
    let mut descriptors = descriptors.into_iter();
    let (Some(vmm), Some(namespace)) = (descriptors.next(), descriptors.next()) else {
        return Err(io::Error::other("an order lacks its descriptors"));
    };
    let binding = if *bridged {
        PodBinding::Bridge
    } else {
        PodBinding::Masquerade
    };
    match open_within(namespace, binding, guest.v6.is_some()) {
        Ok(opened) => {
            if let Some(error) = opened.missing_ipv6 {
                // For the log; a guest without IPv6 is served all the same.
                drop(writeln!(
                    io::stderr(),
                    "open-dhcp: {id} has no IPv6: {error}"
                ));
            }
            let mut handed = vec![vmm.as_fd()];
            handed.extend(opened.sockets.iter().map(AsFd::as_fd));
            send_order_waiting(&server.orders, order, &handed)
        }
        Err(error) => {
            // That it cannot be written changes nothing.
            drop(writeln!(io::stderr(), "open-dhcp: {id}: {error}"));
            Ok(())
        }
    }
}

/// On a thread of its own, because a thread is what is in a namespace.
fn open_within(namespace: OwnedFd, binding: PodBinding, with_ipv6: bool) -> io::Result<Opened> {
    let opened = std::thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        open(binding, with_ipv6)
    });
    let ended = |_| io::Error::other("the thread in the namespace ended");
    opened.join().map_err(ended)?
}
