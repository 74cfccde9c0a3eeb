//! Admission: from what somebody wrote to a value that is safe to act on.

use proto_node::vmi::VirtualMachineInstance;

use crate::Vmi;

/// An admitted VMI and what its owner should know.
#[derive(Clone, Debug, PartialEq)]
pub struct Admitted {
    /// The value.
    pub vmi: Vmi,
    /// The object with every default filled in, as it is to be stored and shown.
    pub object: VirtualMachineInstance,
    /// Advice to whoever applies, one sentence each.
    pub warnings: Vec<String>,
    /// Fields that were accepted and have no effect: path and reason.
    pub ignored: Vec<Remark>,
    /// Devices that are provided as virtio instead of what was asked: path and sentence. Not empty:
    /// the condition `DevicesSubstituted` is true.
    pub substituted: Vec<Remark>,
}

/// Something to say about a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The field, such as `spec.domain.devices.disks[0].disk.bus`.
    pub path: String,
    /// One sentence.
    pub message: String,
}
