//! Networks for guests that the node has a way to already.

use super::*;

async fn refused(config: &PodNetworkConfig) -> String {
    let prepared = prepare_node(config, &[]).await;
    prepared.expect_err("it is taken").to_string()
}

#[test]
fn a_network_to_which_the_node_has_a_route_is_refused_until_that_is_gone() {
    in_a_namespace(async || {
        let node = |command: &str| {
            let ran = Command::new("sh").args(["-c", command]).status();
            assert!(ran.unwrap().success(), "{command}");
        };
        let bridges = || {
            let shown = Command::new("ip")
                .args(["link", "show", "kvmlet0"])
                .output();
            shown.unwrap().status.success()
        };
        let config = plan().node;
        // A default route, a neighbouring network and one that nobody reaches are in nobody's way.
        node(
            "ip link add out0 type veth peer name out1; ip link set out0 up; ip link set out1 up; \
             ip addr add 10.212.0.1/16 dev out0; ip route add default via 10.212.0.2; \
             ip route add blackhole 10.0.0.0/8",
        );
        for (route, words) in [
            (
                "10.213.4.0/24",
                "pod_network.cidr 10.213.0.0/16 overlaps 10.213.4.0/24, to which the node has a route by out0: ",
            ),
            (
                "10.208.0.0/13",
                "pod_network.cidr 10.213.0.0/16 overlaps 10.208.0.0/13, to which the node has a route by out0: ",
            ),
            (
                "fd00:1::/32",
                "pod_network.cidr6 fd00:1:2:3::/64 overlaps fd00:1::/32, to which the node has a route by out0: ",
            ),
        ] {
            node(&format!("ip route add {route} dev out0"));
            let output = refused(&config).await;
            assert!(output.starts_with(words), "{output}");
            let output = tidy_node(&config, &[], &[]).await.expect_err("it is taken");
            assert!(output.to_string().starts_with(words), "{output}");
            assert!(!bridges(), "{route}");
            node(&format!("ip route del {route} dev out0"));
        }
        prepare_node(&config, &[]).await.unwrap();
        assert!(bridges());
        // Guests that have the network keep it, whoever takes it later; another is not taken.
        node("ip route add 10.213.4.0/24 dev out0");
        prepare_node(&config, &[]).await.unwrap();
        let another = PodNetworkConfig {
            network: Ipv4Addr::new(10, 212, 128, 0),
            prefix: 24,
            ..config
        };
        let output = refused(&another).await;
        assert!(output.contains("overlaps 10.212.0.0/16"), "{output}");
    });
}
