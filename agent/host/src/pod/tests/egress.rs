//! What a guest may not reach: of the node itself, and through it.

use std::net::{IpAddr, TcpListener};

use agent_domain::Transport;

use super::*;

const METADATA: &str = "169.254.169.254";

fn rule(allowed: bool, network: &str, prefix: u8, port: Option<u16>) -> Egress {
    let network: IpAddr = network.parse().unwrap();
    Egress {
        allowed,
        network: (network, prefix),
        transport: port.map(|port| (Transport::Tcp, Some((port, port)))),
    }
}

#[test]
fn a_guest_does_not_reach_what_it_may_not_and_all_else() {
    in_a_namespace(async || {
        let (vmm, guest) = (Elsewhere::new(), Elsewhere::new());
        let node = |command: &str| {
            let ran = Command::new("sh").args(["-c", command]).status();
            assert!(ran.unwrap().success(), "{command}");
        };
        // A server beyond the node, which knows the way back, and one of the node's own.
        let beyond = Elsewhere::new();
        node(&format!(
            "ip link set lo up; ip link add out0 type veth peer name in0 netns {}; \
             ip addr add 192.0.2.1/24 dev out0; ip link set out0 up; \
             ip addr add 169.254.169.254/32 dev lo; sysctl -qw net.ipv4.ip_forward=1",
            beyond.pid()
        ));
        beyond.run("ip addr add 192.0.2.2/24 dev in0; ip addr add 192.0.2.3/24 dev in0; ip link set in0 up; ip link set lo up");
        let namespace = File::open(format!("/proc/{}/ns/net", beyond.pid())).unwrap();
        let listen = |address| [80, 81].map(|port| TcpListener::bind((address, port)).unwrap());
        let _own = listen(METADATA);
        let theirs = std::thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            listen("0.0.0.0")
        });
        let _theirs = theirs.join().unwrap();
        let mut plan = plan();
        plan.node.network6 = None;
        plan.v6 = None;
        plan.member.address6 = None;
        prepare_node(&plan.node, &[]).await.unwrap();
        let namespace = Namespace::of(vmm.pid()).unwrap();
        let mut attached = attach(plan.clone(), namespace).await.unwrap();
        connect_guest(&guest, attached.queues.remove(0));
        guest.run("ip addr add 10.0.2.2/24 dev nic0; ip route add default via 10.0.2.1");
        let reaches = |(address, port): (&str, u16), seconds: u32| {
            // Whoever listens takes the connection, and says nothing.
            let output = guest.run(&format!(
                "timeout -s KILL {seconds} bash -c '</dev/tcp/{address}/{port}' && echo reached"
            ));
            output.contains("reached")
        };
        let all = [
            (METADATA, 80),
            (METADATA, 81),
            ("192.0.2.2", 80),
            ("192.0.2.3", 80),
            ("192.0.2.3", 81),
        ];
        for place in all {
            assert!(reaches(place, 20), "{place:?} without rules");
        }
        plan.node.egress = vec![
            rule(true, "192.0.2.3", 32, Some(81)),
            rule(false, "192.0.2.3", 32, None),
            rule(false, "169.254.0.0", 16, None),
        ];
        prepare_node(&plan.node, &[plan.member.clone()])
            .await
            .unwrap();
        for (place, wanted) in all.into_iter().zip([false, false, true, false, true]) {
            let seconds = if wanted { 20 } else { 2 };
            assert_eq!(reaches(place, seconds), wanted, "{place:?}");
        }
    });
}
