//! What a guest reported of itself, where KubeVirt shows it.

use agent_domain::{PodBinding, Vmi};
use agent_plan::{GuestAgentReport, GuestInterface, GuestOs};
use proto_node::vmi::{GuestOsInfo, InterfaceStatus, VirtualMachineInstanceStatus};

/// KubeVirt's words for where an interface is known from.
const SPEC: &str = "domain";
const AGENT: &str = "guest-agent";
const SPEC_AND_AGENT: &str = "domain, guest-agent";

/// Adds what the guest reported to what the node knows.
///
/// As under KubeVirt, the addresses of an interface with `masquerade` are those of the pod network alone. Those of a bridged one
/// are followed by what the guest says, so that `ipAddress` stays the one that the node gave it.
pub(super) fn add(status: &mut VirtualMachineInstanceStatus, vmi: &Vmi, guest: &GuestAgentReport) {
    status.guest_os_info = guest.os.as_ref().map(os);
    for reported in &guest.interfaces {
        // The first of that address: what is built upon an interface in the guest, such as a VLAN, shares it.
        let is_meant = |known: &&mut InterfaceStatus| {
            !reported.mac.is_empty() && known.mac == reported.mac && known.interface_name.is_empty()
        };
        let known = status.interfaces.iter_mut().find(is_meant);
        if let Some(known) = known {
            if !is_masqueraded(vmi, &known.name) {
                add_addresses(known, reported);
            }
            known.interface_name.clone_from(&reported.name);
            known.info_source = known.info_source.replacen(SPEC, SPEC_AND_AGENT, 1);
        } else {
            let mut own = InterfaceStatus {
                mac: reported.mac.clone(),
                interface_name: reported.name.clone(),
                info_source: AGENT.to_owned(),
                ..InterfaceStatus::default()
            };
            add_addresses(&mut own, reported);
            status.interfaces.push(own);
        }
    }
}

fn is_masqueraded(vmi: &Vmi, name: &str) -> bool {
    vmi.pod_interface().is_some_and(|(index, pod)| {
        let interface = vmi.interfaces.get(index);
        pod.binding == PodBinding::Masquerade
            && interface.is_some_and(|interface| interface.name.as_str() == name)
    })
}

fn add_addresses(status: &mut InterfaceStatus, reported: &GuestInterface) {
    for address in reported.addresses.iter().map(ToString::to_string) {
        if !status.ip_addresses.contains(&address) {
            status.ip_addresses.push(address);
        }
    }
    status.ip_address = status.ip_addresses.first().cloned().unwrap_or_default();
}

/// The operating system, as the guest says.
pub(crate) fn os(os: &GuestOs) -> GuestOsInfo {
    let os = os.clone();
    GuestOsInfo {
        id: os.id,
        name: os.name,
        pretty_name: os.pretty_name,
        version: os.version,
        version_id: os.version_id,
        kernel_release: os.kernel_release,
        kernel_version: os.kernel_version,
        machine: os.machine,
    }
}

#[cfg(test)]
mod tests {
    use agent_plan::{Phase, PhaseEntry, PodAddress, Record, Timestamp, VmiId};
    use proto_node::from_json;
    use serde_json::json;

    use super::*;
    use crate::status::project;

    const POOL: PodAddress = PodAddress {
        v4: std::net::Ipv4Addr::new(10, 213, 0, 7),
        v6: Some(std::net::Ipv6Addr::new(0xfd00, 1, 2, 3, 0, 0, 0, 7)),
    };

    /// A guest with a NIC on the pod network and one on a bridge of the configuration.
    fn vmi(binding: &str) -> Vmi {
        let manifest = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u-1"},
            "spec": {
                "domain": {
                    "firmware": {"kernelBoot": {"container": {"image": "dir:/x", "kernelPath": "/k"}}},
                    "memory": {"guest": "64Mi"},
                    "devices": {"interfaces": [
                        {"name": "default", binding: {}, "macAddress": "02:00:00:00:00:01"},
                        {"name": "lan", "bridge": {}, "macAddress": "02:00:00:00:00:02"},
                    ]},
                },
                "networks": [
                    {"name": "default", "pod": {}},
                    {"name": "lan", "multus": {"networkName": "lan"}},
                ],
            },
        });
        Vmi::restore(from_json(manifest).unwrap()).unwrap().vmi
    }

    fn interface(name: &str, mac: &str, addresses: &[&str]) -> GuestInterface {
        GuestInterface {
            name: name.to_owned(),
            mac: mac.to_owned(),
            addresses: addresses.iter().flat_map(|text| text.parse()).collect(),
        }
    }

    /// Of a guest that runs, with an address of the pod network.
    fn running() -> Record {
        let id = VmiId {
            uid: String::from("u-1"),
            namespace: String::from("default"),
            name: String::from("web"),
        };
        let mut record = Record::new(id, Timestamp(0));
        for phase in [Phase::Scheduling, Phase::Scheduled, Phase::Running] {
            let at = Timestamp(0);
            record.report.phases.push(PhaseEntry { phase, at });
        }
        record.allocations.pod = Some(POOL);
        record
    }

    /// The status's interfaces as lines, of a guest that runs and has reported this.
    fn shown(binding: &str, interfaces: Vec<GuestInterface>) -> Vec<String> {
        let mut record = running();
        record.report.links_down = Some([String::from("lan")].into());
        let seen = ["10.77.0.2", "fd00:77::2"].map(|text| text.parse().unwrap());
        record.report.seen = [String::from("default"), String::from("lan")]
            .map(|name| (name, seen.to_vec()))
            .into();
        record.report.guest = Some(GuestAgentReport {
            answers: true,
            os: None,
            interfaces,
        });
        let status = project(
            VirtualMachineInstanceStatus::default(),
            &record,
            Some(&vmi(binding)),
            "node1",
        );
        let line = |it: &InterfaceStatus| {
            let names = [&it.name, &it.interface_name, &it.pod_interface_name];
            let names = names.map(|name| if name.is_empty() { "-" } else { name });
            assert_eq!(
                it.ip_address,
                it.ip_addresses.first().cloned().unwrap_or_default()
            );
            let addresses = it.ip_addresses.join(",");
            let (queues, link) = (it.queue_count, &it.link_state);
            format!(
                "{} {addresses} {queues} {link} ({})",
                names.join(" "),
                it.info_source
            )
        };
        status.interfaces.iter().map(line).collect()
    }

    #[test]
    fn a_masqueraded_guest_is_shown_where_others_reach_it() {
        let guest = vec![
            interface("docker0", "02:00:00:00:00:09", &["172.17.0.1"]),
            interface("enp1s0", "02:00:00:00:00:01", &["10.0.2.2", "fd10:0:2::2"]),
            interface("enp2s0", "02:00:00:00:00:02", &["10.77.0.2"]),
            interface("tun0", "", &["10.8.0.1"]),
            interface("enp1s0.5", "02:00:00:00:00:01", &["10.5.0.2"]),
        ];
        assert_eq!(
            shown("masquerade", guest),
            [
                "default enp1s0 eth0 10.213.0.7,fd00:1:2:3::7 1 up (domain, guest-agent)",
                "lan enp2s0 - 10.77.0.2 1 down (domain, guest-agent, multus-status)",
                "- docker0 - 172.17.0.1 0  (guest-agent)",
                "- tun0 - 10.8.0.1 0  (guest-agent)",
                "- enp1s0.5 - 10.5.0.2 0  (guest-agent)",
            ]
        );
    }

    #[test]
    fn the_interface_of_the_pod_network_comes_first_wherever_it_stands() {
        let mut vmi = vmi("masquerade");
        vmi.interfaces.reverse();
        let before = VirtualMachineInstanceStatus::default();
        let status = project(before, &running(), Some(&vmi), "node1");
        let names = status.interfaces.iter();
        let names: Vec<_> = names.map(|it| (&*it.name, &*it.ip_address)).collect();
        assert_eq!(names, [("default", "10.213.0.7"), ("lan", "")]);
    }

    #[test]
    fn a_bridged_guest_keeps_its_own_addresses_behind_that_of_the_pool() {
        let addresses = ["10.213.0.7", "10.9.9.9", "fe80::1"];
        let guest = vec![interface("enp1s0", "02:00:00:00:00:01", &addresses)];
        assert_eq!(
            shown("bridge", guest),
            [
                "default enp1s0 eth0 10.213.0.7,10.9.9.9,fe80::1 1 up (domain, guest-agent)",
                "lan - - 10.77.0.2,fd00:77::2 1 down (domain, multus-status, neighbour-table)",
            ]
        );
        assert_eq!(
            shown("bridge", Vec::new()).first().map(String::as_str),
            Some("default - eth0 10.213.0.7 1 up (domain)")
        );
    }
}
