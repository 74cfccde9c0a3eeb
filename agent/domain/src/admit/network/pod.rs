//! The pod network: the default network, KubeVirt's rules for it, and what of an interface is about it.

use std::net::{Ipv4Addr, Ipv6Addr};

use proto_node::vmi::{
    Devices, Interface as WireInterface, Network, PodNetwork, VirtualMachineInstanceSpec,
};

use super::super::purpose::AdmissionPurpose;
use super::super::review::Review;
use super::{dhcp, ports};
use crate::error::{Bound, FieldError, Rule};
use crate::pod::{GuestNetwork, PodBinding, PodInterface};

/// The guest's own networks.
#[derive(Clone, Copy, Default)]
pub(super) struct PodNetworks {
    v4: GuestNetwork<Ipv4Addr>,
    v6: GuestNetwork<Ipv6Addr>,
}

/// Whether a VMI is new and names neither networks nor interfaces: it gets the pod network, unless it does not want it.
pub(in crate::admit) fn wants_default(
    spec: &VirtualMachineInstanceSpec,
    purpose: AdmissionPurpose<'_>,
) -> bool {
    let devices = spec
        .domain
        .as_ref()
        .and_then(|domain| domain.devices.as_ref());
    let says_nothing = |devices: &Devices| {
        devices.interfaces.is_empty()
            && spec.networks.is_empty()
            && devices.autoattach_pod_interface != Some(false)
    };
    purpose.is_new() && devices.is_some_and(says_nothing)
}

/// A VMI that would have the pod network and has not got it: the node has none. Who insists is refused, who says nothing gets
/// no interface.
pub(super) fn check_default(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) {
    let Some(caps) = review
        .caps()
        .filter(|_| lacks_default(spec, review.purpose))
    else {
        return;
    };
    let node = &caps.node_name;
    let devices = spec
        .domain
        .as_ref()
        .and_then(|domain| domain.devices.as_ref());
    if devices.and_then(|devices| devices.autoattach_pod_interface) == Some(true) {
        let path = "spec.domain.devices.autoattachPodInterface";
        review.push(switched_off(path, node).value("true"));
        return;
    }
    review.warn(&format!(
        "the guest has no network interface: the pod network, which is the default, is switched off on node {node:?}; \
         list a multus network, or set spec.domain.devices.autoattachPodInterface to false"
    ));
}

/// Whether the VMI would have the pod network, which the node has not.
pub(in crate::admit) fn lacks_default(
    spec: &VirtualMachineInstanceSpec,
    purpose: AdmissionPurpose<'_>,
) -> bool {
    let caps = purpose.caps();
    wants_default(spec, purpose) && caps.is_some_and(|caps| caps.pod_network.is_none())
}

fn switched_off(path: &str, node: &str) -> FieldError {
    let message = format!("the pod network is switched off on node {node:?}");
    FieldError::new(path, Rule::Forbidden, message).fix(
        "pod_network.enabled = true in the agent's configuration, or a multus network and an interface with bridge",
    )
}

/// At most one network is the pod's.
pub(super) fn check_single(networks: &[Network], review: &mut Review<'_>) {
    let of_pod = networks.iter().filter(|network| network.pod.is_some());
    if of_pod.count() > 1 {
        review.push(FieldError::new(
            "spec.interfaces",
            Rule::Duplicate,
            "more than one interface is connected to a pod network in spec.interfaces",
        ));
    }
}

/// The guest's own networks, as `pod` says or by default; nothing when the node has no pod network. A guest that is bridged has
/// none: its address is one of the pool.
pub(super) fn networks(
    (path, is_bridged): (&str, bool),
    pod: &PodNetwork,
    review: &mut Review<'_>,
) -> Option<PodNetworks> {
    let caps = review.caps();
    if let Some(caps) = caps.filter(|caps| caps.pod_network.is_none()) {
        review.push(switched_off(&format!("{path}.pod"), &caps.node_name));
        return None;
    }
    if is_bridged {
        ignore_own_networks(path, pod, review);
        return Some(PodNetworks::default());
    }
    let field = format!("{path}.pod.vmNetworkCIDR");
    let v4 = v4(&field, &pod.vm_network_cidr, review);
    let pool = caps.and_then(|caps| Some((caps.pod_network?, &caps.node_name)));
    if let Some((pool, node)) = pool.filter(|(pool, _)| pool.overlaps(&v4)) {
        let text = (&*pod.vm_network_cidr, "10.0.2.0/24");
        let taken = (format!("{}/{}", pool.network, pool.prefix), &**node);
        review.push(overlap(field, text, taken, "pod_network.cidr"));
    }
    let field = format!("{path}.pod.vmIPv6NetworkCIDR");
    let v6 = v6(&field, &pod.vm_ipv6_network_cidr, review);
    let pool6 = pool.and_then(|(pool, node)| Some((pool, pool.network6?, node)));
    if let Some((_, network, node)) = pool6.filter(|(pool, ..)| pool.overlaps6(&v6)) {
        let text = (&*pod.vm_ipv6_network_cidr, "fd10:0:2::/120");
        let taken = (format!("{network}/64"), &**node);
        review.push(overlap(field, text, taken, "pod_network.cidr6"));
    }
    Some(PodNetworks { v4, v6 })
}

fn ignore_own_networks(path: &str, pod: &PodNetwork, review: &mut Review<'_>) {
    for (member, text) in [
        ("vmNetworkCIDR", &pod.vm_network_cidr),
        ("vmIPv6NetworkCIDR", &pod.vm_ipv6_network_cidr),
    ] {
        if !text.is_empty() {
            let why = "a guest that is bridged to the pod network has an address of the pool";
            review.ignore(format!("{path}.pod.{member}"), why);
        }
    }
}

/// Of a guest's own network, as written or by default, with a pool that is at a node.
fn overlap(
    field: String,
    (text, default): (&str, &str),
    (pool, node): (String, &str),
    setting: &str,
) -> FieldError {
    let message = format!("overlaps {pool}, the pool of the pod network of node {node:?}");
    FieldError::new(field, Rule::Invalid, message)
        .value(if text.is_empty() { default } else { text })
        .fix(format!(
            "choose another network for the guest, or {setting} in the agent's configuration"
        ))
        .beyond(Bound::Node)
}

/// As under KubeVirt, the first address of the network is the gateway's and the second the guest's.
fn v4(field: &str, text: &str, review: &mut Review<'_>) -> GuestNetwork<Ipv4Addr> {
    if text.is_empty() {
        return GuestNetwork::default();
    }
    let parsed = split::<Ipv4Addr>(text, 30).map(|(address, prefix)| {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        let network = u32::from(address) & mask;
        GuestNetwork {
            guest: Ipv4Addr::from(network | 2),
            gateway: Ipv4Addr::from(network | 1),
            prefix,
        }
    });
    let usable = |network: &GuestNetwork<Ipv4Addr>| {
        let guest = network.guest;
        let is_special = guest.is_loopback() || guest.is_multicast() || guest.is_link_local();
        !is_special && (1..240).contains(&guest.octets()[0])
    };
    parsed.filter(usable).unwrap_or_else(|| {
        let message = "must be a network with room for a guest, such as 10.0.2.0/24";
        review.unable(field, text, message);
        GuestNetwork::default()
    })
}

fn v6(field: &str, text: &str, review: &mut Review<'_>) -> GuestNetwork<Ipv6Addr> {
    if text.is_empty() {
        return GuestNetwork::default();
    }
    let parsed = split::<Ipv6Addr>(text, 126).map(|(address, prefix)| {
        let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
        let network = u128::from(address) & mask;
        GuestNetwork {
            guest: Ipv6Addr::from(network | 2),
            gateway: Ipv6Addr::from(network | 1),
            prefix,
        }
    });
    let usable = |network: &GuestNetwork<Ipv6Addr>| {
        let guest = network.guest;
        let is_special = guest.is_multicast() || guest.is_unicast_link_local();
        !is_special && guest.segments()[0] != 0
    };
    parsed.filter(usable).unwrap_or_else(|| {
        let message = "must be a network with room for a guest, such as fd10:0:2::/120";
        review.unable(field, text, message);
        GuestNetwork::default()
    })
}

fn split<A: std::str::FromStr>(text: &str, most: u8) -> Option<(A, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= most)?;
    Some((address.parse().ok()?, prefix))
}

/// An interface of the pod network.
pub(super) fn interface(
    path: &str,
    interface: &WireInterface,
    networks: PodNetworks,
    review: &mut Review<'_>,
) -> PodInterface {
    let binding = if interface.masquerade.is_some() {
        PodBinding::Masquerade
    } else {
        PodBinding::Bridge
    };
    PodInterface {
        binding,
        v4: networks.v4,
        v6: networks.v6,
        ports: ports::open(path, interface, binding, review),
        dhcp: dhcp::options(path, interface.dhcp_options.as_ref(), review),
    }
}

/// Masquerade on an interface that is not the pod network's.
pub(super) fn check_masquerade(path: &str, interface: &WireInterface, review: &mut Review<'_>) {
    if interface.masquerade.is_some() {
        let message = "Masquerade interface only implemented with pod network";
        let error = FieldError::new(format!("{path}.name"), Rule::Invalid, message);
        review.push(error.fix("bridge: {}"));
    }
}

/// What only the pod network has, on an interface of another.
pub(super) fn check_elsewhere(path: &str, interface: &WireInterface, review: &mut Review<'_>) {
    const PORTS: &str = "ports are forwarded on the pod network only";
    check_masquerade(path, interface, review);
    if !interface.ports.is_empty() {
        review.ignore(format!("{path}.ports"), PORTS);
    }
    if !interface.port_ranges.is_empty() {
        review.ignore(format!("{path}.portRanges"), PORTS);
    }
    if interface.dhcp_options.is_some() {
        dhcp::options(path, interface.dhcp_options.as_ref(), review);
        let field = format!("{path}.dhcpOptions");
        let message = "the node answers DHCP on the pod network only";
        let error = FieldError::new(field, Rule::NotSupported, message);
        review.push(error.fix("configure the DHCP server of the network's bridge"));
    }
}
