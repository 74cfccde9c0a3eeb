//! The balloon of a machine: how it is made, and how it is asked while the machine runs.

use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
use vmm_devices::virtio::VirtioDevice;
use vmm_devices::virtio::balloon::{BalloonConfig, BalloonDevice};
use vmm_devices::{GuestRam, Payloads};

use crate::functions::error::DeviceErrorKind;
use crate::functions::handles::Handles;

/// Makes the machine's balloon: a new one, or that of the state.
pub(crate) fn make(
    config: &BalloonConfig,
    ram: &GuestRam,
    handles: &mut Handles<'_>,
    state: Option<&mut Payloads>,
) -> Result<Box<dyn VirtioDevice>, DeviceErrorKind> {
    let ram_bytes = ram.iter().map(GuestMemoryRegion::len).sum();
    let device = match state {
        None => BalloonDevice::new(config, ram_bytes)?,
        Some(payloads) => BalloonDevice::restored(config, ram_bytes, payloads)?,
    };
    match handles.balloon.replace(device.control()) {
        None => Ok(Box::new(device)),
        Some(_) => Err(DeviceErrorKind::SecondBalloon),
    }
}
