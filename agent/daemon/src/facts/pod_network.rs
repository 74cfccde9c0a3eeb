//! The pod network of this node.

use std::fs;
use std::net::Ipv6Addr;

use agent_host::PodNetworkConfig;
use sha2::{Digest, Sha256};

use crate::config::{Config, Network6, PodNetwork};

/// The pod network, unless it is switched off.
pub(crate) fn pod_network(config: &Config) -> Option<PodNetworkConfig> {
    let settings = &config.pod_network;
    let (network, prefix) = settings.network().filter(|_| settings.enabled)?;
    Some(PodNetworkConfig {
        bridge: settings.bridge.clone(),
        network,
        prefix,
        network6: network6(settings).unwrap_or_default(),
        mtu: settings.mtu,
        non_masquerade: settings.non_masquerade().unwrap_or_default(),
        egress: settings.egress().unwrap_or_default(),
        dns: settings.dns.clone(),
    })
}

/// Why guests of the pod network have no IPv6 though the configuration has nothing against it.
pub(super) fn missing_ipv6(config: &Config) -> Option<&'static str> {
    let settings = Some(&config.pod_network).filter(|settings| settings.enabled);
    settings.and_then(|settings| network6(settings).err())
}

/// The network of guests' IPv6 addresses, if they are to have any, or why they cannot.
fn network6(settings: &PodNetwork) -> Result<Option<Ipv6Addr>, &'static str> {
    let network = match settings.network6() {
        None | Some(Network6::None) => return Ok(None),
        Some(Network6::Given(network)) => network,
        Some(Network6::OfMachine) => fs::read_to_string("/etc/machine-id")
            .ok()
            .and_then(|id| unique_network(id.trim()))
            .ok_or(
                "/etc/machine-id is not there, of which their network is made (pod_network.cidr6)",
            )?,
    };
    let disabled = fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6");
    if disabled.map_or(true, |disabled| disabled.trim() != "0") {
        return Err("the node has none (net.ipv6.conf.all.disable_ipv6)");
    }
    Ok(Some(network))
}

/// A unique local network (RFC 4193) made of a machine's id, which others learn nothing of by it.
fn unique_network(machine_id: &str) -> Option<Ipv6Addr> {
    if machine_id.is_empty() {
        return None;
    }
    let digest = Sha256::digest(format!("kvmlet pod network {machine_id}"));
    let mut bytes = [0; 16];
    let (network, _) = bytes.split_at_mut(8);
    network
        .iter_mut()
        .zip(digest)
        .for_each(|(byte, digest)| *byte = digest);
    if let [first, ..] = network {
        *first = 0xfd;
    }
    Some(Ipv6Addr::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_unique_local_network_and_another_has_another() {
        let network = unique_network("0123456789abcdef0123456789abcdef").unwrap();
        assert_eq!(
            unique_network("0123456789abcdef0123456789abcdef"),
            Some(network)
        );
        assert_ne!(
            unique_network("1123456789abcdef0123456789abcdef"),
            Some(network)
        );
        assert_eq!(network.octets()[0], 0xfd);
        assert_eq!(network.octets()[8..], [0; 8]);
        assert_eq!(unique_network(""), None);
    }
}
