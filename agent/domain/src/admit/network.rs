//! Networks and the interfaces that join them.

mod dhcp;
mod mac;
mod pod;
mod ports;
mod walls;

use std::collections::{BTreeMap, BTreeSet};

use proto_machine::MAX_ACPI_INDEX;
use proto_node::vmi::{Interface as WireInterface, Network, VirtualMachineInstanceSpec};

use self::mac::JudgedMacs;
use self::pod::PodNetworks;
pub(super) use self::pod::{lacks_default, wants_default};
pub use self::walls::NETWORK_WALLS_ANNOTATION;
pub(super) use self::walls::without_walls;
use super::disks::list_of;
use super::pci;
use super::review::Review;
use crate::error::{Bound, FieldError, Rule};
use crate::name::{Name, NetworkName};
use crate::pod::Attachment;
use crate::vmi::Interface;

const MODELS: &[&str] = &[
    "virtio", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139",
];

/// More than fit into any machine; bounds the work on a hostile manifest.
pub(super) const MAX_NETWORKS: usize = 256;

/// Most queue pairs of an interface, and of all interfaces: each costs the host a descriptor (two with
/// vhost-net), and the VMM is handed 64 at most.
const MAX_QUEUES: u32 = 8;
const MAX_ALL_QUEUES: u32 = 24;

/// The state of an interface that the guest does not get.
const ABSENT: &str = "absent";

/// What an interface of some network joins.
enum Joined {
    Configured(NetworkName),
    Pod(PodNetworks),
    /// Refused already, here or by the level of its field.
    Refused,
}

/// Reads networks and interfaces together.
pub(super) fn judge(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) -> Vec<Interface> {
    if !lists_fit(spec, review) {
        return Vec::new();
    }
    pod::check_default(spec, review);
    let domain = spec.domain.as_ref();
    let devices = domain.and_then(|domain| domain.devices.as_ref());
    let interfaces = devices.map_or(&[][..], |devices| &devices.interfaces);
    let networks = networks(&spec.networks, interfaces, review);
    let Some(devices) = devices else {
        return Vec::new();
    };
    let untyped = spec.networks.iter();
    let untyped = untyped.filter(|it| it.pod.is_none() && it.multus.is_none());
    let mut judged = JudgedInterfaces {
        without_pod: untyped.map(|it| it.name.as_str()).collect(),
        networks,
        names: BTreeSet::new(),
        macs: JudgedMacs::default(),
        acpi_indexes: BTreeMap::new(),
    };
    let mut interfaces = Vec::new();
    for (index, interface) in devices.interfaces.iter().enumerate() {
        let path = format!("spec.domain.devices.interfaces[{index}]");
        interfaces.extend(judged.judge(&path, interface, review));
    }
    check_idle(&spec.networks, &devices.interfaces, review);
    interfaces
}

/// What interfaces are judged on, and those that were judged.
struct JudgedInterfaces<'a> {
    networks: BTreeMap<String, Joined>,
    /// Names of networks without a type that has a place here.
    without_pod: BTreeSet<&'a str>,
    names: BTreeSet<String>,
    macs: JudgedMacs,
    /// Numbers by which firmware names interfaces, each with the path of its interface.
    acpi_indexes: BTreeMap<u16, String>,
}

impl JudgedInterfaces<'_> {
    /// Reads an interface; nothing when it is refused, or when the guest does not get it.
    fn judge(
        &mut self,
        path: &str,
        interface: &WireInterface,
        review: &mut Review<'_>,
    ) -> Option<Interface> {
        check_name(path, &interface.name, &mut self.names, review);
        check_binding(path, interface, review);
        check_state(path, interface, self.networks.get(&interface.name), review);
        check_model(path, interface, review);
        let is_of_pod = matches!(self.networks.get(&interface.name), Some(Joined::Pod(_)));
        let mac = self.macs.judge(path, interface, is_of_pod, review);
        let acpi_index = self.acpi_index(path, interface, review);
        let Some(joined) = self.networks.get(&interface.name) else {
            if !interface.name.is_empty() {
                self.without_network(path, interface, review);
            }
            return None;
        };
        if self.without_pod.contains(interface.name.as_str()) {
            pod::check_masquerade(path, interface, review);
        }
        let attachment = attachment(path, interface, joined, review);
        let both = attachment.zip(mac).filter(|_| interface.state != ABSENT);
        both.map(|(attachment, mac)| Interface {
            name: Name(interface.name.clone()),
            mac,
            pci_address: pci::parse(&interface.pci_address).ok().flatten(),
            attachment,
            queues: 1,
            link_down: interface.state == "down",
            tag: interface.tag.clone(),
            acpi_index,
        })
    }

    /// The number by which firmware names an interface, which no other has. KubeVirt's API demands the same, and its
    /// admission leaves it to libvirt to find out.
    fn acpi_index(
        &mut self,
        path: &str,
        interface: &WireInterface,
        review: &mut Review<'_>,
    ) -> Option<u16> {
        let field = format!("{path}.acpiIndex");
        let given = interface.acpi_index;
        if given == 0 {
            return None;
        }
        let legal = u16::try_from(given).ok();
        let Some(index) = legal.filter(|index| *index <= MAX_ACPI_INDEX) else {
            let message = format!("must be between 1 and {MAX_ACPI_INDEX}");
            review.unable(&field, &given.to_string(), message);
            return None;
        };
        if let Some(other) = self.acpi_indexes.insert(index, path.to_owned()) {
            let message = format!("{other} has it too");
            let error = FieldError::new(field, Rule::Duplicate, message).value(given.to_string());
            review.push(error.beyond(Bound::Release));
        }
        Some(index)
    }

    /// An interface that no network has the name of.
    fn without_network(&self, path: &str, interface: &WireInterface, review: &mut Review<'_>) {
        let names: Vec<&str> = self.networks.keys().map(String::as_str).collect();
        let message = format!("{path}.name '{}' not found.", interface.name);
        let error = FieldError::new(format!("{path}.name"), Rule::Invalid, message)
            .value(&interface.name)
            .fix(format!("networks: {}", list_of(&names)));
        review.push(error);
        pod::check_masquerade(path, interface, review);
    }
}

/// What an interface joins; nothing when it is refused.
fn attachment(
    path: &str,
    interface: &WireInterface,
    joined: &Joined,
    review: &mut Review<'_>,
) -> Option<Attachment> {
    match joined {
        Joined::Pod(networks) => {
            let pod = pod::interface(path, interface, *networks, review);
            Some(Attachment::Pod(Box::new(pod)))
        }
        Joined::Configured(network) => {
            pod::check_elsewhere(path, interface, review);
            Some(Attachment::Network(network.clone()))
        }
        Joined::Refused => None,
    }
}

/// Gives each interface a queue pair for each vCPU, as far as the bounds allow.
pub(super) fn share_queues(interfaces: &mut [Interface], vcpus: u32) {
    let count = u32::try_from(interfaces.len()).unwrap_or(u32::MAX).max(1);
    let most = MAX_QUEUES.min(MAX_ALL_QUEUES / count).max(1);
    for interface in interfaces {
        interface.queues = vcpus.clamp(1, most);
    }
}

/// Longer lists are refused unread.
fn lists_fit(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) -> bool {
    let devices = spec
        .domain
        .as_ref()
        .and_then(|domain| domain.devices.as_ref());
    let lists = [
        ("spec.networks", spec.networks.len()),
        (
            "spec.domain.devices.interfaces",
            devices.map_or(0, |devices| devices.interfaces.len()),
        ),
    ];
    review.lists_fit(&lists, MAX_NETWORKS)
}

/// Every network needs an interface.
fn check_idle(networks: &[Network], interfaces: &[WireInterface], review: &mut Review<'_>) {
    let used: BTreeSet<&str> = interfaces
        .iter()
        .map(|interface| interface.name.as_str())
        .collect();
    for (index, network) in networks.iter().enumerate() {
        if !network.name.is_empty() && !used.contains(network.name.as_str()) {
            let message = format!("spec.networks[{index}].name '{}' not found.", network.name);
            let error = FieldError::new(
                format!("spec.networks[{index}].name"),
                Rule::Required,
                message,
            )
            .value(&network.name)
            .fix("every network needs an interface of the same name");
            review.push(error);
        }
    }
}

/// What each network stands for, by name.
fn networks(
    networks: &[Network],
    interfaces: &[WireInterface],
    review: &mut Review<'_>,
) -> BTreeMap<String, Joined> {
    pod::check_single(networks, review);
    let mut joined = BTreeMap::new();
    for (index, network) in networks.iter().enumerate() {
        let path = format!("spec.networks[{index}]");
        let kinds = [
            network.pod.is_some(),
            network.multus.is_some(),
            network.resource_claim.is_some(),
        ];
        let count = kinds.iter().filter(|kind| **kind).count();
        if count != 1 {
            let message = if count == 0 {
                "should have a network type"
            } else {
                "should have only one network type"
            };
            review.push(FieldError::new(path.as_str(), Rule::Required, message));
        }
        let meaning = match (&network.multus, &network.pod) {
            (Some(multus), None) if count == 1 => {
                let field = format!("{path}.multus.networkName");
                configured(&field, &multus.network_name, review)
                    .map_or(Joined::Refused, Joined::Configured)
            }
            (None, Some(pod)) if count == 1 => {
                let mut own = interfaces.iter().filter(|it| it.name == network.name);
                let is_bridged = own.any(|interface| interface.bridge.is_some());
                let networks = pod::networks((&path, is_bridged), pod, review);
                networks.map_or(Joined::Refused, Joined::Pod)
            }
            _ => Joined::Refused,
        };
        if joined.insert(network.name.clone(), meaning).is_some() {
            let message = format!(
                "Network with name {:?} already exists, every network must have a unique name",
                network.name
            );
            let error = FieldError::new(format!("{path}.name"), Rule::Duplicate, message)
                .value(&network.name);
            review.push(error);
        }
    }
    joined
}

/// The configured network that a `networkName` means: NAME, or NAMESPACE/NAME in the VMI's namespace.
fn configured(field: &str, text: &str, review: &mut Review<'_>) -> Option<NetworkName> {
    if text.is_empty() {
        return None;
    }
    let short = text
        .split_once('/')
        .filter(|(space, _)| *space == review.namespace)
        .map_or(text, |(_, name)| name);
    let Some(caps) = review.caps() else {
        return Some(NetworkName(short.to_owned()));
    };
    let known = [text, short]
        .into_iter()
        .find(|name| caps.networks.contains_key(*name));
    if known.is_none() {
        let names: Vec<&str> = caps.networks.keys().map(String::as_str).collect();
        let error = FieldError::new(
            field,
            Rule::Invalid,
            format!("node {:?} has no such network", caps.node_name),
        )
        .value(text)
        .fix(format!(
            "networks: {}; `[networks.{short}] bridge = \"br0\"` in the agent's configuration makes one",
            list_of(&names)
        ))
        .beyond(Bound::Node);
        review.push(error);
    }
    known.map(|name| NetworkName(name.to_owned()))
}

/// A name is legal, and no other interface before it has it. That there is none was reported already.
fn check_name(path: &str, name: &str, seen: &mut BTreeSet<String>, review: &mut Review<'_>) {
    if name.is_empty() {
        return;
    }
    let field = format!("{path}.name");
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.len() > 63 || !name.bytes().all(legal) {
        review.invalid(
            &field,
            name,
            "Network interface name can only contain alphabetical characters, numbers, dashes (-) or underscores (_)",
        );
    }
    if !seen.insert(name.to_owned()) {
        let error = FieldError::new(
            field,
            Rule::Duplicate,
            "Only one interface can be connected to one specific network",
        )
        .value(name);
        review.push(error);
    }
}

fn check_binding(path: &str, interface: &WireInterface, review: &mut Review<'_>) {
    let given = [
        interface.bridge.is_some(),
        interface.masquerade.is_some(),
        interface.sriov.is_some(),
        interface.passt_binding.is_some(),
        interface.binding.is_some(),
    ];
    // Those that KubeVirt has no more are refused by their level, and count for nothing.
    let count = given.into_iter().filter(|is_given| *is_given).count();
    if count != 1 {
        // Legal until KubeVirt 1.9; releases before it give the guest no such interface.
        let message = format!(
            "logical {} interface must have exactly one binding method or binding plugin",
            interface.name
        );
        review.push(
            FieldError::new(path, Rule::Invalid, message)
                .fix("masquerade: {} on the pod network, bridge: {} elsewhere")
                .beyond(Bound::Release),
        );
    }
}

/// `state`: an interface that is `absent` is one that the guest does not get.
fn check_state(
    path: &str,
    interface: &WireInterface,
    joined: Option<&Joined>,
    review: &mut Review<'_>,
) {
    let WireInterface { name, state, .. } = interface;
    let field = format!("{path}.state");
    match state.as_str() {
        "" | "up" | "down" => {}
        ABSENT => {
            let mut refuse = |why: &str| {
                let message = format!("{name:?} interface's state {state:?} is {why}");
                review.invalid(&field, state, message);
            };
            if interface.bridge.is_none() {
                refuse("supported only for bridge binding");
            }
            if matches!(joined, Some(Joined::Pod(_))) {
                refuse("not supported on default networks");
            }
        }
        _ => {
            let message = format!("logical {name} interface state value is unsupported: {state}");
            review.invalid(&field, state, message);
        }
    }
}

fn check_model(path: &str, interface: &WireInterface, review: &mut Review<'_>) {
    let field = format!("{path}.model");
    if !MODELS.contains(&interface.model.as_str()) {
        let message = format!(
            "interface {path}.name uses model {} that is not supported.",
            interface.model
        );
        let error = FieldError::new(field, Rule::NotSupported, message);
        review.push(error.value(&interface.model).beyond(Bound::Api));
    } else if interface.model != "virtio" {
        review.substitute(field, &interface.model, "model", "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::MacAddress;

    fn queues(interfaces: u8, vcpus: u32) -> Vec<u32> {
        let interface = |index| Interface {
            name: Name(format!("net{index}")),
            mac: MacAddress([2, 0, 0, 0, 0, index]),
            pci_address: None,
            attachment: Attachment::Network(NetworkName("lan".to_owned())),
            queues: 1,
            link_down: false,
            tag: String::new(),
            acpi_index: None,
        };
        let mut all: Vec<Interface> = (0..interfaces).map(interface).collect();
        share_queues(&mut all, vcpus);
        all.iter().map(|interface| interface.queues).collect()
    }

    #[test]
    fn queues_follow_vcpus_within_bounds() {
        assert_eq!(queues(1, 1), [1]);
        assert_eq!(queues(2, 4), [4, 4]);
        assert_eq!(queues(1, 64), [8]);
        assert_eq!(queues(4, 64), [6; 4]);
        assert_eq!(queues(29, 64), [1; 29]);
        assert!(queues(0, 4).is_empty());
    }
}
