//! A connection of a guest through the node outlives that somebody flushes the rules.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::*;

/// Runs something in a namespace of its own.
fn within<T: Send + 'static>(
    place: &Elsewhere,
    call: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    let namespace = File::open(format!("/proc/{}/ns/net", place.pid()))?;
    let thread = std::thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        call()
    });
    thread.join().unwrap()
}

/// Sends `word` at one end and receives it at the other.
fn transfer(mut from: &TcpStream, mut to: &TcpStream, word: &[u8]) {
    from.write_all(word).unwrap();
    let mut received = vec![0; word.len()];
    to.read_exact(&mut received).unwrap();
    assert_eq!(received, word);
}

fn connect(guest: &Elsewhere) -> TcpStream {
    // A tap that has just been connected loses what is sent at once.
    let connected = within(guest, || {
        let address = "192.0.2.2:80".parse().unwrap();
        TcpStream::connect_timeout(&address, Duration::from_secs(30))
    });
    connected.unwrap()
}

#[test]
fn a_connection_goes_on_when_flushed_rules_are_put_right() {
    in_a_namespace(async || {
        let (vmm, guest, beyond) = (Elsewhere::new(), Elsewhere::new(), Elsewhere::new());
        let node = |command: &str| {
            let ran = Command::new("sh").args(["-c", command]).status();
            assert!(ran.unwrap().success(), "{command}");
        };
        // Who is beyond knows no way to guests: what is not translated has no answer.
        node(&format!(
            "ip link add out0 type veth peer name in0 netns {}; ip addr add 192.0.2.1/24 dev out0; ip link set out0 up; \
             sysctl -qw net.ipv4.ip_forward=1",
            beyond.pid()
        ));
        beyond.run("ip addr add 192.0.2.2/24 dev in0; ip link set in0 up");
        let listener = within(&beyond, || TcpListener::bind("0.0.0.0:80")).unwrap();
        prepare_node(&plan().node, &[]).await.unwrap();
        let namespace = Namespace::of(vmm.pid()).unwrap();
        let mut attached = attach(plan(), namespace).await.unwrap();
        connect_guest(&guest, attached.queues.remove(0));
        guest.run("ip addr add 10.0.2.2/24 dev nic0; ip route add default via 10.0.2.1");
        let ours = connect(&guest);
        let (theirs, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), Ipv4Addr::new(192, 0, 2, 1));
        for end in [&ours, &theirs] {
            end.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        }
        transfer(&ours, &theirs, b"before");
        transfer(&theirs, &ours, b"answer");

        node("nft flush ruleset");
        let restored = restore_tables(&plan().node, &[plan().member]).unwrap();
        assert_eq!(restored.len(), 2, "{restored:?}");
        transfer(&ours, &theirs, b"behind");
        transfer(&theirs, &ours, b"answer");
        // And the next one is translated as the first was.
        let another = connect(&guest);
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), Ipv4Addr::new(192, 0, 2, 1));
        drop(another);
    });
}
