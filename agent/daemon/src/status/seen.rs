//! Addresses that the node has seen a guest with, where KubeVirt shows those that its agent reports.

use agent_domain::{Attachment, Vmi};
use agent_plan::Record;
use proto_node::vmi::VirtualMachineInstanceStatus;

/// Our word beside KubeVirt's for where an interface is known from.
const NEIGHBOURS: &str = "neighbour-table";

/// Shows them on interfaces of networks of the configuration whose addresses the guest's agent does not report: it knows better, as
/// the neighbour table keeps addresses that the guest no longer has.
pub(super) fn add(status: &mut VirtualMachineInstanceStatus, vmi: &Vmi, record: &Record) {
    // Interfaces that the spec does not have come after those that it has.
    for (interface, shown) in vmi.interfaces.iter().zip(&mut status.interfaces) {
        let seen = record.report.seen.get(interface.name.as_str());
        let Some(seen) = seen.filter(|seen| !seen.is_empty()) else {
            continue;
        };
        let is_of_network = matches!(interface.attachment, Attachment::Network(_));
        if is_of_network && shown.ip_addresses.is_empty() {
            shown.ip_addresses = seen.iter().map(ToString::to_string).collect();
            shown.ip_address = shown.ip_addresses.first().cloned().unwrap_or_default();
            shown.info_source = format!("{}, {NEIGHBOURS}", shown.info_source);
        }
    }
}
