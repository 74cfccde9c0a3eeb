//! `pod_network.routes`: networks that guests reach by their gateway, announced to each of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_domain::GuestNetwork;

use super::cidr::{contains, is_routed, network_of};

/// Most of them. Each takes up to nine bytes of an answer of DHCPv4, which may have no more than 548.
const MOST: usize = 16;

/// One that cannot be announced to guests, or all where they are too many, and the rule that is broken. `pools` are the node's own.
pub(super) fn fault(written: &[String], pools: &[(IpAddr, u8)]) -> Option<(String, &'static str)> {
    if written.len() > MOST {
        return Some((written.join(", "), "must be at most 16 networks"));
    }
    let mut seen = Vec::new();
    for cidr in written {
        match rule(cidr, pools, &seen) {
            Ok(network) => seen.push(network),
            Err(rule) => return Some((cidr.clone(), rule)),
        }
    }
    None
}

/// The network, or the rule that it breaks.
fn rule(
    cidr: &str,
    pools: &[(IpAddr, u8)],
    seen: &[(IpAddr, u8)],
) -> Result<(IpAddr, u8), &'static str> {
    if cidr.ends_with("/0") {
        return Err("is the default route, which guests have in any case: leave it out");
    }
    let Some(network) = network_of(cidr) else {
        return Err(
            "must be a network such as 10.214.0.0/16 or fd00:1:2:4::/64, whose address has no bits behind the prefix; a single \
             address has /32 or /128",
        );
    };
    if !is_routed(network.0) {
        return Err(
            "must be a network that routers lead to: neither loopback nor link-local nor multicast nor reserved: leave it out",
        );
    }
    // A wider one does no harm: what a guest has on its link goes before it.
    let is_within = |outer: &(IpAddr, u8)| contains(*outer, network);
    if own_networks().iter().any(is_within) {
        return Err(
            "is of the network that every guest under masquerade has to itself (10.0.2.0/24, fd10:0:2::/120), and would hide the \
             gateway from it: leave it out",
        );
    }
    if pools.iter().any(is_within) {
        return Err(
            "must be beyond this node's pool, whose guests reach each other in any case: name the pools of other nodes",
        );
    }
    if seen.contains(&network) {
        return Err("is there twice: name it once");
    }
    Ok(network)
}

/// What guests under masquerade have to themselves unless they say otherwise.
fn own_networks() -> [(IpAddr, u8); 2] {
    let v4 = GuestNetwork::<Ipv4Addr>::default();
    let v6 = GuestNetwork::<Ipv6Addr>::default();
    [
        (v4.gateway.into(), v4.prefix),
        (v6.gateway.into(), v6.prefix),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong beside the pools 10.213.0.0/16 and fd00:1:2:3::/64.
    fn fault_of(cidrs: &[&str]) -> Option<(String, &'static str)> {
        let written: Vec<String> = cidrs.iter().map(|cidr| (*cidr).to_owned()).collect();
        let pools = ["10.213.0.0/16", "fd00:1:2:3::/64"].map(|pool| network_of(pool).unwrap());
        fault(&written, &pools)
    }

    #[test]
    fn networks_of_both_families_are_routes() {
        for good in [
            &[][..],
            &["10.214.0.0/16", "fd00:1:2:4::/64"],
            &["192.0.2.1/32", "2001:db8::7/128"],
            // The pool and guests' own networks are in them, and one is in the other.
            &["10.0.0.0/8", "10.0.0.0/9", "fd00::/8"],
        ] {
            assert_eq!(fault_of(good), None, "{good:?}");
        }
        let sixteen: Vec<String> = (0..16).map(|host| format!("192.0.2.{host}/32")).collect();
        let sixteen: Vec<&str> = sixteen.iter().map(String::as_str).collect();
        assert_eq!(fault_of(&sixteen), None);
    }

    #[test]
    fn what_is_no_route_is_named_with_its_way_out() {
        for (bad, way_out) in [
            ("10.214.0.1/16", "no bits behind the prefix"),
            ("fd00:1::1/64", "no bits behind the prefix"),
            ("10.214.0.0", "a single address has /32"),
            ("10.214.0.0/33", "must be a network such as"),
            ("default", "must be a network such as"),
            ("0.0.0.0/0", "is the default route"),
            ("::/0", "is the default route"),
            ("0.0.0.0/1", "neither loopback"),
            ("127.0.0.0/8", "neither loopback"),
            ("169.254.169.254/32", "nor link-local"),
            ("224.0.0.0/4", "nor multicast"),
            ("240.0.0.0/4", "that routers lead to"),
            ("::1/128", "neither loopback"),
            ("fe80::/10", "nor link-local"),
            ("ff02::/16", "nor multicast"),
            ("10.0.2.0/24", "10.0.2.0/24"),
            ("10.0.2.128/25", "hide the gateway"),
            ("fd10:0:2::/120", "hide the gateway"),
            ("10.213.0.0/16", "pools of other nodes"),
            ("fd00:1:2:3:4::/80", "pools of other nodes"),
            ("192.0.2.0/24", "name it once"),
        ] {
            let (value, rule) = fault_of(&["192.0.2.0/24", bad]).unwrap();
            assert_eq!(value, bad);
            assert!(rule.contains(way_out), "{bad}: {rule}");
        }
        // However it is written.
        let twice = fault_of(&["fd00:1:2:4::/64", "FD00:1:2:4:0::/64"]).unwrap();
        assert_eq!(twice.0, "FD00:1:2:4:0::/64");
        let many: Vec<String> = (0..17).map(|host| format!("192.0.2.{host}/32")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(fault_of(&many).unwrap().1.contains("at most 16"));
    }
}
