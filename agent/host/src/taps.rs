//! Taps: one for each interface of a VMI, a port of its network's bridge.
//!
//! A tap is not persistent: it lives as long as a descriptor of it is open, which is first the
//! agent's and then the VMM's. Nothing is left behind when both are gone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkInfo};
use rtnetlink::{Handle, LinkBridgePort, LinkUnspec};
use sha2::{Digest, Sha256};
use tun_rs::{DeviceBuilder, Layer};

use crate::layout::PathUid;

/// Why there is no tap.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TapError {
    /// The bridge of the configuration is not there.
    #[error("the bridge {bridge} of the network {network} does not exist on this host")]
    NoBridge {
        /// Name of the network.
        network: String,
        /// Name of the bridge.
        bridge: String,
    },
    /// What the configuration names is no bridge.
    #[error("{bridge}, the bridge of the network {network}, is another kind of interface")]
    NotABridge {
        /// Name of the network.
        network: String,
        /// Name of the interface.
        bridge: String,
    },
    /// The tap cannot be made.
    #[error("the tap {tap} cannot be made")]
    Create {
        /// Name of the tap.
        tap: String,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The tap cannot be attached.
    #[error("the tap {tap} cannot be made a port of the bridge {bridge}")]
    Attach {
        /// Name of the tap.
        tap: String,
        /// Name of the bridge.
        bridge: String,
        /// The underlying error.
        #[source]
        source: rtnetlink::Error,
    },
    /// The kernel's routing socket cannot be had.
    #[error("no netlink socket")]
    Netlink(#[source] io::Error),
}

/// A tap that is a port of its bridge.
#[derive(Debug)]
pub(crate) struct AttachedTap {
    /// Its queues; the tap goes when the last copy of all of them is closed.
    pub(crate) queues: Vec<OwnedFd>,
    /// The bridge's MTU, which the tap has too.
    pub(crate) mtu: u32,
}

/// Stands for a VMI in names of links, which have 15 bytes at most.
fn digest(uid: &PathUid) -> String {
    let mut digest = hex::encode(Sha256::digest(uid.as_str().as_bytes()));
    digest.truncate(10);
    digest
}

/// Prefix of the names of all taps of one VMI.
fn prefix(uid: &PathUid) -> String {
    format!("kv{}n", digest(uid))
}

/// The name of a VMI's tap for its interface number `index`.
pub(crate) fn tap_name(uid: &PathUid, index: usize) -> String {
    format!("{}{index}", prefix(uid))
}

/// Prefix of the names of the node's ends of all veths. No tap's name has it: what follows `kv` there is a digest
/// in hexadecimal digits.
pub(crate) const VETHS: &str = "kvp";

/// The name of the node's end of a VMI's veth: its way to the pod network.
pub(crate) fn veth_name(uid: &PathUid) -> String {
    format!("{VETHS}{}", digest(uid))
}

/// The taps of a VMI that exist now, and its veth.
pub(crate) fn existing(uid: &PathUid) -> io::Result<Vec<String>> {
    let (prefix, veth) = (prefix(uid), veth_name(uid));
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/class/net")? {
        let name = entry?.file_name();
        found.extend(
            name.to_str()
                .filter(|name| name.starts_with(&prefix) || **name == *veth)
                .map(ToOwned::to_owned),
        );
    }
    Ok(found)
}

/// A tap as it is wanted.
#[derive(Debug)]
pub(crate) struct TapSpec<'a> {
    /// See [`tap_name`].
    pub(crate) name: &'a str,
    /// The network, for messages.
    pub(crate) network: &'a str,
    /// The bridge of the network.
    pub(crate) bridge: &'a str,
    /// MAC address of the guest's NIC, of which the tap's own is made.
    pub(crate) guest_mac: [u8; 6],
    /// How many queues, at least 1.
    pub(crate) queues: u32,
}

/// Makes a tap and attaches it to the bridge of its network.
pub(crate) async fn create(spec: &TapSpec<'_>) -> Result<AttachedTap, TapError> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(TapError::Netlink)?;
    let driver = tokio::spawn(connection);
    let result = create_with(&handle, spec).await;
    driver.abort();
    result
}

async fn create_with(handle: &Handle, spec: &TapSpec<'_>) -> Result<AttachedTap, TapError> {
    let TapSpec {
        name,
        network,
        bridge,
        guest_mac,
        queues,
    } = *spec;
    let no_bridge = || TapError::NoBridge {
        network: network.to_owned(),
        bridge: bridge.to_owned(),
    };
    let found = link(handle, bridge).await.ok_or_else(no_bridge)?;
    let (bridge_index, mtu) = (found.index, found.mtu);
    if !found.is_bridge {
        return Err(TapError::NotABridge {
            network: network.to_owned(),
            bridge: bridge.to_owned(),
        });
    }
    let create_error = |source| TapError::Create {
        tap: name.to_owned(),
        source,
    };
    let queues = open_tap(name, queues).map_err(create_error)?;
    let tap = link(handle, name)
        .await
        .ok_or_else(|| create_error(io::Error::other("it vanished after it was made")))?;
    let wanted = LinkUnspec::new_with_index(tap.index)
        .mtu(mtu)
        .address(host_mac(guest_mac))
        .controller(bridge_index)
        .up()
        .build();
    handle
        .link()
        .set(wanted)
        .execute()
        .await
        .map_err(|source| TapError::Attach {
            tap: name.to_owned(),
            bridge: bridge.to_owned(),
            source,
        })?;
    Ok(AttachedTap { queues, mtu })
}

/// Removes a tap that is still there although no VMM of its VMI lives. That it is gone is success.
pub(crate) async fn remove(name: &str) -> io::Result<()> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    let driver = tokio::spawn(connection);
    let result = match link(&handle, name).await {
        None => Ok(()),
        Some(tap) => handle
            .link()
            .del(tap.index)
            .execute()
            .await
            .map_err(io::Error::other),
    };
    driver.abort();
    result
}

/// Groups of links (IEEE 802.1D, table 7-10) whose frames a port passes on to the rules of its bridge: all but PAUSE, which
/// the kernel drops. Left to itself it takes them for the node's own and learns from some of them, such as LLDP, before any
/// rule sees them.
const GROUPS_OF_LINKS: u16 = 0xfffd;

/// Has the rules of a bridge see whatever comes by a port of it.
pub(crate) async fn show_all_frames(handle: &Handle, port: u32) -> Result<(), rtnetlink::Error> {
    let all = LinkBridgePort::new(port)
        .group_fwd_mask(GROUPS_OF_LINKS)
        .build();
    handle.link().set_port(all).execute().await
}

/// The same for taps, by name.
pub(crate) async fn show_all_frames_of<'a>(taps: impl Iterator<Item = &'a str>) -> io::Result<()> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    let driver = tokio::spawn(connection);
    let mut shown = Ok(());
    for tap in taps {
        if let Some(found) = link(&handle, tap).await
            && let Err(error) = show_all_frames(&handle, found.index).await
        {
            shown = Err(io::Error::other(error));
        }
    }
    driver.abort();
    shown
}

/// What is to be known of an interface.
struct Link {
    index: u32,
    mtu: u32,
    is_bridge: bool,
}

async fn link(handle: &Handle, name: &str) -> Option<Link> {
    let mut links = handle.link().get().match_name(name.to_owned()).execute();
    // The kernel answers ENODEV for a name that does not exist.
    let message = links.try_next().await.ok().flatten()?;
    let mtu = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(*mtu),
            _ => None,
        })?;
    let is_bridge = message.attributes.iter().any(|attribute| {
        matches!(attribute, LinkAttribute::LinkInfo(info)
            if info.contains(&LinkInfo::Kind(InfoKind::Bridge)))
    });
    Some(Link {
        index: message.header.index,
        mtu,
        is_bridge,
    })
}

/// The address of the host's end. A bridge takes over the lowest address of its ports, so this one
/// starts as high as a unicast address can: the bridge keeps its own.
fn host_mac([_, rest @ ..]: [u8; 6]) -> Vec<u8> {
    let mut mac = vec![0xfe];
    mac.extend(rest);
    mac
}

/// IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, with IFF_MULTI_QUEUE if there is more than one queue.
pub(crate) fn open_tap(name: &str, queues: u32) -> io::Result<Vec<OwnedFd>> {
    let device = DeviceBuilder::new()
        .name(name)
        .layer(Layer::L2)
        .packet_information(false)
        .offload(true)
        .multi_queue(queues > 1)
        .inherit_enable_state()
        .build_sync()?;
    let mut descriptors = vec![device.as_fd().try_clone_to_owned()?];
    for _ in 1..queues {
        // Another queue of the same tap, not a copy of this one.
        descriptors.push(device.try_clone()?.as_fd().try_clone_to_owned()?);
    }
    Ok(descriptors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_an_interface_and_differ_by_vmi_and_index() {
        let a = PathUid::new("5f0c9d3e-8a52-4c3b-9a39-000000000001").unwrap();
        let b = PathUid::new("5f0c9d3e-8a52-4c3b-9a39-000000000002").unwrap();
        assert!(tap_name(&a, 99).len() <= 15 && veth_name(&a).len() <= 15);
        assert!(!tap_name(&a, 0).starts_with(VETHS) && veth_name(&a).starts_with(VETHS));
        assert_ne!(tap_name(&a, 0), tap_name(&b, 0));
        assert_ne!(tap_name(&a, 0), tap_name(&a, 1));
    }
}
