//! Figures of guests, under KubeVirt's names and labels where it has them.

mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use agent_plan::overhead_bytes;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

pub(super) use self::table::number;
use self::table::{
    DISK_COUNTERS, GUEST_COUNTERS, GUEST_GAUGES, INTERFACE_COUNTERS, NIC_COUNTERS, machine,
    seconds, usage,
};
use super::families::{Kind, Sample, SampleLabels, count, family};
use crate::node_service::usage::figures::{Figures, Guest};

/// All VMIs at a scrape.
#[derive(Debug)]
pub(crate) struct GuestMetrics {
    /// As they were collected.
    pub(crate) figures: Arc<Figures>,
    /// Name of the node.
    pub(crate) node: String,
}

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
        for (name, help, value) in NIC_COUNTERS {
            let samples = self.guests().flat_map(|guest| {
                let nics = machine(guest).map_or(&[][..], |machine| &machine.nics);
                nics.iter().map(move |nic| Sample {
                    labels: self.labels_and(guest, "interface", nic.name.clone()),
                    value: value(nic),
                })
            });
            family(out, Kind::Counter, (name, help), samples)?;
        }
        for (name, help, value) in INTERFACE_COUNTERS {
            let samples = self.guests().flat_map(|guest| {
                let nics = usage(guest).map_or(&[][..], |usage| &usage.interfaces);
                nics.iter().map(move |nic| Sample {
                    labels: self.labels_and(guest, "interface", nic.name.clone()),
                    value: value(nic),
                })
            });
            family(out, Kind::Counter, (name, help), samples)?;
        }
        let refused = self.guests().flat_map(|guest| {
            let refused = usage(guest).map_or(&[][..], |usage| &usage.refused);
            refused.iter().map(move |nic| Sample {
                labels: self.labels_and(guest, "interface", nic.name.clone()),
                value: number(nic.frames),
            })
        });
        family(out, Kind::Counter, REFUSED, refused)?;
        let dhcp = self
            .guests()
            .filter_map(|guest| Some((guest, usage(guest)?.dhcp.as_ref()?)));
        let dropped = dhcp.flat_map(|(guest, dhcp)| {
            let reasons = [("malformed", dhcp.malformed), ("excess", dhcp.excess)];
            reasons.map(|(reason, count)| {
                let mut labels = self.labels_and(guest, "interface", dhcp.name.clone());
                labels.push(("reason".into(), reason.to_owned()));
                Sample {
                    labels,
                    value: number(count),
                }
            })
        });
        family(out, Kind::Counter, DROPPED, dropped)
    }
}

const DROPPED: (&str, &str) = (
    "kvmlet_vmi_dhcp_requests_dropped",
    "Messages of the guest to its DHCP servers and router that made no sense or came too often.",
);

const REFUSED: (&str, &str) = (
    "kvmlet_vmi_network_refused_frames",
    "Frames of the guest that the walls of its network dropped.",
);

impl GuestMetrics {
    fn guests(&self) -> impl Iterator<Item = &Guest> {
        self.figures.guests.iter()
    }

    /// KubeVirt's labels of a VMI's figures: who it is, and its own labels.
    fn labels(&self, guest: &Guest) -> SampleLabels {
        let mut labels = self.name(guest);
        let own = guest.object.metadata.as_ref();
        let own = own.map(|metadata| metadata.labels.iter());
        // Two labels may become one; a series cannot have it twice.
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
        let outdated = Sample::plain(count(outdated));
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
        let os = guest
            .record
            .report
            .guest
            .as_ref()
            .and_then(|report| report.os.clone());
        let os = os.unwrap_or_default();
        for (word, value) in [
            ("kernel_release", os.kernel_release),
            ("arch", os.machine),
            ("name", os.name),
            ("version_id", os.version_id),
        ] {
            let label = format!("guest_os_{word}").into();
            labels.extend((!value.is_empty()).then_some((label, value)));
        }
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
            (
                "binding_name".into(),
                interface.attachment.binding().to_owned(),
            ),
            ("network".into(), interface.attachment.network().to_owned()),
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

#[cfg(test)]
mod tests;
