//! What KubeVirt demands of fields that this release refuses, or that have no effect: what is illegal there is illegal
//! everywhere.
//!
//! Fields and words of the errors are KubeVirt's, odd ones too.

use proto_node::vmi::{DomainSpec, Gpu, VirtualMachineInstanceSpec};

use super::purpose::ARCHITECTURE;
use super::review::Review;
use super::{claimed_devices, launch_security, scheduling, unserved_volumes, without_effect};
use crate::error::{Bound, FieldError, Rule};

/// Models of graphics cards on amd64.
const VIDEO_MODELS: [&str; 5] = ["vga", "cirrus", "virtio", "ramfb", "bochs"];

/// Judges what is new; what runs is left alone. Disks and volumes are as they were written.
pub(super) fn check(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) {
    if !review.is_new() {
        return;
    }
    without_effect::check(spec, review);
    scheduling::check(spec, review);
    unserved_volumes::check(spec, review);
    claimed_devices::check(spec, review);
    launch_security::check(spec, review);
    let Some(domain) = &spec.domain else { return };
    realtime(domain, review);
    acpi_tables(spec, review);
    inputs(domain, review);
    sound(domain, review);
    virtual_gpus(domain, review);
    if ["", ARCHITECTURE].contains(&spec.architecture.as_str()) {
        video(domain, review);
        watchdogs(domain, review);
    }
    io_modes(domain, review);
}

/// The word stands in KubeVirt's comments and not in its admission.
fn io_modes(domain: &DomainSpec, review: &mut Review<'_>) {
    let disks = domain.devices.iter().flat_map(|devices| &devices.disks);
    for (index, disk) in disks.enumerate() {
        if disk.io == "default" {
            let message = "Disk IO mode for spec.domain.devices.disks is not supported. Supported modes are: native, threads.";
            let field = format!("spec.domain.devices.disks[{index}].io");
            let error = FieldError::new(field, Rule::NotSupported, message).value("default");
            review.push(error.fix("leave it out").beyond(Bound::Api));
        }
    }
}

/// That there is none was reported already.
fn watchdogs(domain: &DomainSpec, review: &mut Review<'_>) {
    let devices = domain.devices.as_ref();
    let watchdog = devices.and_then(|devices| devices.watchdog.as_ref());
    if watchdog.is_some_and(|dog| dog.diag288.is_some() && dog.i6300esb.is_some()) {
        let message = "amd64 only supports I6300ESB watchdog device";
        let field = "spec.domain.devices.watchdog";
        let error = FieldError::new(field, Rule::NotSupported, message);
        review.push(error.fix("leave diag288 out").beyond(Bound::Api));
    }
}

fn inputs(domain: &DomainSpec, review: &mut Review<'_>) {
    let inputs = domain.devices.iter().flat_map(|devices| &devices.inputs);
    for (index, input) in inputs.enumerate() {
        let path = format!("spec.domain.devices.inputs[{index}]");
        if !["", "usb", "virtio"].contains(&input.bus.as_str()) {
            let message = "Input device can have only virtio or usb bus.";
            review.invalid(&format!("{path}.bus"), &input.bus, message);
        }
        if !["", "tablet"].contains(&input.r#type.as_str()) {
            let message = "Input device can have only tablet type.";
            review.invalid(&format!("{path}.type"), &input.r#type, message);
        }
    }
}

fn sound(domain: &DomainSpec, review: &mut Review<'_>) {
    const FIELD: &str = "spec.Sound";
    let devices = domain.devices.as_ref();
    let Some(sound) = devices.and_then(|devices| devices.sound.as_ref()) else {
        return;
    };
    if !["", "ich9", "ac97"].contains(&sound.model.as_str()) {
        let message = "Sound device type is not supported. Options: 'ich9' or 'ac97'";
        review.invalid(FIELD, &sound.model, message);
    }
    if sound.name.as_deref() == Some("") {
        review.invalid(FIELD, "", "Sound device requires a name field.");
    }
}

fn video(domain: &DomainSpec, review: &mut Review<'_>) {
    let Some(devices) = &domain.devices else {
        return;
    };
    let Some(video) = &devices.video else { return };
    if !VIDEO_MODELS.contains(&video.r#type.as_str()) {
        let message = format!(
            "video model '{}' is not supported on amd64 architecture",
            video.r#type
        );
        let field = "spec.domain.devices.video.type";
        let error = FieldError::new(field, Rule::NotSupported, message);
        let models = VIDEO_MODELS.join(", ");
        let error = error.value(&video.r#type).fix(format!("models: {models}"));
        review.push(error.beyond(Bound::Api));
    }
    if devices.autoattach_graphics_device == Some(false) {
        let message =
            "Video configuration is not allowed when autoattachGraphicsDevice is set to false";
        review.push(FieldError::new("spec.video", Rule::Invalid, message));
    }
}

/// One virtual GPU at most shows the guest's screen while it boots.
fn virtual_gpus(domain: &DomainSpec, review: &mut Review<'_>) {
    let shows_boot = |gpu: &&Gpu| {
        let options = gpu.virtual_gpu_options.as_ref();
        let display = options.and_then(|options| options.display.as_ref());
        display.is_some_and(|display| {
            let ram_fb = display.ram_fb.as_ref().and_then(|state| state.enabled);
            display.enabled.unwrap_or(true) && ram_fb.unwrap_or(true)
        })
    };
    let gpus = domain.devices.iter().flat_map(|devices| &devices.gpus);
    if gpus.filter(shows_boot).count() > 1 {
        let message = "configuring multiple displays with ramfb is not valid ";
        review.push(FieldError::new("spec.GPUs", Rule::Invalid, message));
    }
}

fn realtime(domain: &DomainSpec, review: &mut Review<'_>) {
    const REALTIME: &str = "spec.domain.cpu.realtime";
    const DEDICATED: &str = "spec.domain.cpu.dedicatedCpuPlacement";
    const NUMA: &str = "spec.domain.cpu.numa.guestMappingPassthrough";
    let Some(cpu) = domain.cpu.as_ref().filter(|cpu| cpu.realtime.is_some()) else {
        return;
    };
    if !cpu.dedicated_cpu_placement {
        let message = format!("{DEDICATED} must be set to true when {REALTIME} is used");
        review.required(DEDICATED, message);
    }
    let numa = cpu.numa.as_ref();
    if numa.is_none_or(|numa| numa.guest_mapping_passthrough.is_none()) {
        let message = format!("{NUMA} must be defined when {REALTIME} is used");
        review.required(NUMA, message);
    }
}

fn acpi_tables(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) {
    const FIELD: &str = "spec.acpi";
    let firmware = spec.domain.as_ref().and_then(|it| it.firmware.as_ref());
    let Some(tables) = firmware.and_then(|firmware| firmware.acpi.as_ref()) else {
        return;
    };
    let names = [
        ("slicNameRef", &tables.slic_name_ref),
        ("msdmNameRef", &tables.msdm_name_ref),
    ];
    if names.iter().all(|(_, name)| name.is_empty()) {
        let message = "ACPI was set but no SLIC nor MSDM volume reference was set";
        review.push(FieldError::new(FIELD, Rule::Invalid, message));
    }
    for (member, name) in names.into_iter().filter(|(_, name)| !name.is_empty()) {
        let mut volumes = spec.volumes.iter();
        let message = match volumes.find(|volume| volume.name == *name) {
            Some(volume) if volume.secret.is_some() => continue,
            Some(_) => format!("{FIELD} refers to Volume of unsupported type."),
            None => format!("{FIELD} does not have a matching Volume."),
        };
        review.invalid(&format!("{FIELD}.{member}"), name, message);
    }
}
