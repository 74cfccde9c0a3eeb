//! The exit record: written once, to a file that was given, by whoever is first to know the end.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use proto_vmm::payload::encode_exit_record;
use proto_vmm::v1::{ExitReason, ExitRecord};
use vmm_machine::MachineHandle;

use crate::log::Log;

/// Longest `detail`.
const MAX_DETAIL_BYTES: usize = 4096;

/// Shared with the panic hook.
#[derive(Clone, Default)]
pub struct Recorder {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    target: Option<Target>,
    machine: Option<MachineHandle>,
    written: Option<ExitRecord>,
}

/// Where the record goes and whose it is.
pub struct Target {
    /// Opened for writing.
    pub file: File,
    /// Uid of the VMI.
    pub vmi_uid: String,
    /// Counts the VMMs of this uid.
    pub incarnation: u64,
    /// The kernel's boot id.
    pub boot_id: String,
}

impl Recorder {
    /// From now on there is a file.
    pub fn set_target(&self, target: Target) {
        self.lock().target = Some(target);
    }

    /// The configuration was refused after all: there is nothing to record.
    pub fn clear_target(&self) {
        self.lock().target = None;
    }

    /// From now on the machine can tell how long it ran.
    pub fn set_machine(&self, machine: MachineHandle) {
        self.lock().machine = Some(machine);
    }

    /// Writes the record, unless there is one already; returns the one that counts.
    pub fn write(&self, log: &Log, reason: ExitReason, detail: &str, signal: u32) -> ExitRecord {
        let mut state = self.lock();
        if let Some(record) = &state.written {
            return record.clone();
        }
        let record = state.compose(reason, detail, signal);
        if let Some(target) = &state.target {
            let bytes = encode_exit_record(&record);
            // Longer content of an earlier life must not stay behind.
            let result = target
                .file
                .set_len(0)
                .and_then(|()| target.file.write_all_at(&bytes, 0));
            if let Err(error) = result {
                log.error("exit-record", &error.to_string());
            }
        }
        state.written = Some(record.clone());
        record
    }

    /// Records panics of any thread and ends the process: a guest must not go on in part.
    pub fn install_panic_hook(&self, log: &Log) {
        let recorder = self.clone();
        let log = log.clone();
        std::panic::set_hook(Box::new(move |panic| {
            let text = panic.to_string();
            log.error("panic", &text);
            // Unless it was the recorder itself that panicked.
            if !matches!(recorder.state.try_lock(), Err(TryLockError::WouldBlock)) {
                recorder.write(&log, ExitReason::VmmError, &text, 0);
            }
            std::process::abort();
        }));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Only whole values are stored.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn compose(&self, reason: ExitReason, detail: &str, signal: u32) -> ExitRecord {
        let status = self.machine.as_ref().map(MachineHandle::status);
        let booted_at_ns = status.as_ref().map_or(0, |status| status.booted_at_ns);
        let uptime_ns = match booted_at_ns {
            0 => 0,
            at => boottime_ns().saturating_sub(at),
        };
        let at_unix_ns = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .ok()
            .and_then(|elapsed| u64::try_from(elapsed.as_nanos()).ok())
            .unwrap_or_default();
        let (vmi_uid, incarnation, boot_id) = match &self.target {
            Some(target) => (
                target.vmi_uid.clone(),
                target.incarnation,
                target.boot_id.clone(),
            ),
            None => Default::default(),
        };
        ExitRecord {
            reason: reason.into(),
            detail: detail.chars().take(MAX_DETAIL_BYTES).collect(),
            signal,
            at_unix_ns,
            uptime_ns,
            resets: status.map_or(0, |status| status.resets),
            vmi_uid,
            incarnation,
            boot_id,
        }
    }
}

fn boottime_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use proto_vmm::payload::decode_exit_record;

    use super::*;

    #[test]
    fn the_first_reason_counts_and_replaces_what_the_file_held() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10_000).unwrap();
        let recorder = Recorder::default();
        recorder.set_target(Target {
            file: file.try_clone().unwrap(),
            vmi_uid: "u".to_owned(),
            incarnation: 3,
            boot_id: "b".to_owned(),
        });
        let log = Log::new();
        recorder.write(&log, ExitReason::GuestPoweroff, "S5", 0);
        recorder.write(&log, ExitReason::Stopped, "late", 15);
        let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let record = decode_exit_record(&bytes).unwrap();
        assert_eq!(record.reason(), ExitReason::GuestPoweroff);
        assert_eq!((record.vmi_uid.as_str(), record.incarnation), ("u", 3));
        assert_eq!(record.signal, 0);
    }
}
