use std::net::Ipv4Addr;

use agent_domain::{GuestNetwork, OpenPorts};

use super::*;
use crate::netfilter::tests::shown;
use crate::pod::{Member, PodPlan6};

fn plan(ports: Vec<OpenPorts>) -> PodPlan {
    PodPlan {
        node: PodNetworkConfig::of_tests(),
        member: Member {
            veth: "kvp0123456789".to_owned(),
            mac: [0x0a, 0x58, 10, 213, 0, 7],
            address: Ipv4Addr::new(10, 213, 0, 7),
            address6: None,
        },
        mark: "kvmlet:uid".to_owned(),
        v6: None,
        binding: PodBinding::Masquerade,
        inside: GuestNetwork::default(),
        ports,
        upstreams: ["192.0.2.1", "192.0.2.2"]
            .map(|text| text.parse().unwrap())
            .to_vec(),
        queues: 1,
    }
}

/// What `nft` says of tables, without blanks that mean nothing.
pub(crate) fn lines(tables: &[Table]) -> Option<Vec<String>> {
    let text = shown(tables)?;
    Some(text.lines().map(|line| line.trim().to_owned()).collect())
}

#[test]
fn the_rules_of_a_masqueraded_guest_are_what_nft_shows() {
    let Some(lines) = lines(&[inside(&plan(Vec::new()))]) else {
        return;
    };
    let wanted = [
        "table inet kvmlet {",
        "comment \"kvmlet:uid\"",
        "set refused {",
        "type ifname",
        "counter",
        "elements = { \"tap0\" counter packets 0 bytes 0 }",
        "}",
        "",
        "chain refuse {",
        "iifname @refused",
        "drop",
        "}",
        "",
        "chain prerouting {",
        "type nat hook prerouting priority dstnat; policy accept;",
        "iifname \"eth0\" ip daddr 10.213.0.7 dnat ip to 10.0.2.2",
        "iifname \"tap0\" ip daddr 10.0.2.1 udp dport 53 jump dns",
        "iifname \"tap0\" ip daddr 10.0.2.1 tcp dport 53 jump dns",
        "}",
        "",
        "chain dns {",
        "numgen inc mod 2 0 dnat ip to 192.0.2.1:53",
        "dnat ip to 192.0.2.2:53",
        "}",
        "",
        "chain postrouting {",
        "type nat hook postrouting priority srcnat; policy accept;",
        "oifname \"eth0\" meta nfproto ipv4 masquerade",
        "}",
        "",
        "chain forward {",
        "type filter hook forward priority filter; policy drop;",
        "iifname \"tap0\" oifname \"eth0\" ip saddr 10.0.2.2 accept",
        "iifname \"tap0\" counter packets 0 bytes 0 jump refuse",
        "iifname \"eth0\" ct state established,related accept",
        "iifname \"eth0\" oifname \"tap0\" ct status dnat accept",
        "counter packets 0 bytes 0 drop",
        "}",
        "",
        "chain input {",
        "type filter hook input priority filter; policy drop;",
        "ct state established,related accept",
        "iifname \"tap0\" udp dport 67 accept",
        "meta l4proto icmp accept",
        "counter packets 0 bytes 0 drop",
        "}",
        "",
        "chain output {",
        "type filter hook output priority filter; policy drop;",
        "oifname \"tap0\" udp sport 67 accept",
        "meta l4proto icmp accept",
        "counter packets 0 bytes 0 drop",
        "}",
        "}",
    ];
    assert_eq!(lines, wanted);
}

#[test]
fn only_named_ports_are_open_when_some_are_named() {
    let open = |transport, first, last| OpenPorts {
        transport,
        first,
        last,
    };
    let ports = vec![
        open(Transport::Tcp, 80, 80),
        open(Transport::Udp, 6000, 6009),
    ];
    let Some(lines) = lines(&[inside(&plan(ports))]) else {
        return;
    };
    let inbound: Vec<&String> = lines
        .iter()
        .filter(|line| line.contains("10.0.2.2"))
        .collect();
    assert_eq!(
        inbound,
        [
            "iifname \"eth0\" ip daddr 10.213.0.7 tcp dport 80 dnat ip to 10.0.2.2",
            "iifname \"eth0\" ip daddr 10.213.0.7 udp dport 6000-6009 dnat ip to 10.0.2.2",
            "iifname \"tap0\" oifname \"eth0\" ip saddr 10.0.2.2 accept",
        ]
    );
}

#[test]
fn a_guest_with_both_kinds_of_addresses_has_the_same_rules_twice() {
    let mut plan = plan(Vec::new());
    plan.v6 = Some(PodPlan6 {
        address: "fd00:1:2:3::7".parse().unwrap(),
        gateway: "fd00:1:2:3::1".parse().unwrap(),
        inside: GuestNetwork::default(),
    });
    plan.upstreams.push("2001:db8::53".parse().unwrap());
    plan.node.network6 = Some("fd00:1:2:3::".parse().unwrap());
    let of_ipv6 = |table: Table| {
        let text = lines(&[table])?;
        let is_of_ipv6 = |line: &String| {
            let words = ["ip6", "v6", "547"];
            !line.ends_with('{') && words.iter().any(|word| line.contains(word))
        };
        Some(text.into_iter().filter(is_of_ipv6).collect::<Vec<_>>())
    };
    let (Some(inside), Some(node)) = (of_ipv6(inside(&plan)), of_ipv6(of_node(&plan.node))) else {
        return;
    };
    assert_eq!(
        inside,
        [
            "iifname \"eth0\" ip6 daddr fd00:1:2:3::7 dnat ip6 to fd10:0:2::2",
            "iifname \"tap0\" ip6 daddr fd10:0:2::1 udp dport 53 jump dns6",
            "iifname \"tap0\" ip6 daddr fd10:0:2::1 tcp dport 53 jump dns6",
            "dnat ip6 to [2001:db8::53]:53",
            "oifname \"eth0\" meta nfproto ipv6 masquerade",
            "iifname \"tap0\" oifname \"eth0\" ip6 saddr fd10:0:2::2 accept",
            "iifname \"tap0\" udp dport 547 accept",
            "meta l4proto ipv6-icmp accept",
            "oifname \"tap0\" udp sport 547 accept",
            "meta l4proto ipv6-icmp accept",
        ]
    );
    assert_eq!(
        node,
        ["ip6 saddr fd00:1:2:3::/64 oifname != \"kvmlet0\" masquerade",]
    );
}

#[test]
fn what_leaves_the_node_leaves_under_its_address() {
    let Some(lines) = lines(&[of_node(&plan(Vec::new()).node)]) else {
        return;
    };
    let leaves = "ip saddr 10.213.0.0/16 oifname != \"kvmlet0\" masquerade";
    assert!(lines.iter().any(|line| line == leaves), "{lines:?}");
}

#[test]
fn networks_that_know_the_way_back_see_guests_own_addresses() {
    let with = PodNetworkConfig {
        network6: "fd00:1:2:3::".parse().ok(),
        non_masquerade: vec![
            (Ipv4Addr::new(10, 214, 0, 0).into(), 16),
            ("fd00:1:2:4::".parse().unwrap(), 64),
        ],
        ..plan(Vec::new()).node
    };
    let Some(lines) = lines(&[of_node(&with)]) else {
        return;
    };
    let rules: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .skip_while(|line| !line.starts_with("type nat"))
        .skip(1)
        .take_while(|line| *line != "}")
        .collect();
    let wanted = [
        "ip saddr 10.213.0.0/16 ip daddr 10.214.0.0/16 accept",
        "ip6 saddr fd00:1:2:3::/64 ip6 daddr fd00:1:2:4::/64 accept",
        "ip saddr 10.213.0.0/16 oifname != \"kvmlet0\" masquerade",
        "ip6 saddr fd00:1:2:3::/64 oifname != \"kvmlet0\" masquerade",
    ];
    assert_eq!(rules, wanted);
}

#[test]
fn a_table_with_other_exceptions_has_another_comment() {
    let without = plan(Vec::new()).node;
    let with = PodNetworkConfig {
        non_masquerade: vec![(Ipv4Addr::new(10, 214, 0, 0).into(), 16)],
        ..without.clone()
    };
    assert_ne!(of_node(&with).comment, of_node(&without).comment);
}
