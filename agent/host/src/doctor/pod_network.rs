//! What the pod network needs of the node.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use agent_domain::GuestNetwork;

use super::finding::Finding;
use super::routes::{self, Route};
use super::words::text_of;
use crate::pod::{NetworkBits, PodNetworkConfig, Pool, overlap};
use crate::resolver::Resolver;

const CHECK: &str = "pod network";

/// Everything about it.
pub(super) fn judge(
    root: &Path,
    config: Option<&PodNetworkConfig>,
    resolver: &Resolver,
) -> Vec<Finding> {
    let Some(config) = config else {
        let finding = Finding::warn(
            CHECK,
            "is switched off: VMIs that name no network have no interface",
            "pod_network.enabled = true in the agent's configuration",
        );
        return vec![finding];
    };
    let mut findings = pools(root, config);
    findings.extend(unheard_routes(config));
    findings.extend(namespaces(root));
    findings.extend(inside(root, config, resolver));
    findings.push(forwarding(root));
    findings.extend(config.network6.map(|network| forwarding6(root, network)));
    findings.push(names(resolver));
    findings.extend(firewall(root, config));
    findings
}

/// Whether a pool is used by somebody else, as far as the node has a way there.
fn pools(root: &Path, config: &PodNetworkConfig) -> Vec<Finding> {
    let routes = routes::all(root);
    let judge = |pool: Pool| {
        let shown = pool.shown();
        let mut others = routes.iter();
        let other = others
            .find(|route| route.interface != config.bridge && overlap(route.network, pool.network));
        match other {
            None => Finding::ok(CHECK, format!("{shown} on {}", config.bridge)),
            Some(Route {
                network: (address, bits),
                interface,
            }) => Finding::fail(
                CHECK,
                format!(
                    "{shown} overlaps {address}/{bits}, to which the node has a route by {interface}: guests of the pod network do not start"
                ),
                format!("another {} in the agent's configuration", pool.setting),
            ),
        }
    };
    config.pools().into_iter().map(judge).collect()
}

/// Routes of IPv6 that are announced to no guest, because guests have no IPv6.
fn unheard_routes(config: &PodNetworkConfig) -> Option<Finding> {
    if config.network6.is_some() {
        return None;
    }
    let (network, bits) = config
        .routes
        .iter()
        .find(|(network, _)| network.is_ipv6())?;
    Some(Finding::warn(
        CHECK,
        format!("the route to {network}/{bits} is announced to no guest: guests have no IPv6"),
        "pod_network.cidr6 in the agent's configuration, or pod_network.routes without networks of IPv6",
    ))
}

/// Each guest's part of the network is in a namespace of its own.
fn namespaces(root: &Path) -> Option<Finding> {
    let most = text_of(root, "proc/sys/user/max_net_namespaces")?;
    let lack = Finding::fail(
        CHECK,
        "there are no network namespaces (user.max_net_namespaces is 0): guests of the pod network do not start",
        "sysctl user.max_net_namespaces=15000",
    );
    (most == "0").then_some(lack)
}

/// Whether the node knows the network that a guest under masquerade has for itself: what is there, it does not reach. Its questions
/// for names do, wherever the servers are.
fn inside(root: &Path, config: &PodNetworkConfig, resolver: &Resolver) -> Option<Finding> {
    let v4 = GuestNetwork::<Ipv4Addr>::default();
    let v6 = GuestNetwork::<Ipv6Addr>::default();
    let own: [NetworkBits; 2] = [
        (v4.gateway.into(), v4.prefix),
        (v6.gateway.into(), v6.prefix),
    ];
    let is_own = |network: NetworkBits| own.iter().any(|own| overlap(*own, network));
    let routes = routes::all(root);
    let mut routes = routes.iter();
    if let Some(route) =
        routes.find(|route| route.interface != config.bridge && is_own(route.network))
    {
        let (address, bits) = route.network;
        let what = format!(
            "guests under masquerade have 10.0.2.0/24 and fd10:0:2::/120 to themselves: they do not reach {address}/{bits}, to \
             which the node has a route by {}",
            route.interface
        );
        let way_out = "vmNetworkCIDR or vmIPv6NetworkCIDR of the pod network in VMIs";
        return Some(Finding::warn(CHECK, what, way_out));
    }
    let taken = [
        v4.guest.into(),
        v4.gateway.into(),
        v6.guest.into(),
        v6.gateway.into(),
    ];
    let server = resolver
        .servers
        .iter()
        .find(|server| taken.contains(*server))?;
    Some(Finding::warn(
        CHECK,
        format!(
            "the node's resolver {server} has an address of every guest under masquerade: they cannot ask it for names"
        ),
        "another server in pod_network.dns of the agent's configuration",
    ))
}

/// Whether guests reach others than the node and each other.
fn forwarding(root: &Path) -> Finding {
    const CHECK: &str = "forwarding";
    if text_of(root, "proc/sys/net/ipv4/ip_forward").as_deref() == Some("1") {
        return Finding::ok(CHECK, "of IPv4 is on");
    }
    Finding::warn(
        CHECK,
        "of IPv4 is off: guests of the pod network reach the node and each other, and nobody else",
        "sysctl -w net.ipv4.ip_forward=1, and the same in /etc/sysctl.d/kvmlet.conf",
    )
}

/// The same by IPv6, for guests that have it.
fn forwarding6(root: &Path, network: Ipv6Addr) -> Finding {
    const CHECK: &str = "forwarding";
    let setting = text_of(root, "proc/sys/net/ipv6/conf/all/forwarding");
    if setting.as_deref() == Some("1") {
        return Finding::ok(CHECK, format!("of IPv6 is on, guests are in {network}/64"));
    }
    Finding::warn(
        CHECK,
        "of IPv6 is off: guests of the pod network reach the node and each other by IPv6, and nobody else",
        "sysctl -w net.ipv6.conf.all.forwarding=1; where the node itself learns its routes from advertisements also \
         net.ipv6.conf.INTERFACE.accept_ra=2, before that",
    )
}

/// Whether guests can ask for names.
fn names(resolver: &Resolver) -> Finding {
    const CHECK: &str = "resolver";
    if resolver.is_stub {
        return Finding::warn(
            CHECK,
            "all servers of /etc/resolv.conf are the node's own loopback: guests of the pod network can ask none of them",
            "name a server there that guests can reach, or dnsConfig in VMIs",
        );
    }
    if resolver.servers.iter().any(std::net::IpAddr::is_ipv4) {
        return Finding::ok(CHECK, "guests ask the servers of the node");
    }
    Finding::warn(
        CHECK,
        "/etc/resolv.conf names no server with IPv4: guests of the pod network can ask nobody for names",
        "name one there, or dnsConfig in VMIs",
    )
}

/// Firewalls that drop what they do not know.
fn firewall(root: &Path, config: &PodNetworkConfig) -> Option<Finding> {
    const CHECK: &str = "firewall";
    let bridge = &config.bridge;
    let enabled = text_of(root, "etc/ufw/ufw.conf").unwrap_or_default();
    let policy = text_of(root, "etc/default/ufw").unwrap_or_default();
    let has = |text: &str, line: &str| text.lines().any(|found| found.trim() == line);
    let ufw_drops =
        has(&enabled, "ENABLED=yes") && !has(&policy, "DEFAULT_FORWARD_POLICY=\"ACCEPT\"");
    if ufw_drops && ufw_knows(root, bridge) {
        return Some(Finding::ok(CHECK, format!("ufw lets {bridge} through")));
    }
    if ufw_drops {
        return Some(Finding::warn(
            CHECK,
            "ufw drops what is forwarded, and what comes from guests to the node",
            format!("ufw route allow in on {bridge}; ufw allow in on {bridge}"),
        ));
    }
    let runs = root.join("run/firewalld").exists();
    if runs && firewalld_knows(root, bridge) {
        return Some(Finding::ok(
            CHECK,
            format!("firewalld has {bridge} in a zone"),
        ));
    }
    if runs {
        return Some(Finding::warn(
            CHECK,
            format!(
                "firewalld runs: unless {bridge} is in a zone that forwards, guests of the pod network reach nobody"
            ),
            format!(
                "firewall-cmd --permanent --zone=trusted --add-interface={bridge} && firewall-cmd --reload"
            ),
        ));
    }
    None
}

/// Whether ufw has a rule for what comes by the bridge, of both kinds: to the node, and to elsewhere.
fn ufw_knows(root: &Path, bridge: &str) -> bool {
    let rules = text_of(root, "etc/ufw/user.rules").unwrap_or_default();
    let has = |chain: &str| {
        let begins = format!("-A {chain} -i {bridge} ");
        let mut lines = rules.lines();
        lines.any(|line| line.starts_with(&begins) && line.ends_with("-j ACCEPT"))
    };
    has("ufw-user-input") && has("ufw-user-forward")
}

/// Whether a zone of firewalld has the bridge. What the zone does is its operator's to say.
fn firewalld_knows(root: &Path, bridge: &str) -> bool {
    let zones = std::fs::read_dir(root.join("etc/firewalld/zones"));
    let mut zones = zones.into_iter().flatten().flatten();
    let interface = format!("<interface name=\"{bridge}\"/>");
    zones.any(|zone| {
        let text = std::fs::read_to_string(zone.path());
        text.is_ok_and(|text| text.contains(&interface))
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Health;
    use super::super::tests::node;
    use super::*;

    const POOL6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 2, 3, 0, 0, 0, 0);

    fn config() -> PodNetworkConfig {
        PodNetworkConfig {
            network6: Some(POOL6),
            ..PodNetworkConfig::of_tests()
        }
    }

    fn resolver(server: &str) -> Resolver {
        Resolver {
            servers: server.parse().into_iter().collect(),
            ..Resolver::default()
        }
    }

    fn lacks(files: &[(&str, &str)], resolver: &Resolver) -> Vec<String> {
        let root = node(files);
        let findings = judge(root.path(), Some(&config()), resolver);
        let lacks = findings
            .into_iter()
            .filter(|found| found.health != Health::Ok);
        lacks
            .map(|found| format!("{}: {}", found.check, found.way_out))
            .collect()
    }

    const ROUTES: &str = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0
kvmlet0 0000D50A 00000000 0001 0 0 0 0000FFFF 0 0 0
eth0 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n";

    const ROUTES6: &str = "\
fd000001000200030000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001  kvmlet0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00450003     eth0
fd000001000200030000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000002 00000000 80200001  kvmlet0\n";

    #[test]
    fn a_node_that_forwards_and_has_the_pool_for_itself_is_well() {
        let files = [
            ("proc/net/route", ROUTES),
            ("proc/net/ipv6_route", ROUTES6),
            ("proc/sys/net/ipv4/ip_forward", "1\n"),
            ("proc/sys/net/ipv6/conf/all/forwarding", "1\n"),
        ];
        assert!(lacks(&files, &resolver("192.0.2.1")).is_empty());
    }

    #[test]
    fn a_warning_whose_way_out_was_followed_is_not_repeated() {
        let well = [
            ("proc/net/route", ROUTES),
            ("proc/sys/net/ipv4/ip_forward", "1\n"),
            ("proc/sys/net/ipv6/conf/all/forwarding", "1\n"),
        ];
        let ufw = [
            ("etc/ufw/ufw.conf", "ENABLED=yes\n"),
            ("etc/default/ufw", "DEFAULT_FORWARD_POLICY=\"DROP\"\n"),
        ];
        let rules = "### tuple ### route:allow any any 0.0.0.0/0 any 0.0.0.0/0 in_kvmlet0\n\
             -A ufw-user-forward -i kvmlet0 -j ACCEPT\n-A ufw-user-input -i kvmlet0 -j ACCEPT\n";
        let firewalld = ("run/firewalld/pid", "1\n");
        let zone = "<zone>\n  <interface name=\"kvmlet0\"/>\n</zone>\n";
        let asked = resolver("192.0.2.1");
        let lacks = |more: &[(&str, &str)]| lacks(&[&well[..], more].concat(), &asked);
        assert_eq!(lacks(&ufw).len(), 1);
        let known = [&ufw[..], &[("etc/ufw/user.rules", rules)]].concat();
        assert!(lacks(&known).is_empty());
        assert_eq!(lacks(&[firewalld]).len(), 1);
        assert!(lacks(&[firewalld, ("etc/firewalld/zones/trusted.xml", zone)]).is_empty());
    }

    #[test]
    fn a_network_that_guests_have_to_themselves_is_named() {
        let routes = format!("{ROUTES}eth0 0002000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n");
        let files = [
            ("proc/net/route", routes.as_str()),
            ("proc/sys/net/ipv4/ip_forward", "1\n"),
            ("proc/sys/net/ipv6/conf/all/forwarding", "1\n"),
        ];
        let said = lacks(&files, &resolver("192.0.2.1"));
        assert_eq!(
            said,
            ["pod network: vmNetworkCIDR or vmIPv6NetworkCIDR of the pod network in VMIs"]
        );
        let files = [("proc/net/route", ROUTES), files[1], files[2]];
        let said = lacks(&files, &resolver("10.0.2.2"));
        assert_eq!(
            said,
            ["pod network: another server in pod_network.dns of the agent's configuration"]
        );
        assert!(lacks(&files, &resolver("10.0.2.3")).is_empty());
    }

    #[test]
    fn routes_that_no_guest_gets_are_named() {
        let with = PodNetworkConfig {
            routes: vec![
                (Ipv4Addr::new(10, 214, 0, 0).into(), 16),
                (POOL6.into(), 64),
            ],
            ..config()
        };
        assert!(unheard_routes(&with).is_none());
        let without = PodNetworkConfig {
            network6: None,
            ..with
        };
        let found = unheard_routes(&without).unwrap();
        assert_eq!(found.health, Health::Warn);
        assert!(
            found.message.contains("fd00:1:2:3::/64"),
            "{}",
            found.message
        );
    }

    #[test]
    fn every_lack_has_its_way_out() {
        let routes = format!("{ROUTES}wg0 0000D40A 00000000 0001 0 0 0 0000FEFF 0 0 0\n");
        let routes6 = format!("{ROUTES6}{}", ROUTES6.replace("kvmlet0", "wg0"));
        let files = [
            ("proc/net/route", routes.as_str()),
            ("proc/net/ipv6_route", routes6.as_str()),
            ("etc/ufw/ufw.conf", "ENABLED=yes\n"),
            ("etc/default/ufw", "DEFAULT_FORWARD_POLICY=\"DROP\"\n"),
            ("proc/sys/user/max_net_namespaces", "0\n"),
        ];
        let stub = Resolver {
            is_stub: true,
            ..Resolver::default()
        };
        let lacks = lacks(&files, &stub);
        for (lack, words) in lacks.iter().zip([
            "pod network: another pod_network.cidr in",
            "pod network: another pod_network.cidr6 in",
            "pod network: sysctl user.max_net_namespaces",
            "forwarding: sysctl -w net.ipv4.ip_forward=1",
            "forwarding: sysctl -w net.ipv6.conf.all.forwarding=1",
            "resolver: name a server there",
            "firewall: ufw route allow in on kvmlet0",
        ]) {
            assert!(lack.starts_with(words), "{lack} is not {words}");
        }
        assert_eq!(lacks.len(), 7, "{lacks:?}");
    }
}
