//! From the protocol's messages to what the planner knows.

use std::collections::BTreeSet;

use agent_domain::PciAddress;
use agent_plan::{
    DurableStore, ExitObserved, ExitReason, MachineObserved, MachineState, PauseObserved,
    SyncFailure, Timestamp,
};
use proto_vmm::v1;

use super::tamed;

/// What a status says of a machine; `None` for a state that this agent does not know.
pub(crate) fn machine_observed(status: &v1::MachineStatus) -> Option<MachineObserved> {
    let state = match status.state() {
        v1::MachineState::Unspecified => return None,
        v1::MachineState::Unconfigured => MachineState::Unconfigured,
        v1::MachineState::Configured => MachineState::Configured,
        v1::MachineState::Running => MachineState::Running,
        v1::MachineState::Paused => MachineState::Paused,
        v1::MachineState::Exited => MachineState::Exited,
    };
    let pause = (state == MachineState::Paused).then(|| pause_observed(status));
    Some(MachineObserved {
        state,
        resets: status.resets,
        pause,
        sync_failures: status.disk_sync_failures.iter().map(sync_failure).collect(),
        links_down: status.net_links.as_ref().map(links_down),
    })
}

/// Addresses where no NIC can be are left out.
fn links_down(links: &v1::NetLinks) -> BTreeSet<PciAddress> {
    let address = |address: &v1::PciAddress| {
        Some(PciAddress {
            bus: address.bus.try_into().ok()?,
            device: address.device.try_into().ok()?,
        })
    };
    links.down.iter().filter_map(address).collect()
}

fn sync_failure(failure: &v1::DiskSyncFailure) -> SyncFailure {
    let disk = failure.disk.unwrap_or_default();
    let store = if failure.is_variable_store {
        DurableStore::Variables
    } else {
        DurableStore::Disk {
            bus: disk.bus,
            device: disk.device,
        }
    };
    SyncFailure {
        store,
        error: failure.error.clone(),
    }
}

/// A reason that this agent does not know was somebody's request as far as it can tell.
fn pause_observed(status: &v1::MachineStatus) -> PauseObserved {
    match status.pause_reason() {
        v1::PauseReason::IoError => PauseObserved::IoError {
            detail: status.pause_detail.clone(),
        },
        v1::PauseReason::DeviceBusy => PauseObserved::DeviceBusy {
            detail: status.pause_detail.clone(),
        },
        v1::PauseReason::Watchdog => PauseObserved::Watchdog,
        v1::PauseReason::Panicked => PauseObserved::Panicked,
        v1::PauseReason::Unspecified | v1::PauseReason::Requested => PauseObserved::Requested,
    }
}

/// What an exit record says.
pub(crate) fn exit_observed(record: &v1::ExitRecord) -> ExitObserved {
    let reason = match record.reason() {
        v1::ExitReason::Unspecified => ExitReason::Other,
        v1::ExitReason::GuestPoweroff => ExitReason::GuestPoweroff,
        v1::ExitReason::GuestReset => ExitReason::GuestReset,
        v1::ExitReason::TripleFault => ExitReason::TripleFault,
        v1::ExitReason::GuestPanicked => ExitReason::GuestPanicked,
        v1::ExitReason::KvmError => ExitReason::KvmError,
        v1::ExitReason::Stopped => ExitReason::Stopped,
        v1::ExitReason::VmmError => ExitReason::VmmError,
        v1::ExitReason::ConfigureFailed => ExitReason::ConfigureFailed,
        v1::ExitReason::DebugExit => ExitReason::DebugExit,
        v1::ExitReason::Watchdog => ExitReason::Watchdog,
    };
    let mut detail = tamed::detail(record);
    if record.signal != 0 {
        detail = format!("signal {}: {detail}", record.signal);
    }
    ExitObserved {
        reason,
        detail,
        at: Timestamp(i64::try_from(record.at_unix_ns / 1_000_000).unwrap_or(i64::MAX)),
        uptime_ns: record.uptime_ns,
    }
}
