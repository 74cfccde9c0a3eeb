//! How a guest starts and ends; watchdog and panic devices.

use std::collections::BTreeSet;
use std::time::Duration;

use proto_node::vmi::{Devices, VirtualMachineInstanceSpec};

use super::defaults::GRACE_SECONDS;
use super::review::Review;
use crate::error::{Bound, FieldError, Rule};
use crate::vmi::{PanicDevices, WatchdogAction};

const WATCHDOG: &str = "spec.domain.devices.watchdog";

/// From the power button to the kill.
pub(super) fn grace_period(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) -> Duration {
    let seconds = spec
        .termination_grace_period_seconds
        .unwrap_or(GRACE_SECONDS);
    u64::try_from(seconds).map_or_else(
        |_| {
            review.unable(
                "spec.terminationGracePeriodSeconds",
                &seconds.to_string(),
                "must be greater than or equal to 0",
            );
            Duration::ZERO
        },
        Duration::from_secs,
    )
}

/// Whether the guest waits for an unpause before its first instruction. Unknown strategies were reported
/// already.
pub(super) fn start_paused(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) -> bool {
    let paused = spec.start_strategy == "Paused";
    if paused && spec.liveness_probe.is_some() {
        let error = FieldError::new(
            "spec.startStrategy",
            Rule::Invalid,
            "either spec.startStrategy or spec.livenessProbe should be provided.Pausing VMI with \
             LivenessProbe is not supported",
        );
        review.push(error.value(&spec.start_strategy));
    }
    paused
}

/// The watchdog's action. Unknown actions were reported already.
pub(super) fn watchdog(devices: &Devices, review: &mut Review<'_>) -> Option<WatchdogAction> {
    let watchdog = devices.watchdog.as_ref()?;
    let Some(model) = &watchdog.i6300esb else {
        review.push(
            FieldError::new(
                format!("{WATCHDOG}.i6300esb"),
                Rule::Required,
                "amd64 only supports I6300ESB watchdog device",
            )
            .fix("name its action: poweroff, reset or shutdown")
            .beyond(Bound::Release),
        );
        return None;
    };
    match model.action.as_str() {
        "poweroff" => Some(WatchdogAction::PowerOff),
        "reset" => Some(WatchdogAction::Reset),
        "shutdown" => Some(WatchdogAction::Shutdown),
        _ => None,
    }
}

/// The panic devices, one of each model at most. Unknown models were reported already.
pub(super) fn panic_devices(devices: &Devices, review: &mut Review<'_>) -> PanicDevices {
    let mut all = PanicDevices::default();
    let mut seen = BTreeSet::new();
    for (index, device) in devices.panic_devices.iter().enumerate() {
        match device.model.as_str() {
            "isa" => all.isa = true,
            "hyperv" => all.hyperv = true,
            // A PCI function, which `SingleDevice` has.
            "pvpanic" => {}
            _ => continue,
        }
        if !seen.insert(&device.model) {
            let path = format!("spec.domain.devices.panicDevices[{index}].model");
            let error = FieldError::new(path, Rule::Duplicate, "a guest has one of each model");
            review.push(error.value(&device.model).beyond(Bound::Release));
        }
    }
    all
}
