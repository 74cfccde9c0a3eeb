//! From a record to the status that everybody sees.

mod guest;
mod pod;
mod seen;

pub(crate) use self::guest::os as guest_os;
use agent_domain::{Attachment, Interface, Vmi};
use agent_plan::{Phase, Record, ReportedOperation};
use proto_node::vmi::{
    Condition, CpuTopology, InterfaceStatus, Machine, MemoryStatus, OperationStatus,
    PhaseTransitionTimestamp, VirtualMachineInstanceStatus, VolumeStatus,
};

use crate::clock::rfc3339;

/// The status of a VMI. What other writers put there is kept where this one has nothing to say.
pub(crate) fn project(
    before: VirtualMachineInstanceStatus,
    record: &Record,
    vmi: Option<&Vmi>,
    node_name: &str,
) -> VirtualMachineInstanceStatus {
    let phase = record.phase();
    let mut status = VirtualMachineInstanceStatus {
        phase: phase.as_str().to_owned(),
        reason: record
            .report
            .end
            .as_ref()
            .map(|end| end.reason.clone())
            .unwrap_or_default(),
        conditions: record.report.conditions.iter().map(condition).collect(),
        phase_transition_timestamps: transitions(record),
        ..before
    };
    status.vsock_cid = record.allocations.vsock_cid;
    status.operation = record.report.operation.as_ref().map(operation);
    if phase >= Phase::Scheduling {
        status.node_name = node_name.to_owned();
    }
    if let Some(vmi) = vmi {
        describe(&mut status, vmi, record);
        pod::add(&mut status, vmi, record);
        if let Some(guest) = &record.report.guest {
            guest::add(&mut status, vmi, guest);
        }
        seen::add(&mut status, vmi, record);
        put_primary_first(&mut status, vmi);
    }
    status
}

/// As under KubeVirt the interface by which others reach the guest comes first: the printed column and clients that look at one
/// address alone go by it.
fn put_primary_first(status: &mut VirtualMachineInstanceStatus, vmi: &Vmi) {
    let primary = vmi.primary_interface().unwrap_or_default();
    if let Some(until) = status.interfaces.get_mut(..=primary) {
        until.rotate_right(1);
    }
}

fn operation(reported: &ReportedOperation) -> OperationStatus {
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let progress = &reported.progress;
    OperationStatus {
        reason: reported.reason.clone(),
        message: progress.what.clone(),
        state: String::from(if reported.unknown {
            "Unknown"
        } else {
            "Running"
        }),
        start_time: rfc3339(reported.since),
        done_bytes: bytes(progress.done_bytes),
        total_bytes: bytes(progress.total_bytes),
        bytes_per_second: bytes(progress.bytes_per_second),
        seconds_left: progress.left().map(|left| (left.0 + 999) / 1000),
    }
}

fn transitions(record: &Record) -> Vec<PhaseTransitionTimestamp> {
    let transition = |entry: &agent_plan::PhaseEntry| PhaseTransitionTimestamp {
        phase: entry.phase.as_str().to_owned(),
        phase_transition_timestamp: rfc3339(entry.at),
    };
    record.report.phases.iter().map(transition).collect()
}

fn condition(condition: &agent_plan::Condition) -> Condition {
    Condition {
        r#type: condition.kind.clone(),
        status: condition.status.as_str().to_owned(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        last_probe_time: String::new(),
        last_transition_time: rfc3339(condition.last_transition_at),
        observed_generation: condition.observed_generation,
    }
}

/// What follows from the spec.
fn describe(status: &mut VirtualMachineInstanceStatus, vmi: &Vmi, record: &Record) {
    let phase = record.phase();
    let cpus = vmi.cpus;
    status.current_cpu_topology = Some(CpuTopology {
        cores: cpus.cores,
        sockets: cpus.sockets,
        threads: cpus.threads,
    });
    let memory = format!("{}Mi", vmi.memory_bytes >> 20);
    status.memory = Some(MemoryStatus {
        guest_at_boot: memory.clone(),
        guest_current: memory.clone(),
        guest_requested: memory,
        ..MemoryStatus::default()
    });
    status.machine = Some(Machine {
        r#type: String::from("q35"),
    });
    status.volume_status = vmi
        .disks
        .iter()
        .enumerate()
        .map(|(index, disk)| VolumeStatus {
            name: disk.name.to_string(),
            target: target(index),
            phase: if phase >= Phase::Scheduled {
                String::from("Ready")
            } else {
                String::from("Pending")
            },
            ..VolumeStatus::default()
        })
        .collect();
    status.interfaces = vmi
        .interfaces
        .iter()
        .map(|interface| InterfaceStatus {
            name: interface.name.to_string(),
            mac: interface.mac.to_string(),
            info_source: info_source(interface, phase).to_owned(),
            queue_count: i32::try_from(interface.queues).unwrap_or(i32::MAX),
            link_state: link_state(interface, record).to_owned(),
            ..InterfaceStatus::default()
        })
        .collect();
}

/// KubeVirt's words for where an interface is known from: its network was joined from when the VMM has its machine.
fn info_source(interface: &Interface, phase: Phase) -> &'static str {
    match &interface.attachment {
        Attachment::Network(_) if phase >= Phase::Scheduled => "domain, multus-status",
        Attachment::Network(_) | Attachment::Pod(_) => "domain",
    }
}

/// `linkState` of a running guest's interface, as its VMM last reported it, or as it is wanted where a VMM of an earlier
/// release does not. Empty for guests that do not run.
fn link_state(interface: &Interface, record: &Record) -> &'static str {
    let is_out = record
        .report
        .links_down
        .as_ref()
        .map_or(interface.link_down, |out| {
            out.contains(interface.name.as_str())
        });
    match (record.phase(), is_out) {
        (Phase::Running, true) => "down",
        (Phase::Running, false) => "up",
        _ => "",
    }
}

/// How the guest names its disk of this place: vda ... vdz, vdaa ...
fn target(mut index: usize) -> String {
    let mut letters = Vec::new();
    loop {
        letters.push(b'a' + u8::try_from(index % 26).unwrap_or_default());
        if index < 26 {
            break;
        }
        index = index / 26 - 1;
    }
    letters.reverse();
    format!("vd{}", String::from_utf8_lossy(&letters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_named_as_linux_names_them() {
        let names: Vec<String> = [0, 1, 25, 26, 27, 701, 702]
            .into_iter()
            .map(target)
            .collect();
        assert_eq!(
            names,
            ["vda", "vdb", "vdz", "vdaa", "vdab", "vdzz", "vdaaa"]
        );
    }
}
