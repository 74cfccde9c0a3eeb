use std::net::Ipv4Addr;

use agent_domain::{GuestNetwork, OpenPorts};

use super::*;
use crate::netfilter::shown;

fn plan(ports: Vec<OpenPorts>) -> PodPlan {
    PodPlan {
        node: PodNetworkConfig {
            bridge: "kvmlet0".to_owned(),
            network: Ipv4Addr::new(10, 213, 0, 0),
            prefix: 16,
            mtu: 1500,
        },
        veth: "kvp0123456789".to_owned(),
        owner: "kvmlet:uid".to_owned(),
        address: Ipv4Addr::new(10, 213, 0, 7),
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
fn lines(tables: &[Table]) -> Option<Vec<String>> {
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
fn what_leaves_the_node_leaves_under_its_address() {
    let Some(lines) = lines(&[of_node(&plan(Vec::new()).node)]) else {
        return;
    };
    let leaves = "ip saddr 10.213.0.0/16 oifname != \"kvmlet0\" masquerade";
    assert!(lines.iter().any(|line| line == leaves), "{lines:?}");
}

#[test]
fn who_is_behind_a_veth_sends_from_its_own_addresses_or_nothing() {
    let member = |last: u8| Member {
        veth: format!("kvp000000000{last}"),
        mac: [0x0a, 0x58, 10, 213, 0, last],
        address: Ipv4Addr::new(10, 213, 0, last),
    };
    let Some(lines) = lines(&[walls(&[member(7)])]) else {
        return;
    };
    let rules: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| line.starts_with("iifname") || line.starts_with("elements"))
        .collect();
    assert_eq!(
        rules,
        [
            "elements = { \"kvp0000000007\" . 0a:58:0a:d5:00:07 . 10.213.0.7 }",
            "iifname \"kvp*\" ip protocol udp udp sport 67 counter packets 0 bytes 0 drop",
            "iifname \"kvp*\" iifname . ether saddr . ip saddr @sources accept",
            "iifname \"kvp*\" iifname . arp saddr ether . arp saddr ip @sources accept",
            "iifname \"kvp*\" counter packets 0 bytes 0 drop",
        ]
    );
}
