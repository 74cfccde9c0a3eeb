//! The guest of this process.

use std::sync::Arc;

use proto_vmm::v1;
use vmm_devices::virtio::vsock::VsockControl;
use vmm_machine::{MachineHandle, Placement};

/// The guest of this process, once it is configured.
pub struct Guest {
    /// Uid of the VMI.
    pub vmi_uid: String,
    /// Counts the VMMs of this uid.
    pub incarnation: u64,
    /// The configuration as it came, to know it again.
    pub encoded: Vec<u8>,
    /// The machine.
    pub handle: MachineHandle,
    pub placement: Placement,
    /// Of its socket device.
    pub vsock: Option<Arc<VsockControl>>,
    pub is_built: bool,
    /// How it ended, once it has.
    pub exit: Option<v1::ExitRecord>,
}
