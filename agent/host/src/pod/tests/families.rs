//! By which family a guest is reached that has addresses of one, or of both.

use std::time::{Duration, Instant};

use super::*;

#[test]
fn a_guest_without_ipv4_is_known_to_have_ipv6_alone() {
    in_a_namespace(async || {
        let (vmm, guest) = (Elsewhere::new(), Elsewhere::new());
        prepare_node(&plan().node, &[]).await.unwrap();
        let namespace = || Namespace::of(vmm.pid()).unwrap();
        let mut attached = attach(plan(), namespace()).await.unwrap();
        connect_guest(&guest, attached.queues.remove(0));
        let (v4, v6) = ("10.0.2.2".parse().unwrap(), "fd10:0:2::2".parse().unwrap());
        let alone = async || speaks_ipv6_alone((namespace(), TAP), v4, v6).await.unwrap();
        // The kernel asks for a neighbour once a second, and a tap that has just been connected does not speak IPv6 at once.
        let becomes_alone = async |wanted: bool| {
            let start = Instant::now();
            while alone().await != wanted {
                let output = vmm.run("ip addr; ip neigh");
                assert!(start.elapsed() < Duration::from_secs(30), "{output}");
            }
        };

        assert!(!alone().await, "it has no address at all");
        guest.run("ip addr add fd10:0:2::2/120 dev nic0 nodad");
        becomes_alone(true).await;
        guest.run("ip addr add 10.0.2.2/24 dev nic0");
        becomes_alone(false).await;
        guest.run("ip addr del fd10:0:2::2/120 dev nic0");
        assert!(!alone().await, "{}", vmm.run("ip neigh"));
    });
}
