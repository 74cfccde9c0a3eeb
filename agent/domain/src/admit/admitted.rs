//! What admission answers.

use proto_node::vmi::VirtualMachineInstance;

use crate::vmi::Vmi;

/// An admitted VMI and what its user should know.
#[derive(Clone, Debug, PartialEq)]
pub struct Admitted {
    /// The value.
    pub vmi: Vmi,
    /// The object with every default filled in, as it is to be stored and shown. Admitting it again
    /// gives the same.
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
