//! Messages of a guest that the DHCP server drops are counted.

use std::net::{SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use agent_dhcp_server::{Dropped, read_counts};
use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, Socket, Type};

use super::*;

/// A client's socket of DHCPv4, and one for messages to routers.
fn sockets(guest: &Elsewhere) -> (UdpSocket, Socket, u32) {
    let namespace = File::open(format!("/proc/{}/ns/net", guest.pid())).unwrap();
    let opened = std::thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        let router = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
        router.set_multicast_hops_v6(255).unwrap();
        let nic = if_nametoindex("nic0").unwrap();
        (UdpSocket::bind("10.0.2.2:68").unwrap(), router, nic)
    });
    opened.join().unwrap()
}

#[test]
fn messages_that_make_no_sense_or_come_too_often_are_counted() {
    in_a_namespace(async || {
        let (vmm, guest) = (Elsewhere::new(), Elsewhere::new());
        prepare_node(&plan().node, &[]).await.unwrap();
        let namespace = Namespace::of(vmm.pid()).unwrap();
        let mut attached = attach(plan(), namespace).await.unwrap();
        connect_guest(&guest, attached.queues.remove(0));
        let (_orders, counts) = answer(&vmm);
        guest.run("ip addr add 10.0.2.2/24 dev nic0; ip addr add fe80::7/64 dev nic0 nodad");
        let (client, router, nic) = sockets(&guest);
        let start = Instant::now();
        // Again, because a tap that has just been connected loses what is sent at once.
        let until = |wanted: fn(Dropped) -> bool, send: &dyn Fn()| loop {
            let dropped = read_counts(&counts, PLACE).unwrap();
            if wanted(dropped) {
                return dropped;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "{dropped:?}");
            send();
            // The counts are read from a file, of which nothing signals a change.
            std::thread::sleep(Duration::from_millis(200));
        };
        let ask = || {
            client.send_to(b"?", "10.0.2.1:67").unwrap();
        };
        let seen = until(|dropped| dropped.malformed > 0, &ask);
        assert_eq!(seen.excess, 0);
        let routers = SocketAddrV6::new("ff02::2".parse().unwrap(), 0, 0, nic);
        let wrong = || {
            let solicitation = [133, 1, 0, 0, 0, 0, 0, 0];
            router.send_to(&solicitation, &routers.into()).unwrap();
        };
        let count = seen.malformed;
        let start_over = Instant::now();
        while read_counts(&counts, PLACE).unwrap().malformed == count {
            assert!(start_over.elapsed() < Duration::from_secs(30));
            wrong();
            // The server counts what it drops and signals nothing.
            std::thread::sleep(Duration::from_millis(200));
        }
        until(|dropped| dropped.excess > 0, &|| {
            (0..64).for_each(|_| ask())
        });
    });
}
