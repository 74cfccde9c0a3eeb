//! Answers guests that ask for their addresses, for all guests of the node.
//!
//! It reads what guests write, and so has nothing: nobody's rights, no network but the sockets that it is handed, no
//! files, bounded memory, and the system calls that hearing and answering take. `kvmlet open-dhcp` starts it, as a program of its
//! own so that it has no more in its memory than it needs: standard input is a socket at which guests come and go, and its end ends this process. Standard output is a file of numbers: what was
//! dropped of each guest. A guest's sockets are closed when its VMM has ended,
//! whether or not the agent says so: they would keep the VMM's network namespace alive.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use agent_confined::{Received, confine_server, receive_message};
use agent_dhcp::{
    Guest, To, advertisement, answer4, answer6, is_malformed_solicitation, is_request4,
    is_request6, is_solicitation,
};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::counts::{self, Dropped};
use super::orders::Order;

/// Longest request that is read; longer ones are cut off and make no sense.
const MAX_REQUEST_BYTES: usize = 2048;

/// Requests that are read of one guest before others have their turn.
const TURN: usize = 8;

/// Requests that a guest may make at once, and each second after that.
const BURST: u32 = 32;
const EACH_SECOND: u32 = 8;

/// Ports of clients, of DHCPv4 and DHCPv6.
const CLIENT_PORT: u16 = 68;
const CLIENT_PORT6: u16 = 546;

/// Everybody on a link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Interval between unsolicited router advertisements. Guests forget the router after 18 hours.
const ADVERTISE_EVERY: Duration = Duration::from_secs(600);

/// Serves until the agent is gone, by standard input and output.
///
/// # Errors
/// When the process cannot be confined, or is not spoken to as it should be.
pub fn serve() -> io::Result<()> {
    let orders = io::stdin().as_fd().try_clone_to_owned()?;
    let counts = io::stdout().as_fd().try_clone_to_owned()?;
    let mut server = Server::new(orders, counts)?;
    confine_server()?;
    while server.turn()? {}
    Ok(())
}

/// The same on a thread of a test, which keeps its rights.
///
/// # Errors
/// As [`serve`].
pub fn serve_unconfined(orders: OwnedFd, counts: OwnedFd) -> io::Result<()> {
    let mut server = Server::new(orders, counts)?;
    while server.turn()? {}
    Ok(())
}

/// Source of an event: orders, or the VMM or a socket of the guest whose number is above these bits.
const ORDERS: u64 = u64::MAX;
const SOURCE_BITS: u32 = 2;
const VMM: u64 = 0;
const V4: u64 = 1;
const V6: u64 = 2;
const ROUTER: u64 = 3;

struct Server {
    orders: OwnedFd,
    counts: OwnedFd,
    epoll: Epoll,
    /// By a number that is used once.
    guests: HashMap<u64, ServedGuest>,
    next: u64,
    advertised: Instant,
}

struct ServedGuest {
    id: String,
    guest: Guest,
    vmm: OwnedFd,
    v4: UdpSocket,
    v6: Option<Sockets6>,
    rate_limit: RateLimit,
    /// Where in the file of counts it is.
    place: Option<u32>,
    dropped: Dropped,
}

/// The sockets of a guest that has IPv6.
struct Sockets6 {
    dhcp: UdpSocket,
    /// Of ICMPv6, which is datagrams as well.
    router: UdpSocket,
}

impl Server {
    fn new(orders: OwnedFd, counts: OwnedFd) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&orders, EpollEvent::new(EpollFlags::EPOLLIN, ORDERS))?;
        Ok(Self {
            orders,
            counts,
            epoll,
            guests: HashMap::new(),
            next: 0,
            advertised: Instant::now(),
        })
    }

    /// Waits for something and does it. False when the agent is gone.
    fn turn(&mut self) -> io::Result<bool> {
        let mut events = [EpollEvent::empty(); 64];
        let left = ADVERTISE_EVERY.saturating_sub(self.advertised.elapsed());
        // A moment later than that, so that it is over then.
        let left = left.saturating_add(Duration::from_millis(1));
        let left = EpollTimeout::try_from(left).unwrap_or(EpollTimeout::NONE);
        let count = match self.epoll.wait(&mut events, left) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in events.iter().take(count) {
            match event.data() {
                ORDERS if !self.carry_out_order()? => return Ok(false),
                ORDERS => {}
                number => {
                    let (number, source) =
                        (number >> SOURCE_BITS, number & ((1 << SOURCE_BITS) - 1));
                    match (source, self.guests.get_mut(&number)) {
                        (VMM, _) => self.remove_guest(number)?,
                        (_, Some(served)) => served.answer_requests(source, &self.counts)?,
                        (_, None) => {}
                    }
                }
            }
        }
        if self.advertised.elapsed() >= ADVERTISE_EVERY {
            self.advertised = Instant::now();
            self.guests.values().for_each(ServedGuest::advertise);
        }
        Ok(true)
    }

    /// Carries an order out. False when there will be no more.
    fn carry_out_order(&mut self) -> io::Result<bool> {
        let (order, descriptors) = match receive_message(&self.orders)? {
            Received::Message(order, descriptors) => (order, descriptors),
            Received::Nothing => return Ok(true),
            Received::End => return Ok(false),
        };
        match order {
            Order::Leave { id } => self.remove_named(&id)?,
            Order::Serve {
                id, place, guest, ..
            } => {
                self.remove_named(&id)?;
                self.add(id, (*guest, place), descriptors)?;
            }
        }
        Ok(true)
    }

    fn add(
        &mut self,
        id: String,
        (guest, place): (Guest, Option<u32>),
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let mut descriptors = descriptors.into_iter();
        let (Some(vmm), Some(v4)) = (descriptors.next(), descriptors.next()) else {
            return Err(io::Error::other("an order lacks its descriptors"));
        };
        let v6 = match (descriptors.next(), descriptors.next()) {
            (Some(dhcp), Some(router)) => Some(Sockets6 {
                dhcp: dhcp.into(),
                router: router.into(),
            }),
            _ => None,
        };
        let number = self.next;
        self.next += 1;
        let readable =
            |source| EpollEvent::new(EpollFlags::EPOLLIN, number << SOURCE_BITS | source);
        self.epoll.add(&vmm, readable(VMM))?;
        self.epoll.add(&v4, readable(V4))?;
        if let Some(v6) = &v6 {
            self.epoll.add(&v6.dhcp, readable(V6))?;
            self.epoll.add(&v6.router, readable(ROUTER))?;
        }
        let served = ServedGuest {
            id,
            guest,
            vmm,
            v4: UdpSocket::from(v4),
            v6,
            rate_limit: RateLimit::new(Instant::now()),
            place,
            dropped: Dropped::default(),
        };
        // The place may have been another's.
        served.count(&self.counts)?;
        served.advertise();
        self.guests.insert(number, served);
        Ok(())
    }

    fn remove_named(&mut self, id: &str) -> io::Result<()> {
        let named = self.guests.iter().find(|(_, served)| served.id == id);
        named
            .map(|(number, _)| *number)
            .map_or(Ok(()), |number| self.remove_guest(number))
    }

    /// Closes what a guest's is. The agent may have a copy of a descriptor, so it is removed from epoll as well.
    fn remove_guest(&mut self, number: u64) -> io::Result<()> {
        if let Some(served) = self.guests.remove(&number) {
            self.epoll.delete(&served.vmm)?;
            self.epoll.delete(&served.v4)?;
            if let Some(v6) = &served.v6 {
                self.epoll.delete(&v6.dhcp)?;
                self.epoll.delete(&v6.router)?;
            }
        }
        Ok(())
    }
}

impl ServedGuest {
    /// Answers what came to one of its sockets, and counts what was dropped of it.
    fn answer_requests(&mut self, source: u64, counts: &OwnedFd) -> io::Result<()> {
        let before = self.dropped;
        match source {
            V4 => self.answer(),
            V6 => self.answer6(),
            _ => self.answer_solicitations(),
        }
        if self.dropped == before {
            return Ok(());
        }
        self.count(counts)
    }

    fn count(&self, file: &OwnedFd) -> io::Result<()> {
        self.place
            .map_or(Ok(()), |place| counts::write(file, place, self.dropped))
    }

    fn answer(&mut self) {
        let mut request = [0; MAX_REQUEST_BYTES];
        for _ in 0..TURN {
            let Ok((bytes, _)) = self.v4.recv_from(&mut request) else {
                return;
            };
            if !self.rate_limit.allows(Instant::now()) {
                self.dropped.excess += 1;
                continue;
            }
            let request = request.get(..bytes).unwrap_or_default();
            let Some(answer) = answer4(request, &self.guest) else {
                self.dropped.malformed += u64::from(!is_request4(request, &self.guest));
                continue;
            };
            let to = match answer.to {
                To::All => Ipv4Addr::BROADCAST,
                To::Address(address) => address,
            };
            let to = SocketAddr::V4(SocketAddrV4::new(to, CLIENT_PORT));
            // A guest that is gone, or whose link is full, asks again.
            self.v4.send_to(&answer.bytes, to).ok();
        }
    }

    fn answer6(&mut self) {
        let Some(v6) = &self.v6 else { return };
        let mut request = [0; MAX_REQUEST_BYTES];
        for _ in 0..TURN {
            let Ok((bytes, SocketAddr::V6(from))) = v6.dhcp.recv_from(&mut request) else {
                return;
            };
            if !self.rate_limit.allows(Instant::now()) {
                self.dropped.excess += 1;
                continue;
            }
            let request = request.get(..bytes).unwrap_or_default();
            if let Some(answer) = answer6(request, &self.guest) {
                let to = SocketAddrV6::new(*from.ip(), CLIENT_PORT6, 0, from.scope_id());
                // As above.
                v6.dhcp.send_to(&answer, to).ok();
            } else {
                self.dropped.malformed += u64::from(!is_request6(request));
            }
        }
    }

    fn answer_solicitations(&mut self) {
        let Some(v6) = &self.v6 else { return };
        let mut message = [0; MAX_REQUEST_BYTES];
        let mut asked = 0;
        for _ in 0..TURN {
            let Ok((bytes, _)) = v6.router.recv_from(&mut message) else {
                break;
            };
            let message = message.get(..bytes).unwrap_or_default();
            asked += u64::from(is_solicitation(message));
            self.dropped.malformed += u64::from(is_malformed_solicitation(message));
        }
        if asked == 0 {
            return;
        }
        if self.rate_limit.allows(Instant::now()) {
            self.advertise();
        } else {
            self.dropped.excess += asked;
        }
    }

    /// Has the guest hear of its router, if it has IPv6.
    fn advertise(&self) {
        if let (Some(v6), Some(message)) = (&self.v6, advertisement(&self.guest)) {
            let to = SocketAddrV6::new(ALL_NODES, 0, 0, 0);
            // A guest that does not hear it asks for it.
            v6.router.send_to(&message, to).ok();
        }
    }
}

/// How many requests of a guest are still answered.
#[derive(Debug)]
struct RateLimit {
    left: u32,
    since: Instant,
}

impl RateLimit {
    fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            since: now,
        }
    }

    fn allows(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_secs();
        if passed > 0 {
            self.since = now;
            let more = u32::try_from(passed)
                .unwrap_or(u32::MAX)
                .saturating_mul(EACH_SECOND);
            self.left = self.left.saturating_add(more).min(BURST);
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_guest_that_asks_too_often_is_heard_now_and_then() {
        let start = Instant::now();
        let mut rate_limit = RateLimit::new(start);
        let mut heard = |at: u64| {
            let at = start + Duration::from_secs(at);
            (0..100).filter(|_| rate_limit.allows(at)).count()
        };
        assert_eq!(heard(0), 32);
        assert_eq!(heard(0), 0);
        assert_eq!(heard(1), 8);
        assert_eq!(heard(1000), 32);
    }
}
