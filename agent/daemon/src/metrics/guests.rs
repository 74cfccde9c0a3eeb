//! Figures of guests, under KubeVirt's names and labels where it has them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use agent_host::{
    DiskUsage, GuestMemory, InterfaceUsage, MachineUsage, Told, Usage, overhead_bytes,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::usage::{Figures, Guest};

/// Names and values of labels.
pub(super) type SampleLabels = Vec<(Cow<'static, str>, String)>;

/// One value of a family.
pub(super) struct Sample {
    pub(super) labels: SampleLabels,
    pub(super) value: f64,
}

impl Sample {
    /// One without labels.
    pub(super) fn plain(value: f64) -> Self {
        Self {
            labels: Vec::new(),
            value,
        }
    }
}

/// What a family counts.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Only ever more; the name has no `_total`, which is added.
    Counter,
    /// What is now.
    Gauge,
}

/// Writes a family. One without samples is left out.
pub(super) fn family(
    out: &mut DescriptorEncoder<'_>,
    kind: Kind,
    (name, help): (&str, &str),
    samples: impl IntoIterator<Item = Sample>,
) -> fmt::Result {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let described = match kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
    };
    let mut family = out.encode_descriptor(name, help, None, described)?;
    for sample in samples {
        let mut one = family.encode_family(&sample.labels)?;
        match kind {
            Kind::Counter => one.encode_counter::<NoLabelSet, f64, f64>(&sample.value, None)?,
            Kind::Gauge => one.encode_gauge(&sample.value)?,
        }
    }
    Ok(())
}

/// All VMIs at a scrape.
#[derive(Debug)]
pub(crate) struct GuestMetrics {
    /// As they were collected.
    pub(crate) figures: Arc<Figures>,
    /// Name of the node.
    pub(crate) node: String,
}

/// A figure of a VMI.
type OfGuest = (&'static str, &'static str, fn(&Guest) -> Option<f64>);
/// A figure of a disk.
type OfDisk = (&'static str, &'static str, fn(&DiskUsage) -> f64);
/// A figure of an interface.
type OfInterface = (&'static str, &'static str, fn(&InterfaceUsage) -> f64);

const GUEST_COUNTERS: [OfGuest; 7] = [
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
        "How often the guest was reset, by itself or on request.",
        |guest| machine(guest).map(|machine| number(machine.resets)),
    ),
    (
        "kvmlet_vmi_starts",
        "Starts of a VMM for this VMI, failed ones among them.",
        |guest| Some(number(guest.record.incarnation)),
    ),
];

const GUEST_GAUGES: [OfGuest; 10] = [
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
        "Whether the VMM told its figures in time; without it only the kernel's are there.",
        |guest| usage(guest).map(|usage| f64::from(u8::from(answer(usage).is_some()))),
    ),
];

const DISK_COUNTERS: [OfDisk; 9] = [
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

const INTERFACE_COUNTERS: [OfInterface; 8] = [
    (
        "kubevirt_vmi_network_receive_bytes",
        "Total network traffic received in bytes.",
        |card| number(card.receive.bytes),
    ),
    (
        "kubevirt_vmi_network_transmit_bytes",
        "Total network traffic transmitted in bytes.",
        |card| number(card.transmit.bytes),
    ),
    (
        "kubevirt_vmi_network_receive_packets",
        "Total network traffic received packets.",
        |card| number(card.receive.packets),
    ),
    (
        "kubevirt_vmi_network_transmit_packets",
        "Total network traffic transmitted packets.",
        |card| number(card.transmit.packets),
    ),
    (
        "kubevirt_vmi_network_receive_errors",
        "Total network received error packets.",
        |card| number(card.receive.errors),
    ),
    (
        "kubevirt_vmi_network_transmit_errors",
        "Total network transmitted error packets.",
        |card| number(card.transmit.errors),
    ),
    (
        "kubevirt_vmi_network_receive_packets_dropped",
        "The total number of rx packets dropped on vNIC interfaces.",
        |card| number(card.receive.dropped),
    ),
    (
        "kubevirt_vmi_network_transmit_packets_dropped",
        "The total number of tx packets dropped on vNIC interfaces.",
        |card| number(card.transmit.dropped),
    ),
];

impl Collector for GuestMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut encoder;
        self.identities(out)?;
        for (counters, kind) in [
            (&GUEST_COUNTERS[..], Kind::Counter),
            (&GUEST_GAUGES, Kind::Gauge),
        ] {
            for (name, help, value) in counters {
                let samples = self.guests().filter_map(|guest| {
                    let value = value(guest)?;
                    let labels = self.labels(guest);
                    Some(Sample { labels, value })
                });
                family(out, kind, (name, help), samples)?;
            }
        }
        self.vcpus(out)?;
        for (name, help, value) in DISK_COUNTERS {
            let samples = self.guests().flat_map(|guest| {
                let disks = machine(guest).map_or(&[][..], |machine| &machine.disks);
                disks.iter().map(move |disk| Sample {
                    labels: self.labels_and(guest, "drive", disk.name.clone()),
                    value: value(disk),
                })
            });
            family(out, Kind::Counter, (name, help), samples)?;
        }
        for (name, help, value) in INTERFACE_COUNTERS {
            let samples = self.guests().flat_map(|guest| {
                let cards = usage(guest).map_or(&[][..], |usage| &usage.interfaces);
                cards.iter().map(move |card| Sample {
                    labels: self.labels_and(guest, "interface", card.name.clone()),
                    value: value(card),
                })
            });
            family(out, Kind::Counter, (name, help), samples)?;
        }
        Ok(())
    }
}

impl GuestMetrics {
    fn guests(&self) -> impl Iterator<Item = &Guest> {
        self.figures.guests.iter()
    }

    /// KubeVirt's labels of a VMI's figures: who it is, and its own labels.
    fn labels(&self, guest: &Guest) -> SampleLabels {
        let mut labels = self.name(guest);
        let own = guest.object.metadata.as_ref();
        let own = own.map(|metadata| metadata.labels.iter());
        // Two labels may become one; a series can not have it twice.
        let mut named = BTreeMap::new();
        for (key, value) in own.into_iter().flatten() {
            let key = key.replace(['.', '/', '-'], "_");
            named
                .entry(format!("kubernetes_vmi_label_{key}"))
                .or_insert_with(|| value.clone());
        }
        labels.extend(named.into_iter().map(|(key, value)| (key.into(), value)));
        labels
    }

    fn labels_and(&self, guest: &Guest, key: &'static str, value: String) -> SampleLabels {
        let mut labels = self.labels(guest);
        labels.push((key.into(), value));
        labels
    }

    fn name(&self, guest: &Guest) -> SampleLabels {
        let mut labels = vec![("node".into(), self.node.clone())];
        labels.extend(namespaced(guest));
        labels
    }

    fn vcpus(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let vcpus = || {
            self.guests().flat_map(|guest| {
                let vcpus = usage(guest).map_or(&[][..], |usage| &usage.vcpus);
                vcpus.iter().map(move |vcpu| (guest, vcpu))
            })
        };
        let running = vcpus().map(|(guest, vcpu)| {
            let mut labels = self.labels_and(guest, "id", vcpu.index.to_string());
            labels.push(("state".into(), String::from("running")));
            Sample {
                labels,
                value: seconds(vcpu.running_ns),
            }
        });
        let about = (
            "kubevirt_vmi_vcpu_seconds",
            "Total amount of time spent in each state by each vcpu.",
        );
        family(out, Kind::Counter, about, running)?;
        let delayed = vcpus().filter_map(|(guest, vcpu)| {
            Some(Sample {
                labels: self.labels_and(guest, "id", vcpu.index.to_string()),
                value: seconds(vcpu.delayed_ns?),
            })
        });
        let about = (
            "kubevirt_vmi_vcpu_delay_seconds",
            "Amount of time spent by each vcpu waiting in the queue instead of running.",
        );
        family(out, Kind::Counter, about, delayed)
    }

    /// What says who and how a VMI is, rather than how much of something it used.
    fn identities(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let info = self.guests().map(|guest| Sample {
            labels: self.info(guest),
            value: 1.0,
        });
        let about = (
            "kubevirt_vmi_info",
            "Information about VirtualMachineInstances.",
        );
        family(out, Kind::Gauge, about, info)?;
        let evictable = self.guests().map(|guest| Sample {
            labels: self.name(guest),
            value: f64::from(u8::from(!is_evictable(guest))),
        });
        let about = (
            "kubevirt_vmi_non_evictable",
            "Indication for a VirtualMachine that its eviction strategy is set to Live Migration but is not migratable.",
        );
        family(out, Kind::Gauge, about, evictable)?;
        let outdated = self.guests().filter(|guest| is_outdated(guest)).count();
        let about = (
            "kubevirt_vmi_number_of_outdated",
            "VirtualMachineInstances whose VMM is of another release than the agent.",
        );
        let outdated = Sample::plain(super::process::count(outdated));
        family(out, Kind::Gauge, about, [outdated])?;
        let overhead = self.guests().map(|guest| Sample {
            labels: namespaced(guest),
            value: number(overhead_bytes(&guest.vmi)),
        });
        let about = (
            "kubevirt_vmi_launcher_memory_overhead_bytes",
            "Memory that the VMM may take beside its guest's.",
        );
        family(out, Kind::Gauge, about, overhead)?;
        family(out, Kind::Gauge, VNICS, self.guests().flat_map(vnics))?;
        let panics = self.guests().filter_map(|guest| {
            let mut labels = namespaced(guest);
            labels.push(("type".into(), String::from("unknown")));
            labels.push(("bugcheck_code".into(), String::from("unknown")));
            let value = number(machine(guest)?.panics);
            Some(Sample { labels, value })
        });
        let about = (
            "kubevirt_vmi_guest_os_panic",
            "Total number of guest OS panic events detected, partitioned by VMI and panic type.",
        );
        family(out, Kind::Counter, about, panics)
    }

    fn info(&self, guest: &Guest) -> SampleLabels {
        let mut labels = self.name(guest);
        let phase = guest.record.phase().as_str().to_lowercase();
        labels.push(("phase".into(), phase));
        let annotations = guest.object.metadata.as_ref();
        for word in ["os", "workload", "flavor"] {
            let key = format!("vm.kubevirt.io/{word}");
            let found = annotations.and_then(|metadata| metadata.annotations.get(&key));
            labels.extend(found.map(|value| (word.into(), value.clone())));
        }
        labels.push(("guest_os_machine".into(), String::from("q35")));
        labels.push(("evictable".into(), is_evictable(guest).to_string()));
        labels.push(("outdated".into(), is_outdated(guest).to_string()));
        labels
    }
}

const VNICS: (&str, &str) = (
    "kubevirt_vmi_vnic_info",
    "Details of VirtualMachineInstance (VMI) vNIC interfaces of a running instance.",
);

fn vnics(guest: &Guest) -> impl Iterator<Item = Sample> {
    guest.vmi.interfaces.iter().map(|interface| {
        let mut labels = namespaced(guest);
        labels.extend([
            ("vnic_name".into(), interface.name.to_string()),
            ("binding_type".into(), String::from("core")),
            ("binding_name".into(), String::from("bridge")),
            ("network".into(), interface.network.to_string()),
            ("model".into(), String::from("virtio")),
        ]);
        Sample { labels, value: 1.0 }
    })
}

fn namespaced(guest: &Guest) -> SampleLabels {
    vec![
        ("namespace".into(), guest.record.id.namespace.clone()),
        ("name".into(), guest.record.id.name.clone()),
    ]
}

/// KubeVirt's meaning: nothing stands in the way but a demand for live migration, which is not to be had.
fn is_evictable(guest: &Guest) -> bool {
    let spec = guest.object.spec.as_ref();
    spec.is_none_or(|spec| spec.eviction_strategy != "LiveMigrate")
}

fn is_outdated(guest: &Guest) -> bool {
    machine(guest).is_some_and(|machine| machine.release != env!("CARGO_PKG_VERSION"))
}

fn usage(guest: &Guest) -> Option<&Usage> {
    guest.usage.as_ref()
}

fn answer(usage: &Usage) -> Option<&MachineUsage> {
    match &usage.vmm {
        Told::Answer(machine) => Some(machine),
        Told::Silent(_) => None,
    }
}

fn machine(guest: &Guest) -> Option<&MachineUsage> {
    answer(usage(guest)?)
}

fn memory(guest: &Guest) -> Option<GuestMemory> {
    machine(guest)?.memory
}

fn seconds(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
}

/// A count as Prometheus has it, exact up to 2^53.
#[allow(
    clippy::cast_precision_loss,
    reason = "every value of Prometheus is a double"
)]
fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
