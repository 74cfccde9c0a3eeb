//! The connections of a guest, and all descriptors of the host that they come from and lead to.
//!
//! Knows no queues: packets of the guest come by [`Hub::on_packet`], packets for it are taken by
//! [`Hub::next_packet`]. Descriptors are in an epoll instance of the device's own, edge-triggered,
//! so that connections come and go without the machine's event loop.

mod guest;
mod host;
mod outgoing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use vmm_sys::socket::{ListeningSocket, PacketSocket};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use super::broker::Broker;
use super::connection::{Connection, Key, Phase};
use super::deadlines::Deadlines;
use super::greeting::Greeting;
use super::packet::{HOST_CID, Header, Operation, STREAM};

/// Most connections of a guest, both ways together: each may hold a descriptor and
/// 64 KiB of the host.
pub const MAX_CONNECTIONS: usize = 1024;
/// Most host programs that have connected and not said yet where they want to go. Others wait in
/// the listening socket's queue.
pub(super) const MAX_GREETINGS: usize = 64;
/// Most connections that the broker has not answered for.
pub(super) const MAX_ASKED: usize = 64;
/// Resets that wait for buffers of the guest; at so many, packets of the guest are left in their
/// queue (VIRTIO 1.2, 5.10.6.1, lets the device run out of resources there).
pub(super) const MAX_RESETS: usize = 256;

/// A host program has this long to say where it wants to go.
pub(super) const GREETING_PATIENCE: Duration = Duration::from_secs(2);
/// The guest has this long to accept or refuse a connection.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// So has the broker. Linux' drivers give up after 2 s.
const BROKER_PATIENCE: Duration = Duration::from_secs(5);
/// A side that is done has this long to take the end of the other's. As in Linux' drivers.
const CLOSE_PATIENCE: Duration = Duration::from_secs(8);
/// A host without descriptors for another connection is asked again after this long.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Numbers of what is no connection and no greeting.
const LISTENER: u64 = 0;
const BROKER: u64 = 1;
const FIRST_NUMBER: u64 = 16;

/// Ports of connections that begin on the host are from here on, one after the other: none that
/// programs listen on.
const FIRST_HOST_PORT: u32 = 1 << 30;

/// All connections.
pub(super) struct Hub {
    guest_cid: u64,
    poll: Epoll,
    /// `poll` may have events that were not taken.
    pub(super) is_poll_due: bool,
    listener: Option<ListeningSocket>,
    /// Connections may wait in the listening socket's queue.
    may_accept: bool,
    greetings: BTreeMap<u64, Greeting>,
    broker: Option<Broker>,
    /// The broker may have sent answers that were not read.
    is_broker_due: bool,
    /// Connections that the broker has not answered for.
    asked: BTreeSet<u64>,
    connections: BTreeMap<Key, Connection>,
    keys: BTreeMap<u64, Key>,
    /// Connections with something for the guest, each once, in turn.
    queue: VecDeque<Key>,
    /// Resets for the guest, of connections that are no more.
    resets: VecDeque<Header>,
    deadlines: Deadlines,
    next_number: u64,
    /// Counts connections that began on the host.
    pub(super) host_connections: u32,
    /// A packet for the guest; allocated when the first is made.
    packet: Vec<u8>,
}

impl Hub {
    /// No connections yet.
    pub(super) fn new(guest_cid: u32, listener: Option<ListeningSocket>) -> io::Result<Self> {
        let hub = Self {
            guest_cid: guest_cid.into(),
            poll: Epoll::new()?,
            is_poll_due: true,
            may_accept: listener.is_some(),
            listener,
            greetings: BTreeMap::new(),
            broker: None,
            is_broker_due: false,
            asked: BTreeSet::new(),
            connections: BTreeMap::new(),
            keys: BTreeMap::new(),
            queue: VecDeque::new(),
            resets: VecDeque::new(),
            deadlines: Deadlines::default(),
            next_number: FIRST_NUMBER,
            host_connections: 0,
            packet: Vec::new(),
        };
        if let Some(listener) = &hub.listener {
            hub.watch(listener.as_raw_fd(), LISTENER)?;
        }
        Ok(hub)
    }

    /// What becomes readable when there is something to [`poll`](Self::poll).
    pub(super) fn poll_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Drops all connections without a reset packet to the guest.
    pub(super) fn clear(&mut self) {
        for socket in self
            .connections
            .values()
            .filter_map(|connection| connection.socket.as_ref())
        {
            self.unwatch(socket);
        }
        self.greetings.clear();
        self.asked.clear();
        self.connections.clear();
        self.keys.clear();
        self.queue.clear();
        self.resets.clear();
        self.deadlines.clear_all();
        self.may_accept = self.listener.is_some();
    }

    /// Whether so many answers wait for the guest that it must take some before it asks for more.
    pub(super) fn is_backlogged(&self) -> bool {
        self.resets.len() >= MAX_RESETS
    }

    /// When [`expire`](Self::expire) is to be called next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Ends what has taken too long.
    pub(super) fn expire(&mut self) {
        if self.deadlines.next().is_none() {
            return;
        }
        let now = Instant::now();
        while let Some(number) = self.deadlines.take_due(now) {
            if number == LISTENER {
                self.may_accept = true;
            } else if let Some(key) = self.keys.get(&number).copied() {
                self.reset(key);
            } else {
                self.greetings.remove(&number);
            }
        }
    }

    /// Puts another broker in the place of the one that is there.
    pub(super) fn set_broker(&mut self, socket: PacketSocket) {
        self.drop_broker();
        let broker = Broker::new(socket);
        // One that cannot be watched is none: the guest's connections are refused.
        if self.watch(broker.as_raw_fd(), BROKER).is_ok() {
            self.broker = Some(broker);
        }
    }

    /// Refuses what the broker has not answered.
    fn drop_broker(&mut self) {
        if let Some(broker) = self.broker.take() {
            self.unwatch(&broker);
        }
        for number in std::mem::take(&mut self.asked) {
            if let Some(key) = self.keys.get(&number).copied() {
                self.reset(key);
            }
        }
    }

    fn watch(&self, fd: RawFd, number: u64) -> io::Result<()> {
        let interest =
            EventSet::IN | EventSet::OUT | EventSet::READ_HANG_UP | EventSet::EDGE_TRIGGERED;
        let event = EpollEvent::new(interest, number);
        self.poll.ctl(ControlOperation::Add, fd, event)
    }

    /// Before a descriptor is closed that others may have, too: the kernel goes on polling it then.
    fn unwatch(&self, socket: &impl AsRawFd) {
        let (delete, none) = (ControlOperation::Delete, EpollEvent::default());
        // Fails only for what is not watched.
        drop(self.poll.ctl(delete, socket.as_raw_fd(), none));
    }

    fn new_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    fn insert(&mut self, key: Key, connection: Connection) {
        self.keys.insert(connection.number, key);
        self.connections.insert(key, connection);
        self.touch(key);
    }

    /// Forgets a connection. Its socket is closed.
    fn remove(&mut self, key: Key) {
        if let Some(connection) = self.connections.remove(&key) {
            if let Some(socket) = &connection.socket {
                self.unwatch(socket);
            }
            self.keys.remove(&connection.number);
            self.asked.remove(&connection.number);
            self.deadlines.clear(connection.number);
            if connection.is_queued {
                self.queue.retain(|queued| *queued != key);
            }
        }
    }

    /// Drops a connection, with a reset packet if the guest knows of it.
    pub(super) fn reset(&mut self, key: Key) {
        let Some(connection) = self.connections.get(&key) else {
            return;
        };
        if !connection.due.request {
            self.resets.push_back(Header {
                operation: Operation::Reset.number(),
                ..self.header(key)
            });
        }
        self.remove(key);
    }

    /// Of a packet to the guest.
    fn header(&self, key: Key) -> Header {
        Header {
            source_cid: HOST_CID,
            destination_cid: self.guest_cid,
            source_port: key.host_port,
            destination_port: key.guest_port,
            socket_type: STREAM,
            ..Header::default()
        }
    }

    /// To be called when a connection may have changed: queues it if the guest is to get something,
    /// ends it when it is over.
    fn touch(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        if connection.is_over() {
            // The answer to a whole shutdown (5.10.6.5).
            return self.reset(key);
        }
        let number = connection.number;
        if connection.phase == Phase::Closing
            && let Some(socket) = connection.socket.take()
        {
            self.unwatch(&socket);
            return self.touch(key);
        }
        let is_closing = connection.phase == Phase::Closing || connection.has_guest_left();
        if connection.next().is_some() && !connection.is_queued {
            connection.is_queued = true;
            self.queue.push_back(key);
        }
        if is_closing && !self.deadlines.has(number) {
            self.deadlines.set(number, Instant::now() + CLOSE_PATIENCE);
        }
    }
}

#[cfg(test)]
impl Hub {
    /// Connections, greetings, questions to the broker, resets.
    pub(super) fn sizes(&self) -> [usize; 4] {
        assert_eq!(self.keys.len(), self.connections.len());
        let queued = |(_, connection): &(&Key, &Connection)| connection.is_queued;
        let expected = self.connections.iter().filter(queued).count();
        assert_eq!(self.queue.len(), expected);
        [
            self.connections.len(),
            self.greetings.len(),
            self.asked.len(),
            self.resets.len(),
        ]
    }

    /// Bytes that are kept for host programs.
    pub(super) fn buffered(&self) -> usize {
        self.connections.values().map(Connection::buffered).sum()
    }
}
