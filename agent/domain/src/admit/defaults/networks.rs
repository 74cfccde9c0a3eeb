//! Defaults of networks and interfaces.

use std::collections::BTreeSet;

use proto_node::vmi::{
    Devices, Interface, InterfaceMasquerade, Network, PodNetwork, VirtualMachineInstanceSpec,
};

use super::text::fill_text;
use crate::admit::network::{MAX_NETWORKS, wants_default};
use crate::admit::purpose::AdmissionPurpose;
use crate::derive::mac_address;

/// The name of the pod network and of its interface when nobody gives one.
const POD_NETWORK: &str = "default";
/// Model of an interface that names none.
const MODEL: &str = "virtio";

/// Attaches the guest to the pod network where it names no network, and fills in models and addresses. Longer lists are
/// refused unread.
pub(super) fn fill(
    spec: &mut VirtualMachineInstanceSpec,
    seed: &str,
    purpose: AdmissionPurpose<'_>,
) {
    let wants_default = wants_default(spec, purpose);
    let domain = spec.domain.as_mut();
    let Some(devices) = domain.and_then(|domain| domain.devices.as_mut()) else {
        return;
    };
    if spec.networks.len().max(devices.interfaces.len()) > MAX_NETWORKS {
        return;
    }
    let caps = purpose.caps();
    // A node without a pod network gives none: whether the guest can do without is judged.
    if wants_default && caps.is_none_or(|caps| caps.pod_network.is_some()) {
        attach(devices, &mut spec.networks);
    }
    fill_interfaces(&mut devices.interfaces, seed);
}

fn attach(devices: &mut Devices, networks: &mut Vec<Network>) {
    devices.interfaces.push(Interface {
        name: POD_NETWORK.to_owned(),
        masquerade: Some(InterfaceMasquerade {}),
        ..Interface::default()
    });
    networks.push(Network {
        name: POD_NETWORK.to_owned(),
        pod: Some(PodNetwork::default()),
        ..Network::default()
    });
}

/// Addresses that nobody chose are derived from the name. Only the first interface of a name gets one: the others are refused
/// for their name, and the same address would be no second mistake.
fn fill_interfaces(interfaces: &mut [Interface], seed: &str) {
    let mut seen = BTreeSet::new();
    for interface in interfaces {
        fill_text(&mut interface.model, MODEL);
        let is_its_own = !interface.name.is_empty() && seen.insert(interface.name.clone());
        if is_its_own && interface.mac_address.is_empty() {
            interface.mac_address = mac_address(seed, &interface.name).to_string();
        }
    }
}
