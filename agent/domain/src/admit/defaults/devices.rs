//! Defaults of single devices.

use proto_node::vmi::Devices;

use super::text::fill_text;

/// KubeVirt's default of a watchdog's `action`.
const WATCHDOG_ACTION: &str = "reset";
/// What libvirt gives where no model of a panic device is named.
const PANIC_MODEL: &str = "isa";

pub(super) fn fill(devices: &mut Devices) {
    let watchdog = devices.watchdog.as_mut();
    if let Some(model) = watchdog.and_then(|watchdog| watchdog.i6300esb.as_mut()) {
        fill_text(&mut model.action, WATCHDOG_ACTION);
    }
    for device in &mut devices.panic_devices {
        fill_text(&mut device.model, PANIC_MODEL);
    }
}
