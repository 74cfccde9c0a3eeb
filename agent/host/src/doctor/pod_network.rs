//! What the pod network needs of the node.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::finding::Finding;
use super::words::text_of;
use crate::pod::PodNetworkConfig;
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
    let mut findings = vec![pool(root, config), forwarding(root)];
    findings.extend(config.network6.map(|network| forwarding6(root, network)));
    findings.push(names(resolver));
    findings.extend(firewall(root, config));
    findings
}

/// Whether the pool is used by somebody else, as far as the node has a way there.
fn pool(root: &Path, config: &PodNetworkConfig) -> Finding {
    let shown = format!("{}/{}", config.network, config.prefix);
    let routes = text_of(root, "proc/net/route").unwrap_or_default();
    let other = routes.lines().skip(1).find_map(|line| {
        let route = Route::parse(line)?;
        let is_other = route.interface != config.bridge && route.overlaps(config);
        is_other.then_some(route)
    });
    match other {
        None => Finding::ok(CHECK, format!("{shown} on {}", config.bridge)),
        Some(route) => Finding::fail(
            CHECK,
            format!(
                "{shown} overlaps {}/{}, to which the node has a route by {}",
                route.network,
                route.mask.count_ones(),
                route.interface
            ),
            "another pod_network.cidr in the agent's configuration",
        ),
    }
}

/// A line of `/proc/net/route`.
struct Route {
    interface: String,
    network: Ipv4Addr,
    mask: u32,
}

impl Route {
    /// Default routes lead everywhere and are none.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |index: usize| {
            let word = words.get(index)?;
            u32::from_str_radix(word, 16).map(u32::from_be).ok()
        };
        let (network, mask) = (number(1)?, number(7)?);
        (mask != 0).then_some(Self {
            interface: words.first().copied()?.to_owned(),
            network: Ipv4Addr::from(network),
            mask,
        })
    }

    fn overlaps(&self, config: &PodNetworkConfig) -> bool {
        let own = u32::MAX
            .checked_shl(32 - u32::from(config.prefix))
            .unwrap_or(0);
        let mask = own & self.mask;
        u32::from(self.network) & mask == u32::from(config.network) & mask
    }
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
    if ufw_drops {
        return Some(Finding::warn(
            CHECK,
            "ufw drops what is forwarded, and what comes from guests to the node",
            format!("ufw route allow in on {bridge}; ufw allow in on {bridge}"),
        ));
    }
    if root.join("run/firewalld").exists() {
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

#[cfg(test)]
mod tests {
    use super::super::finding::Health;
    use super::super::tests::node;
    use super::*;

    fn config() -> PodNetworkConfig {
        PodNetworkConfig {
            bridge: "kvmlet0".to_owned(),
            network: Ipv4Addr::new(10, 213, 0, 0),
            prefix: 16,
            network6: Some(Ipv6Addr::new(0xfd00, 1, 2, 3, 0, 0, 0, 0)),
            mtu: 1500,
            non_masquerade: Vec::new(),
            egress: Vec::new(),
            dns: Vec::new(),
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

    #[test]
    fn a_node_that_forwards_and_has_the_pool_for_itself_is_well() {
        let files = [
            ("proc/net/route", ROUTES),
            ("proc/sys/net/ipv4/ip_forward", "1\n"),
            ("proc/sys/net/ipv6/conf/all/forwarding", "1\n"),
        ];
        assert!(lacks(&files, &resolver("192.0.2.1")).is_empty());
    }

    #[test]
    fn every_lack_has_its_way_out() {
        let routes = format!("{ROUTES}wg0 0000D40A 00000000 0001 0 0 0 0000FEFF 0 0 0\n");
        let files = [
            ("proc/net/route", routes.as_str()),
            ("etc/ufw/ufw.conf", "ENABLED=yes\n"),
            ("etc/default/ufw", "DEFAULT_FORWARD_POLICY=\"DROP\"\n"),
        ];
        let stub = Resolver {
            is_stub: true,
            ..Resolver::default()
        };
        let lacks = lacks(&files, &stub);
        for (lack, words) in lacks.iter().zip([
            "pod network: another pod_network.cidr",
            "forwarding: sysctl -w net.ipv4.ip_forward=1",
            "forwarding: sysctl -w net.ipv6.conf.all.forwarding=1",
            "resolver: name a server there",
            "firewall: ufw route allow in on kvmlet0",
        ]) {
            assert!(lack.starts_with(words), "{lack} is not {words}");
        }
        assert_eq!(lacks.len(), 5, "{lacks:?}");
    }
}
