//! Addresses of socket devices: each is one VMI's alone for as long as its record is kept.

use std::collections::BTreeSet;

use agent_plan::Allocations;
use proto_node::vmi::VirtualMachineInstance;

/// 0 to 2 are the hypervisor, the machine itself and the host; the highest means anybody.
const FIRST: u32 = 3;
const LAST: u32 = u32::MAX - 1;

/// Whether an object asks for a socket device.
pub(crate) fn is_asked_for(object: &VirtualMachineInstance) -> bool {
    let spec = object.spec.as_ref();
    let domain = spec.and_then(|spec| spec.domain.as_ref());
    let devices = domain.and_then(|domain| domain.devices.as_ref());
    devices.is_some_and(|devices| devices.autoattach_vsock.unwrap_or(false))
}

/// The lowest address that no VMI has.
pub(crate) fn free_cid(allocations: &[Allocations]) -> Option<u32> {
    let taken: BTreeSet<u32> = allocations
        .iter()
        .filter_map(|allocations| allocations.vsock_cid)
        .collect();
    (FIRST..=LAST).find(|cid| !taken.contains(cid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(vsock_cid: Option<u32>) -> Allocations {
        Allocations {
            vsock_cid,
            ..Allocations::default()
        }
    }

    #[test]
    fn an_address_is_nobody_elses_and_is_given_again_when_it_is_free() {
        assert_eq!(free_cid(&[]), Some(3));
        let taken = [with(Some(3)), with(None), with(Some(5))];
        assert_eq!(free_cid(&taken), Some(4));
        let taken = [with(Some(4)), with(Some(5))];
        assert_eq!(free_cid(&taken), Some(3));
    }
}
