//! The families: name without `_total`, help, and where the figure is.

use agent_host::{DiskUsage, GuestMemory, InterfaceUsage, MachineUsage, NicUsage, Usage, VmmReply};

use crate::node_service::usage::figures::Guest;

/// A figure of a VMI.
pub(super) type OfGuest = (&'static str, &'static str, fn(&Guest) -> Option<f64>);
/// A figure of a disk.
pub(super) type OfDisk = (&'static str, &'static str, fn(&DiskUsage) -> f64);
/// A figure of a NIC.
pub(super) type OfNic = (&'static str, &'static str, fn(&NicUsage) -> f64);
/// A figure of an interface.
pub(super) type OfInterface = (&'static str, &'static str, fn(&InterfaceUsage) -> f64);

pub(super) const GUEST_COUNTERS: [OfGuest; 8] = [
    (
        "kubevirt_vmi_cpu_usage_seconds",
        "Total CPU time spent in all modes (sum of both vcpu and hypervisor usage).",
        |guest| {
            let process = usage(guest)?.process?;
            Some(seconds(process.user_ns + process.system_ns))
        },
    ),
    (
        "kubevirt_vmi_cpu_user_usage_seconds",
        "Total CPU time spent in user mode.",
        |guest| Some(seconds(usage(guest)?.process?.user_ns)),
    ),
    (
        "kubevirt_vmi_cpu_system_usage_seconds",
        "Total CPU time spent in system mode.",
        |guest| Some(seconds(usage(guest)?.process?.system_ns)),
    ),
    (
        "kubevirt_vmi_memory_pgmajfault",
        "The number of page faults when disk IO was required.",
        |guest| memory(guest)?.major_faults.map(number),
    ),
    (
        "kubevirt_vmi_memory_pgminfault",
        "The number of other page faults, when disk IO was not required.",
        |guest| memory(guest)?.minor_faults.map(number),
    ),
    (
        "kvmlet_vmi_resets",
        "Resets of the guest, by itself or on request.",
        |guest| machine(guest).map(|machine| number(machine.resets)),
    ),
    (
        "kvmlet_vmi_interrupt_route_failures",
        "How often the host refused to connect or disconnect an interrupt of a device.",
        |guest| machine(guest).map(|machine| number(machine.route_failures)),
    ),
    (
        "kvmlet_vmi_starts",
        "Starts of a VMM for this VMI, including failed ones.",
        |guest| Some(number(guest.record.launches.incarnation())),
    ),
];

pub(super) const GUEST_GAUGES: [OfGuest; 10] = [
    (
        "kubevirt_vmi_memory_resident_bytes",
        "Resident set size of the process running the domain.",
        |guest| Some(number(usage(guest)?.process?.resident_bytes)),
    ),
    (
        "kubevirt_vmi_memory_domain_bytes",
        "The amount of memory in bytes allocated to the domain.",
        |guest| Some(number(guest.vmi.memory_bytes)),
    ),
    (
        "kubevirt_vmi_memory_available_bytes",
        "Amount of usable memory as seen by the domain.",
        |guest| memory(guest)?.total_bytes.map(number),
    ),
    (
        "kubevirt_vmi_memory_unused_bytes",
        "The amount of memory left completely unused by the system.",
        |guest| memory(guest)?.free_bytes.map(number),
    ),
    (
        "kubevirt_vmi_memory_usable_bytes",
        "The amount of memory which can be reclaimed by balloon without pushing the guest system to swap.",
        |guest| memory(guest)?.available_bytes.map(number),
    ),
    (
        "kubevirt_vmi_memory_cached_bytes",
        "The amount of memory that is being used to cache I/O and is available to be reclaimed.",
        |guest| memory(guest)?.cache_bytes.map(number),
    ),
    (
        "kubevirt_vmi_memory_swap_in_traffic_bytes",
        "The total amount of data read from swap space of the guest in bytes.",
        |guest| memory(guest)?.swap_in_bytes.map(number),
    ),
    (
        "kubevirt_vmi_memory_swap_out_traffic_bytes",
        "The total amount of memory written out to swap space of the guest in bytes.",
        |guest| memory(guest)?.swap_out_bytes.map(number),
    ),
    (
        // libvirt's "actual": what is left to the guest, not what the balloon has.
        "kubevirt_vmi_memory_actual_balloon_bytes",
        "Current balloon size in bytes.",
        |guest| {
            let balloon = machine(guest)?.balloon_bytes?;
            Some(number(guest.vmi.memory_bytes.saturating_sub(balloon)))
        },
    ),
    (
        "kvmlet_vmm_answers",
        "Whether the VMM reported its figures in time; if not, only those of the kernel are there.",
        |guest| usage(guest).map(|usage| f64::from(u8::from(answer(usage).is_some()))),
    ),
];

pub(super) const DISK_COUNTERS: [OfDisk; 9] = [
    (
        "kubevirt_vmi_storage_iops_read",
        "Total number of I/O read operations.",
        |disk| number(disk.reads.requests),
    ),
    (
        "kubevirt_vmi_storage_iops_write",
        "Total number of I/O write operations.",
        |disk| number(disk.writes.requests),
    ),
    (
        "kubevirt_vmi_storage_read_traffic_bytes",
        "Total number of bytes read from storage.",
        |disk| number(disk.reads.bytes),
    ),
    (
        "kubevirt_vmi_storage_write_traffic_bytes",
        "Total number of written bytes.",
        |disk| number(disk.writes.bytes),
    ),
    (
        "kubevirt_vmi_storage_read_times_seconds",
        "Total time spent on read operations.",
        |disk| seconds(disk.reads.time_ns),
    ),
    (
        "kubevirt_vmi_storage_write_times_seconds",
        "Total time spent on write operations.",
        |disk| seconds(disk.writes.time_ns),
    ),
    (
        "kubevirt_vmi_storage_flush_requests",
        "Total storage flush requests.",
        |disk| number(disk.flushes.requests),
    ),
    (
        "kubevirt_vmi_storage_flush_times_seconds",
        "Total time spent on cache flushing.",
        |disk| seconds(disk.flushes.time_ns),
    ),
    (
        "kvmlet_vmi_storage_host_errors",
        "How often the host failed a request of the disk.",
        |disk| number(disk.host_errors),
    ),
];

pub(super) const INTERFACE_COUNTERS: [OfInterface; 8] = [
    (
        "kubevirt_vmi_network_receive_bytes",
        "Total network traffic received in bytes.",
        |nic| number(nic.receive.bytes),
    ),
    (
        "kubevirt_vmi_network_transmit_bytes",
        "Total network traffic transmitted in bytes.",
        |nic| number(nic.transmit.bytes),
    ),
    (
        "kubevirt_vmi_network_receive_packets",
        "Total network traffic received packets.",
        |nic| number(nic.receive.packets),
    ),
    (
        "kubevirt_vmi_network_transmit_packets",
        "Total network traffic transmitted packets.",
        |nic| number(nic.transmit.packets),
    ),
    (
        "kubevirt_vmi_network_receive_errors",
        "Total network received error packets.",
        |nic| number(nic.receive.errors),
    ),
    (
        "kubevirt_vmi_network_transmit_errors",
        "Total network transmitted error packets.",
        |nic| number(nic.transmit.errors),
    ),
    (
        "kubevirt_vmi_network_receive_packets_dropped",
        "The total number of rx packets dropped on vNIC interfaces.",
        |nic| number(nic.receive.dropped),
    ),
    (
        "kubevirt_vmi_network_transmit_packets_dropped",
        "The total number of tx packets dropped on vNIC interfaces.",
        |nic| number(nic.transmit.dropped),
    ),
];

pub(super) const NIC_COUNTERS: [OfNic; 3] = [
    (
        "kvmlet_vmi_network_card_receive_dropped",
        "Frames for the guest that its VMM lost between tap and guest.",
        |nic| number(nic.receive_dropped),
    ),
    (
        "kvmlet_vmi_network_card_transmit_dropped",
        "Frames of the guest that its VMM lost between guest and tap.",
        |nic| number(nic.transmit_dropped),
    ),
    (
        "kvmlet_vmi_network_tap_errors",
        "How often an interface's tap failed.",
        |nic| number(nic.tap_errors),
    ),
];

pub(super) fn usage(guest: &Guest) -> Option<&Usage> {
    guest.usage.as_ref()
}

fn answer(usage: &Usage) -> Option<&MachineUsage> {
    match &usage.vmm {
        VmmReply::Answer(machine) => Some(machine),
        VmmReply::Silent(_) => None,
    }
}

pub(super) fn machine(guest: &Guest) -> Option<&MachineUsage> {
    answer(usage(guest)?)
}

fn memory(guest: &Guest) -> Option<GuestMemory> {
    machine(guest)?.memory
}

pub(super) fn seconds(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
}

/// A count as Prometheus has it, exact up to 2^53.
#[allow(
    clippy::cast_precision_loss,
    reason = "every value of Prometheus is a double"
)]
pub(in crate::metrics) fn number(count: u64) -> f64 {
    count as f64
}
