//! The address of the pod network, where KubeVirt shows a guest's addresses.

use std::net::IpAddr;

use agent_domain::{PodBinding, Vmi};
use agent_plan::{Phase, Record};
use proto_node::vmi::VirtualMachineInstanceStatus;

/// Shows the guest's addresses of the pod network: others reach it there, whatever it says of itself.
pub(super) fn add(status: &mut VirtualMachineInstanceStatus, vmi: &Vmi, record: &Record) {
    let is_used = record.phase() >= Phase::Scheduled;
    let Some(address) = record.allocations.pod.filter(|_| is_used) else {
        return;
    };
    let Some((index, attachment)) = vmi.pod_interface() else {
        return;
    };
    if let Some(interface) = status.interfaces.get_mut(index) {
        let v4 = Some(IpAddr::V4(address.v4));
        // One that is bridged is served by IPv4 alone.
        let v6 = address
            .v6
            .filter(|_| attachment.binding == PodBinding::Masquerade);
        let all = v4.into_iter().chain(v6.map(IpAddr::V6));
        "eth0".clone_into(&mut interface.pod_interface_name);
        interface.ip_addresses = all.map(|address| address.to_string()).collect();
        interface.ip_address = address.v4.to_string();
    }
}
