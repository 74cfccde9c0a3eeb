//! Defaults of single devices.

use proto_node::vmi::Devices;

/// KubeVirt's default of a watchdog's `action`.
const WATCHDOG_ACTION: &str = "reset";
/// What libvirt gives where no model of a panic device is named.
const PANIC_MODEL: &str = "isa";

pub(super) fn fill(devices: &mut Devices) {
    let watchdog = devices.watchdog.as_mut();
    if let Some(model) = watchdog.and_then(|watchdog| watchdog.i6300esb.as_mut())
        && model.action.is_empty()
    {
        WATCHDOG_ACTION.clone_into(&mut model.action);
    }
    for device in &mut devices.panic_devices {
        if device.model.is_empty() {
            PANIC_MODEL.clone_into(&mut device.model);
        }
    }
}
