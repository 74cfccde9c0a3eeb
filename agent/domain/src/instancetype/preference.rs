//! Applying a preference: it fills in what neither the machine nor its instance type says.

use serde_json::{Value, json};

use super::tree::{Tree, text};

const DEVICES: [&str; 2] = ["domain", "devices"];

/// Preferred devices, and the fields of a machine that they fill in.
const ATTACHED: [(&str, &str); 5] = [
    (
        "preferredAutoattachGraphicsDevice",
        "autoattachGraphicsDevice",
    ),
    ("preferredAutoattachMemBalloon", "autoattachMemBalloon"),
    ("preferredAutoattachPodInterface", "autoattachPodInterface"),
    (
        "preferredAutoattachSerialConsole",
        "autoattachSerialConsole",
    ),
    ("preferredAutoattachInputDevice", "autoattachInputDevice"),
];
const FILLED: [(&str, &str); 5] = [
    ("preferredUseVirtioTransitional", "useVirtioTransitional"),
    ("preferredBlockMultiQueue", "blockMultiQueue"),
    (
        "preferredNetworkInterfaceMultiQueue",
        "networkInterfaceMultiqueue",
    ),
    ("preferredRng", "rng"),
    ("preferredTPM", "tpm"),
];
const FEATURES: [(&str, &str); 4] = [
    ("preferredApic", "apic"),
    ("preferredKvm", "kvm"),
    ("preferredPvspinlock", "pvspinlock"),
    ("preferredSmm", "smm"),
];

/// Whether devices are attached by themselves, which is decided before there are any.
pub(super) fn attach(preference: &Value, made: &mut Value) {
    let spec = made.made(&["spec"]);
    for (preferred, field) in ATTACHED {
        spec.fill(&DEVICES, field, preference.found(&["devices", preferred]));
    }
}

/// Applies a preference to `{metadata, spec}`.
pub(super) fn apply(preference: &Value, made: &mut Value) {
    let spec = made.made(&["spec"]);
    cpu_features(preference, spec);
    if preference.found(&["devices"]).is_some() {
        devices(preference, spec);
    }
    if preference.found(&["features"]).is_some() {
        features(preference, spec);
    }
    if preference.found(&["firmware"]).is_some() {
        firmware(preference, spec);
    }
    let machine = preference.found(&["machine", "preferredMachineType"]);
    spec.fill(&["domain", "machine"], "type", machine);
    clock(preference, spec);
    for (preferred, field) in [
        ("preferredSubdomain", "subdomain"),
        (
            "preferredTerminationGracePeriodSeconds",
            "terminationGracePeriodSeconds",
        ),
        ("preferredArchitecture", "architecture"),
    ] {
        spec.fill(&[], field, preference.found(&[preferred]));
    }
    let security = preference.found(&["preferredLaunchSecurity"]);
    spec.fill(&["domain"], "launchSecurity", security);
    let annotations = preference
        .found(&["annotations"])
        .and_then(Value::as_object);
    for (key, value) in annotations.into_iter().flatten() {
        made.fill(&["metadata", "annotations"], key, Some(value));
    }
}

fn cpu_features(preference: &Value, spec: &mut Value) {
    let preferred = preference.found(&["cpu", "preferredCPUFeatures"]);
    let Some(preferred) = preferred.and_then(Value::as_array) else {
        return;
    };
    let present = spec.made(&["domain", "cpu"]).made_list("features");
    for feature in preferred {
        let is_there = |known: &Value| known.get("name") == feature.get("name");
        if !present.iter().any(is_there) {
            present.push(feature.clone());
        }
    }
}

fn devices(preference: &Value, spec: &mut Value) {
    let preferred = |name: &str| preference.found(&["devices", name]);
    for (name, field) in FILLED {
        spec.fill(&DEVICES, field, preferred(name));
    }
    // These two KubeVirt cannot tell from what a machine says: the preference takes its place.
    if let Some(disable) = preferred("preferredDisableHotplug") {
        spec.set(&DEVICES, "disableHotplug", disable.clone());
    }
    if spec.found(&["domain", "devices", "sound"]).is_some() {
        let sound = ["domain", "devices", "sound"];
        spec.fill(&sound, "model", preferred("preferredSoundModel"));
    }
    let video = ["domain", "devices", "video"];
    spec.fill(&video, "type", preferred("preferredVideoType"));
    let is_on_pod_network = pod_networks(spec);
    let devices = spec.made(&DEVICES);
    disks(preference, devices);
    if let Some(interfaces) = devices.get_mut("interfaces").and_then(Value::as_array_mut) {
        for interface in interfaces {
            interface.fill(&[], "model", preferred("preferredInterfaceModel"));
            if is_on_pod_network.contains(&interface["name"]) && !has_binding(interface) {
                interface.fill(&[], "masquerade", preferred("preferredInterfaceMasquerade"));
            }
        }
    }
    if let Some(inputs) = devices.get_mut("inputs").and_then(Value::as_array_mut) {
        for input in inputs {
            input.fill(&[], "bus", preferred("preferredInputBus"));
            input.fill(&[], "type", preferred("preferredInputType"));
        }
    }
    if let Some(model) = preferred("preferredPanicDeviceModel") {
        let panics = devices.made_list("panicDevices");
        if panics.is_empty() {
            panics.push(json!({}));
        }
        for device in panics {
            device.fill(&[], "model", Some(model));
        }
    }
}

/// Names of the networks that are the pod's.
fn pod_networks(spec: &Value) -> Vec<Value> {
    let networks = spec.found(&["networks"]).and_then(Value::as_array);
    let networks = networks.into_iter().flatten();
    let of_pod = networks.filter(|network| network.found(&["pod"]).is_some());
    of_pod
        .filter_map(|network| network.get("name").cloned())
        .collect()
}

fn has_binding(interface: &Value) -> bool {
    const BINDINGS: [&str; 8] = [
        "bridge",
        "masquerade",
        "sriov",
        "passtBinding",
        "binding",
        "slirp",
        "macvtap",
        "passt",
    ];
    BINDINGS
        .iter()
        .any(|name| interface.found(&[name]).is_some())
}

fn disks(preference: &Value, devices: &mut Value) {
    let preferred = |name: &str| preference.found(&["devices", name]);
    let Some(disks) = devices.get_mut("disks").and_then(Value::as_array_mut) else {
        return;
    };
    for disk in disks {
        let is = |name: &str| disk.found(&[name]).is_some();
        if is("cdrom") && !is("disk") {
            disk.fill(&["cdrom"], "bus", preferred("preferredCdromBus"));
        } else if is("lun") && !is("disk") {
            disk.fill(&["lun"], "bus", preferred("preferredLunBus"));
        } else {
            disk.made(&["disk"]);
            disk.fill(&["disk"], "bus", preferred("preferredDiskBus"));
            disk.fill(&[], "blockSize", preferred("preferredDiskBlockSize"));
            disk.fill(&[], "cache", preferred("preferredDiskCache"));
            disk.fill(&[], "io", preferred("preferredDiskIO"));
            if text(disk.found(&["disk", "bus"])) == "virtio" {
                let thread = preferred("preferredDiskDedicatedIoThread");
                disk.fill(&[], "dedicatedIOThread", thread);
            }
        }
    }
}

fn features(preference: &Value, spec: &mut Value) {
    let preferred = |name: &str| preference.found(&["features", name]);
    let path = ["domain", "features"];
    spec.made(&path);
    if let Some(acpi) = preferred("preferredAcpi") {
        spec.set(&path, "acpi", acpi.clone());
    }
    for (name, field) in FEATURES {
        spec.fill(&path, field, preferred(name));
    }
    if let Some(hyperv) = preferred("preferredHyperv").and_then(Value::as_object) {
        let path = ["domain", "features", "hyperv"];
        spec.made(&path);
        for (name, feature) in hyperv {
            spec.fill(&path, name, Some(feature));
        }
    }
}

fn firmware(preference: &Value, spec: &mut Value) {
    let preferred = |name: &str| preference.found(&["firmware", name]);
    let is_preferred = |name: &str| preferred(name) == Some(&Value::Bool(true));
    let bootloader = spec.made(&["domain", "firmware", "bootloader"]);
    let is_open = |it: &Value| it.found(&["bios"]).is_none() && it.found(&["efi"]).is_none();
    if is_preferred("preferredUseBios") && is_open(&*bootloader) {
        bootloader.set(&[], "bios", json!({}));
    }
    if bootloader.found(&["bios"]).is_some() {
        bootloader.fill(&["bios"], "useSerial", preferred("preferredUseBiosSerial"));
    }
    if let (true, Some(efi)) = (is_open(&*bootloader), preferred("preferredEfi")) {
        bootloader.set(&[], "efi", efi.clone());
        return;
    }
    if is_preferred("preferredUseEfi") && is_open(&*bootloader) {
        bootloader.set(&[], "efi", json!({}));
    }
    if bootloader.found(&["efi"]).is_some() {
        let secure = preferred("preferredUseSecureBoot");
        bootloader.fill(&["efi"], "secureBoot", secure);
    }
}

fn clock(preference: &Value, spec: &mut Value) {
    let path = ["domain", "clock"];
    let is_open = spec.found(&["domain", "clock", "utc"]).is_none()
        && spec.found(&["domain", "clock", "timezone"]).is_none();
    let offset = preference.found(&["clock", "preferredClockOffset"]);
    if let Some(offset) = offset.filter(|_| is_open) {
        for name in ["utc", "timezone"] {
            spec.fill(&path, name, offset.found(&[name]));
        }
    }
    spec.fill(
        &path,
        "timer",
        preference.found(&["clock", "preferredTimer"]),
    );
}
