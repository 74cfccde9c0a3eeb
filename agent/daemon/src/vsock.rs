//! Addresses of socket devices: each is one VMI's alone for as long as its record is kept.

use std::collections::BTreeSet;

use agent_plan::Record;
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

/// The lowest address that no record has.
pub(crate) fn free_cid(records: &[Record]) -> Option<u32> {
    let taken: BTreeSet<u32> = records
        .iter()
        .filter_map(|record| record.vsock_cid)
        .collect();
    (FIRST..=LAST).find(|cid| !taken.contains(cid))
}

#[cfg(test)]
mod tests {
    use agent_plan::{Timestamp, VmiId};

    use super::*;

    fn record(cid: Option<u32>) -> Record {
        let id = VmiId {
            uid: "a".to_owned(),
            namespace: "default".to_owned(),
            name: "a".to_owned(),
        };
        Record {
            vsock_cid: cid,
            ..Record::new(id, Timestamp(0))
        }
    }

    #[test]
    fn an_address_is_nobody_elses_and_is_given_again_when_it_is_free() {
        assert_eq!(free_cid(&[]), Some(3));
        let records = [record(Some(3)), record(None), record(Some(5))];
        assert_eq!(free_cid(&records), Some(4));
        let records = [record(Some(4)), record(Some(5))];
        assert_eq!(free_cid(&records), Some(3));
    }
}
