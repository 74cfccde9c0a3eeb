//! What an earlier agent left: links of guests that are gone, by their marks.

use super::*;

/// What stands of a guest on the node: its link, and its sources in the rules.
fn present(node: impl Fn(&str) -> String) -> (bool, bool) {
    let link = node("ip link show kvp0123456789 2>/dev/null");
    let rules = node("nft list table bridge kvmlet");
    (!link.is_empty(), rules.contains("kvp0123456789"))
}

#[test]
fn links_that_bear_the_mark_of_nobody_are_removed_and_others_stay() {
    in_a_namespace(async || {
        let node = |command: &str| {
            let output = Command::new("sh").args(["-c", command]).output().unwrap();
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        };
        let config = plan().node;
        // Nothing is made for guests that there never were.
        assert!(!tidy_node(&config, &[], &[]).await.unwrap());
        assert!(!node("ip link").contains("kvmlet0"));

        prepare_node(&config, &[]).await.unwrap();
        let vmm = Elsewhere::new();
        let namespace = Namespace::of(vmm.pid()).unwrap();
        let _attached = attach(plan(), namespace).await.unwrap();
        // Somebody else's are no concern of ours: a port of our bridge without a mark, and a mark on another bridge.
        node(
            "ip link add kvpforeign type veth peer name peer0; ip link set kvpforeign master kvmlet0; \
             ip link add other0 type bridge; ip link set peer0 alias kvmlet:other master other0",
        );
        let mark = mark_of("uid");
        assert_eq!(mark, plan().mark);
        assert!(tidy_node(&config, &[plan().member], &[mark]).await.unwrap());
        assert_eq!(present(node), (true, true));
        let others = mark_of("of another");
        assert!(tidy_node(&config, &[], &[others]).await.unwrap());
        assert_eq!(present(node), (false, false));
        let links = node("ip -o link");
        for stays in ["kvmlet0", "kvpforeign", "other0", "peer0"] {
            assert!(links.contains(stays), "no {stays} in {links}");
        }
    });
}

#[test]
fn the_gateway_of_a_former_network_goes_with_the_last_guest_of_it() {
    in_a_namespace(async || {
        let addresses = || {
            let mut shown = Command::new("ip");
            let shown = shown.args(["-o", "addr", "show", "kvmlet0"]);
            let output = shown.output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let (former, member) = (plan().node, plan().member);
        let config = PodNetworkConfig {
            network: Ipv4Addr::new(10, 214, 0, 0),
            network6: Some("fd00:1:2:4::".parse().unwrap()),
            ..former.clone()
        };
        let operators = "192.0.2.1/24";
        let members = [member];
        prepare_node(&former, &members).await.unwrap();
        let mut given = Command::new("ip");
        let given = given.args(["addr", "add", operators, "dev", "kvmlet0"]);
        assert!(given.status().unwrap().success());
        prepare_node(&config, &members).await.unwrap();
        let both = addresses();
        remove_former_gateways(&config, &[]).await.unwrap();
        let left = addresses();
        for stays in ["10.214.0.1/16", "fd00:1:2:4::1/64", operators] {
            assert!(both.contains(stays) && left.contains(stays), "{both}{left}");
        }
        for goes in ["10.213.0.1/16", "fd00:1:2:3::1/64"] {
            assert!(both.contains(goes) && !left.contains(goes), "{both}{left}");
        }
    });
}
