//! What a guest told of itself, where KubeVirt shows it.

use agent_plan::{GuestInterface, GuestOs, GuestTold};
use proto_node::vmi::{GuestOsInfo, InterfaceStatus, VirtualMachineInstanceStatus};

/// KubeVirt's word for where something is known from.
const SOURCE: &str = "guest-agent";

/// Adds what the guest told to what the spec says.
pub(super) fn tell(status: &mut VirtualMachineInstanceStatus, guest: &GuestTold) {
    status.guest_os_info = guest.os.as_ref().map(os);
    for told in &guest.interfaces {
        // The first of that address: what is built upon an interface in the guest, such as a VLAN, shares it.
        let is_meant = |known: &&mut InterfaceStatus| {
            !told.mac.is_empty() && known.mac == told.mac && known.interface_name.is_empty()
        };
        let known = status.interfaces.iter_mut().find(is_meant);
        if let Some(known) = known {
            fill(known, told);
            known.info_source = format!("{}, {SOURCE}", known.info_source);
        } else {
            let mut own = InterfaceStatus {
                mac: told.mac.clone(),
                info_source: SOURCE.to_owned(),
                ..InterfaceStatus::default()
            };
            fill(&mut own, told);
            status.interfaces.push(own);
        }
    }
}

fn fill(status: &mut InterfaceStatus, told: &GuestInterface) {
    status.interface_name.clone_from(&told.name);
    status.ip_addresses = told.addresses.iter().map(ToString::to_string).collect();
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
    use super::*;

    #[test]
    fn a_guest_fills_in_what_is_known_of_its_interfaces_and_adds_its_own() {
        let mut status = VirtualMachineInstanceStatus {
            interfaces: vec![InterfaceStatus {
                name: String::from("default"),
                mac: String::from("02:00:00:00:00:01"),
                info_source: String::from("domain"),
                ..InterfaceStatus::default()
            }],
            ..VirtualMachineInstanceStatus::default()
        };
        let told = |name: &str, mac: &str, address: &str| GuestInterface {
            name: name.to_owned(),
            mac: mac.to_owned(),
            addresses: address.parse().into_iter().collect(),
        };
        let guest = GuestTold {
            answers: true,
            os: Some(GuestOs {
                id: String::from("debian"),
                ..GuestOs::default()
            }),
            interfaces: vec![
                told("docker0", "02:00:00:00:00:09", "172.17.0.1"),
                told("enp1s0", "02:00:00:00:00:01", "10.77.0.2"),
                told("tun0", "", "10.8.0.1"),
                told("enp1s0.5", "02:00:00:00:00:01", "10.5.0.2"),
            ],
        };
        tell(&mut status, &guest);
        let line = |it: &InterfaceStatus| {
            format!(
                "{} {} {} {}",
                it.name, it.interface_name, it.ip_address, it.info_source
            )
        };
        let lines: Vec<String> = status.interfaces.iter().map(line).collect();
        assert_eq!(
            lines,
            [
                "default enp1s0 10.77.0.2 domain, guest-agent",
                " docker0 172.17.0.1 guest-agent",
                " tun0 10.8.0.1 guest-agent",
                " enp1s0.5 10.5.0.2 guest-agent",
            ]
        );
        assert_eq!(status.guest_os_info.unwrap_or_default().id, "debian");
    }
}
