//! The pod network of this node.

use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use agent_host::PodNetworkConfig;
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

use crate::config::{Config, Network6};
use crate::durable;

/// Where the node's own network is kept, below the state directory.
const FILE: &str = "pod-network6";

/// The pod network, unless it is switched off.
pub(crate) fn pod_network(config: &Config) -> Option<PodNetworkConfig> {
    let settings = &config.pod_network;
    let (network, prefix) = settings.network().filter(|_| settings.enabled)?;
    Some(PodNetworkConfig {
        bridge: settings.bridge.clone(),
        network,
        prefix,
        network6: network6(config).unwrap_or_default(),
        mtu: settings.mtu,
        non_masquerade: settings.non_masquerade().unwrap_or_default(),
        routes: settings.routes().unwrap_or_default(),
        egress: settings.egress().unwrap_or_default(),
        dns: settings.dns.clone(),
    })
}

/// Why guests of the pod network have no IPv6 though the configuration has nothing against it.
pub(super) fn missing_ipv6(config: &Config) -> Option<&'static str> {
    let is_enabled = config.pod_network.enabled;
    is_enabled.then(|| network6(config).err()).flatten()
}

/// Makes the network of guests' IPv6 addresses at the first start, and keeps it: what the machine's id becomes later changes no
/// guest's address.
///
/// # Errors
/// When it is not kept; it is made of the machine's id then, as long as there is one.
pub(crate) fn keep_network6(config: &Config) -> io::Result<()> {
    let settings = &config.pod_network;
    let is_own = settings.enabled && matches!(settings.network6(), Some(Network6::OfMachine));
    if !is_own || kept(&config.state_dir).is_some() {
        return Ok(());
    }
    let network = match of_machine() {
        Some(network) => network,
        None => drawn()?,
    };
    let text = format!("{network}\n");
    durable::write(&file(&config.state_dir), 0o644, text.as_bytes())
}

/// The network of guests' IPv6 addresses, if they are to have any, or why they cannot.
fn network6(config: &Config) -> Result<Option<Ipv6Addr>, &'static str> {
    let network = match config.pod_network.network6() {
        None | Some(Network6::None) => return Ok(None),
        Some(Network6::Given(network)) => network,
        Some(Network6::OfMachine) => kept(&config.state_dir).or_else(of_machine).ok_or(
            "neither is their network kept nor is /etc/machine-id there, of which it is made (pod_network.cidr6)",
        )?,
    };
    let disabled = fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6");
    if disabled.map_or(true, |disabled| disabled.trim() != "0") {
        return Err("the node has none (net.ipv6.conf.all.disable_ipv6)");
    }
    Ok(Some(network))
}

fn file(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

/// The network that was kept. A file that holds none counts for nothing.
fn kept(state_dir: &Path) -> Option<Ipv6Addr> {
    let text = fs::read_to_string(file(state_dir)).ok()?;
    let network: Ipv6Addr = text.trim().parse().ok()?;
    let is_one = network.is_unique_local() && network.octets().ends_with(&[0; 8]);
    is_one.then_some(network)
}

fn of_machine() -> Option<Ipv6Addr> {
    let id = fs::read_to_string("/etc/machine-id").ok()?;
    unique_network(id.trim())
}

/// One of a machine that has no id.
fn drawn() -> io::Result<Ipv6Addr> {
    let mut bytes = [0; 8];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(of_bytes(bytes))
}

/// A unique local network (RFC 4193) made of a machine's id, which others learn nothing of by it.
fn unique_network(machine_id: &str) -> Option<Ipv6Addr> {
    if machine_id.is_empty() {
        return None;
    }
    let digest = Sha256::digest(format!("kvmlet pod network {machine_id}"));
    digest.first_chunk().copied().map(of_bytes)
}

fn of_bytes([_, a, b, c, d, e, f, g]: [u8; 8]) -> Ipv6Addr {
    let word = |high, low| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(
        word(0xfd, a),
        word(b, c),
        word(d, e),
        word(f, g),
        0,
        0,
        0,
        0,
    )
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

    #[test]
    fn the_network_of_the_first_start_is_kept_whatever_the_machine_is_called_later() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config {
            state_dir: directory.path().to_owned(),
            ..Config::default()
        };
        assert_eq!(kept(directory.path()), None);
        keep_network6(&config).unwrap();
        let first = kept(directory.path()).unwrap();
        assert_eq!(of_machine().unwrap_or(first), first);
        // As if it were another machine's.
        fs::write(file(directory.path()), "fd00:1:2:3::\n").unwrap();
        keep_network6(&config).unwrap();
        assert_eq!(kept(directory.path()), "fd00:1:2:3::".parse().ok());
        for text in ["2001:db8::", "fd00:1:2:3::1", "x"] {
            fs::write(file(directory.path()), text).unwrap();
            assert_eq!(kept(directory.path()), None, "{text}");
        }
        keep_network6(&config).unwrap();
        assert!(kept(directory.path()).is_some());
    }
}
