//! From the machine's words to those of the wire.

use proto_vmm::v1;
use vmm_machine::{
    Change, DurableStore, EndReason, LastReset, MachineState, PauseReason, PciAddress, ResetSource,
    Status, SyncFailure,
};

/// The status of a process without a machine.
pub fn unconfigured() -> v1::MachineStatus {
    v1::MachineStatus {
        state: v1::MachineState::Unconfigured.into(),
        ..v1::MachineStatus::default()
    }
}

/// The status of a machine; `exit` is set once it has ended.
pub fn of_machine(status: &Status, exit: Option<&v1::ExitRecord>) -> v1::MachineStatus {
    let state = match status.state {
        MachineState::Building => v1::MachineState::Unconfigured,
        MachineState::Configured => v1::MachineState::Configured,
        MachineState::Running => v1::MachineState::Running,
        MachineState::Paused => v1::MachineState::Paused,
        MachineState::Ended => v1::MachineState::Exited,
    };
    let (pause_reason, pause_detail) = paused(status.pause_reason);
    v1::MachineStatus {
        state: state.into(),
        resets: status.resets,
        booted_at_ns: status.booted_at_ns,
        exit: exit.cloned(),
        first_timestamp_ns: status.first_timestamp_ns,
        pause_reason: pause_reason.into(),
        pause_detail,
        last_reset: reset_cause(status.last_reset).into(),
        watchdog_expirations: status.watchdog_expirations,
        panics: status.panics,
        balloon_target_bytes: status.balloon.map(|balloon| balloon.target_bytes),
        balloon_actual_bytes: status.balloon.map(|balloon| balloon.actual_bytes),
        disk_sync_failures: status.sync_failures.iter().map(sync_failure).collect(),
        interrupt_route_failures: status.route_failures,
        net_links: status.links_down.as_deref().map(net_links),
    }
}

fn net_links(down: &[PciAddress]) -> v1::NetLinks {
    v1::NetLinks {
        down: down.iter().copied().map(pci_address).collect(),
    }
}

fn sync_failure(failure: &SyncFailure) -> v1::DiskSyncFailure {
    let disk = match failure.store {
        DurableStore::Disk(address) => Some(pci_address(address)),
        DurableStore::Variables => None,
    };
    v1::DiskSyncFailure {
        disk,
        is_variable_store: failure.store == DurableStore::Variables,
        error: std::io::Error::from_raw_os_error(failure.errno).to_string(),
    }
}

/// The address of a function.
pub fn pci_address(address: PciAddress) -> v1::PciAddress {
    v1::PciAddress {
        bus: u32::from(address.bus()),
        device: u32::from(address.device()),
        function: 0,
    }
}

fn paused(reason: Option<PauseReason>) -> (v1::PauseReason, String) {
    match reason {
        None => (v1::PauseReason::Unspecified, String::new()),
        Some(PauseReason::Requested) => (v1::PauseReason::Requested, String::new()),
        Some(PauseReason::IoError { disk, errno }) => {
            let error = std::io::Error::from_raw_os_error(errno);
            let detail = format!("the disk at {disk} waits for its host: {error}");
            (v1::PauseReason::IoError, detail)
        }
        Some(PauseReason::DeviceBusy { device }) => {
            let detail = format!("the host still works on what the device at {device} asked for");
            (v1::PauseReason::DeviceBusy, detail)
        }
        Some(PauseReason::Watchdog) => (v1::PauseReason::Watchdog, String::new()),
        Some(PauseReason::Panicked) => (v1::PauseReason::Panicked, String::new()),
    }
}

fn reset_cause(last: LastReset) -> v1::ResetCause {
    match last {
        LastReset::Never => v1::ResetCause::Unspecified,
        LastReset::Requested => v1::ResetCause::Requested,
        LastReset::Guest(source) => match source {
            ResetSource::ResetRegister => v1::ResetCause::ResetRegister,
            ResetSource::KeyboardController => v1::ResetCause::KeyboardController,
            ResetSource::TripleFault => v1::ResetCause::TripleFault,
            ResetSource::Hypercall => v1::ResetCause::Hypercall,
            ResetSource::Watchdog => v1::ResetCause::Watchdog,
            ResetSource::Panic => v1::ResetCause::Panic,
            ResetSource::SoftReboot => v1::ResetCause::SoftReboot,
        },
    }
}

/// The event that subscribers get, if any.
pub fn event_kind(change: Change) -> Option<v1::EventKind> {
    Some(match change {
        // The log has it; the status is as it was.
        Change::ResetWaits(_) => return None,
        Change::Booted => v1::EventKind::Booted,
        Change::Reset(_) => v1::EventKind::Reset,
        Change::Paused => v1::EventKind::Paused,
        Change::Resumed => v1::EventKind::Resumed,
        Change::Ended => v1::EventKind::Exited,
        Change::WatchdogExpired(_) => v1::EventKind::WatchdogExpired,
        Change::Panicked => v1::EventKind::Panicked,
        Change::CrashLoaded => v1::EventKind::CrashLoaded,
        Change::SyncFailed { .. } => v1::EventKind::DiskSyncFailed,
    })
}

/// What the log calls it.
pub fn change_name(change: Change) -> &'static str {
    match change {
        Change::Booted => "booted",
        Change::Reset(_) => "reset",
        Change::ResetWaits(_) => "reset-waits",
        Change::Paused => "paused",
        Change::Resumed => "resumed",
        Change::Ended => "ended",
        Change::WatchdogExpired(_) => "watchdog-expired",
        Change::Panicked => "panicked",
        Change::CrashLoaded => "crash-loaded",
        Change::SyncFailed { .. } => "disk-sync-failed",
    }
}

/// What the log adds.
pub fn change_detail(change: Change) -> String {
    match change {
        Change::Reset(Some(source)) => source.to_string(),
        Change::Reset(None) => "on request".to_owned(),
        Change::ResetWaits(device) => format!("{device} does not come to rest"),
        Change::WatchdogExpired(action) => format!("action {action}"),
        Change::SyncFailed { store, errno } => {
            let error = std::io::Error::from_raw_os_error(errno);
            format!("{store} fails every flush from now on: {error}")
        }
        Change::Booted
        | Change::Paused
        | Change::Resumed
        | Change::Ended
        | Change::Panicked
        | Change::CrashLoaded => String::new(),
    }
}

/// What the exit record says.
pub fn exit_reason(reason: EndReason) -> v1::ExitReason {
    match reason {
        EndReason::PoweredOff => v1::ExitReason::GuestPoweroff,
        EndReason::Reset => v1::ExitReason::GuestReset,
        EndReason::TripleFault => v1::ExitReason::TripleFault,
        EndReason::Panicked => v1::ExitReason::GuestPanicked,
        EndReason::KvmFailed => v1::ExitReason::KvmError,
        EndReason::Stopped => v1::ExitReason::Stopped,
        EndReason::HostFailed => v1::ExitReason::VmmError,
        EndReason::DebugExit => v1::ExitReason::DebugExit,
        EndReason::Watchdog => v1::ExitReason::Watchdog,
    }
}
