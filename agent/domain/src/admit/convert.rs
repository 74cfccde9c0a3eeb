//! Conversion: what a VMI that breaks no rule is to a node.
//!
//! Every question was answered by the judges; here only what depends on several parts is put together.

use proto_node::vmi::{Devices, DomainSpec};

use super::about::About;
use super::boot::Booted;
use super::judge::JudgedVmi;
use super::network::share_queues;
use crate::single_device::SingleDevice;
use crate::vmi::{Boot, FirmwareBoot, RebootPolicy, Vmi};

/// Most queues of a virtio disk in this release.
const MAX_DISK_QUEUES: u32 = 64;
/// Longest DNS label.
const MAX_HOSTNAME_CHARS: usize = 63;

/// The value of a VMI that breaks no rule.
#[must_use]
pub fn convert_vmi(judged: JudgedVmi<'_>) -> Vmi {
    let JudgedVmi {
        about,
        spec,
        domain,
        devices,
        compute,
        booted,
        mut parts,
    } = judged;
    let vcpus = compute.cpus.count();
    if devices.network_interface_multiqueue.unwrap_or(false) {
        share_queues(&mut parts.interfaces, vcpus);
    }
    parts.identity.base_board = about.base_board.clone();
    Vmi {
        hostname: hostname(&spec.hostname, &about),
        uid: about.uid,
        namespace: about.namespace,
        name: about.name,
        instance_type: about.instance_type,
        without_walls: about.without_walls,
        generation: about.generation,
        cpus: compute.cpus,
        cpu: compute.cpu,
        clock: parts.clock,
        memory_bytes: compute.memory_bytes,
        memory: compute.memory,
        resources: compute.resources,
        boot: match booted {
            Booted::Kernel(kernel) => Boot::Kernel(kernel),
            Booted::By(bootloader) => Boot::Firmware(FirmwareBoot {
                bootloader,
                order: parts.boot_order,
            }),
        },
        identity: parts.identity,
        disks: parts.disks,
        interfaces: parts.interfaces,
        names: parts.names,
        access_credentials: parts.access_credentials,
        disk_queues: disk_queues(devices, vcpus),
        single_devices: SingleDevice::wanted(devices).collect(),
        watchdog: parts.watchdog,
        panic_devices: parts.panic,
        start_paused: parts.start_paused,
        probes: parts.probes,
        reboot_policy: reboot_policy(domain),
        termination_grace_period: parts.grace_period,
    }
}

/// What a guest is to call itself, as KubeVirt has it.
fn hostname(wanted: &str, about: &About) -> String {
    if !wanted.is_empty() {
        return wanted.to_owned();
    }
    let name = about.name.as_str();
    let label = name.split('.').next().unwrap_or(name);
    label.chars().take(MAX_HOSTNAME_CHARS).collect()
}

/// Queues of each disk: one, or one for each vCPU as far as there are so many.
fn disk_queues(devices: &Devices, vcpus: u32) -> u32 {
    if devices.block_multi_queue.unwrap_or(false) {
        vcpus.clamp(1, MAX_DISK_QUEUES)
    } else {
        1
    }
}

/// What the guest's reset does.
fn reboot_policy(domain: &DomainSpec) -> RebootPolicy {
    if domain.reboot_policy == "Terminate" {
        RebootPolicy::Terminate
    } else {
        RebootPolicy::Reboot
    }
}
