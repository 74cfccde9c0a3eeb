//! Observing one VMI. Nothing is changed, and what is not known is `Unknown`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::UNIX_EPOCH;

use agent_plan::{
    ExitObserved, ExitReason, Holding, MachineObserved, Observation, Observed, StandsStill,
    Timestamp, VmmIdentity, VmmObserved,
};
use proto_vmm::payload::{
    MAX_EXIT_RECORD_BYTES, PAYLOAD_HEADER_BYTES, PayloadError, decode_exit_record,
};
use proto_vmm::v1;

use super::LinuxHost;
use crate::control::{
    Connection, ControlError, Deadlines, SocketDir, exit_observed, machine_observed,
};
use crate::facility::ObserveInput;
use crate::firmware;
use crate::launch_file::LaunchFile;
use crate::layout::{PathUid, absent_is_none};
use crate::process::{self, Liveness};
use crate::sandbox::OomKill;
use crate::{sandbox, taps};

/// Answers or the reason why there is none; `Ok(None)` is proof of absence.
type Answer<T> = Result<Option<T>, String>;

impl LinuxHost {
    pub(super) async fn observe_vmi(&self, input: ObserveInput<'_>) -> Observed {
        let uid = match PathUid::new(&input.record.id.uid) {
            Ok(uid) => uid,
            Err(error) => return nothing_known(&error.to_string(), input.now),
        };
        let boot_id = process::boot_id()
            .map(Some)
            .map_err(|error| error.to_string());
        // Processes before exit records: a VMM that ends in between has left its record by then.
        let vmms = self.living_vmms(&uid, input).await;
        let vmms_are_gone = matches!(vmms, Ok(None));
        let exit = self.exit_record(&uid, input.record.launches.incarnation(), vmms_are_gone);
        let holdings = self.holdings(&uid).map_err(|error| error.to_string());
        Observed {
            boot_id: observation(boot_id, input.now),
            vmms: observation(vmms, input.now),
            exit: observation(exit, input.now),
            holdings: observation(holdings, input.now),
            stands_still: observation(self.stands_still(&uid, input), input.now),
            // Whoever executes actions knows.
            operation: Observation::Absent,
        }
    }

    /// Looks at the console of a guest that firmware boots.
    fn stands_still(&self, uid: &PathUid, input: ObserveInput<'_>) -> Answer<StandsStill> {
        if input.record.report.firmware.is_none() {
            return Ok(None);
        }
        let log = self
            .layout
            .console_log(uid, input.record.launches.incarnation());
        firmware::stands_still(&log)
            .map_err(|error| format!("the console's log cannot be read: {error}"))
    }

    async fn living_vmms(
        &self,
        uid: &PathUid,
        input: ObserveInput<'_>,
    ) -> Answer<Vec<VmmObserved>> {
        let incarnations = self
            .layout
            .run_incarnations(uid)
            .map_err(|error| format!("the run directory cannot be read: {error}"))?;
        let mut found = Vec::new();
        for incarnation in incarnations {
            found.extend(self.living_vmm(uid, incarnation, input.now).await?);
        }
        let recorded = input
            .record
            .launches
            .present()
            .and_then(|launch| launch.identity.as_ref());
        if let Some(identity) = recorded
            && !found.iter().any(|vmm| vmm.identity == *identity)
            && is_alive(identity)?
        {
            // Somebody removed its run directory; it is there nevertheless.
            let machine = Err("its control socket is gone".to_owned());
            found.push(self.observed(
                input.record.launches.incarnation(),
                identity,
                machine,
                input.now,
            ));
        }
        Ok((!found.is_empty()).then_some(found))
    }

    /// The VMM of one incarnation, if it lives.
    pub(super) async fn living_vmm(
        &self,
        uid: &PathUid,
        incarnation: u64,
        now: Timestamp,
    ) -> Answer<VmmObserved> {
        let dir = self.layout.run_of_vmm(uid, incarnation);
        let note = LaunchFile::read(&dir)
            .map_err(|error| format!("the note of a start cannot be read: {error}"))?;
        if let Some(note) = &note
            && !is_alive(&note.identity)?
        {
            return Ok(None);
        }
        let connection = match SocketDir::open(&dir) {
            Ok(socket) => Connection::open(&socket, Deadlines::of_an_observation()).await,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ControlError::NobodyListens)
            }
            Err(error) => Err(ControlError::Io(error)),
        };
        let identity = match (&note, &connection) {
            (Some(note), _) => note.identity.clone(),
            (None, Ok(connection)) => match identity_of(connection)? {
                Some(identity) => identity,
                None => return Ok(None),
            },
            // The listening socket is made before the process and inherited: nobody is there.
            (None, Err(ControlError::NobodyListens)) => return Ok(None),
            (None, Err(error)) => return Err(crate::failure::chain(error)),
        };
        let machine = connection
            .map_err(|error| crate::failure::chain(&error))
            .and_then(|connection| machine_of(&connection, &identity));
        Ok(Some(self.observed(incarnation, &identity, machine, now)))
    }

    fn observed(
        &self,
        incarnation: u64,
        identity: &VmmIdentity,
        machine: Result<MachineObserved, String>,
        now: Timestamp,
    ) -> VmmObserved {
        let enforcement = self.sandbox.enforcement(identity.pid).map(Some);
        VmmObserved {
            incarnation,
            identity: identity.clone(),
            machine: observation(machine.map(Some), now),
            enforcement: observation(enforcement.map_err(|error| error.to_string()), now),
        }
    }

    fn exit_record(
        &self,
        uid: &PathUid,
        incarnation: u64,
        vmms_are_gone: bool,
    ) -> Answer<ExitObserved> {
        let path = self.layout.exit_record(uid, incarnation);
        let Some(bytes) = read_record(&path).map_err(|error| error.to_string())? else {
            return self.oom_kill(uid, incarnation, vmms_are_gone);
        };
        match decode_exit_record(&bytes) {
            Ok(record) => Ok(Some(exit_observed(&record))),
            Err(PayloadError::Empty) => self.oom_kill(uid, incarnation, vmms_are_gone),
            // Whoever writes it may be at it.
            Err(error) if !vmms_are_gone => Err(error.to_string()),
            Err(error) => Ok(Some(ExitObserved {
                reason: ExitReason::Other,
                detail: format!("the exit record cannot be read: {error}"),
                at: modified_at(&path),
                uptime_ns: 0,
            })),
        }
    }

    /// What stands for the exit record of a VMM that the kernel killed for want of memory.
    fn oom_kill(
        &self,
        uid: &PathUid,
        incarnation: u64,
        vmms_are_gone: bool,
    ) -> Answer<ExitObserved> {
        if !vmms_are_gone {
            return Ok(None);
        }
        let note = self.layout.oom_note(uid, incarnation);
        let unreadable =
            |error: io::Error| format!("what the kernel killed cannot be read: {error}");
        let mut kill = OomKill::noted(&note).map_err(unreadable)?;
        let cgroup = self.sandbox.cgroup_of(&sandbox::name_of(uid, incarnation));
        if let (None, Some(cgroup)) = (&kill, cgroup) {
            kill = OomKill::of_cgroup(&cgroup).map_err(unreadable)?;
        }
        Ok(kill.map(|kill| ExitObserved {
            reason: ExitReason::OomKilled,
            detail: kill.detail,
            at: modified_at(&note),
            uptime_ns: 0,
        }))
    }

    fn holdings(&self, uid: &PathUid) -> io::Result<Option<BTreeSet<Holding>>> {
        let mut found = BTreeSet::new();
        if !taps::existing(uid)?.is_empty() {
            found.insert(Holding::Taps);
        }
        for incarnation in self.layout.incarnations(uid)? {
            if self.sandbox.exists(&sandbox::name_of(uid, incarnation))? {
                found.insert(Holding::Sandbox);
            }
        }
        if exists(&self.layout.disks_of(uid))? {
            found.insert(Holding::Disks);
        }
        if exists(&self.layout.run_of(uid))? || exists(&self.layout.state_of(uid))? {
            found.insert(Holding::RunDir);
        }
        Ok((!found.is_empty()).then_some(found))
    }
}

/// Who is at the other end of a connection, when there is no note of it: a VMM whose agent died right
/// after it was started, or one that somebody started by hand. `None` when the process ended
/// meanwhile.
///
/// The kernel says who called listen(2) last, which every VMM does for itself. That word alone names a
/// process; what the VMM says of itself can only contradict it. A VMM that a guest has taken over would
/// name another process, and the agent would kill that one.
fn identity_of(connection: &Connection) -> Answer<VmmIdentity> {
    let reported = connection.hello().identity.clone().unwrap_or_default();
    let listener = connection.peer_pid().filter(|pid| *pid != 0);
    let Some(pid) = listener.filter(|pid| *pid != std::process::id()) else {
        return Err(
            "the kernel does not say which process listens on the control socket".to_owned(),
        );
    };
    let Some(identity) = process::identify(pid).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    if is_identity_of(&reported, &identity)? {
        return Ok(Some(identity));
    }
    Err("the process behind the control socket is not the one that it says it is".to_owned())
}

/// Whether what a VMM says of itself is true of a process. In its empty root it cannot read what
/// it would have to say; then the kernel's word alone counts. It knows itself by the pid that it has in
/// its pid namespace.
fn is_identity_of(reported: &v1::Identity, identity: &VmmIdentity) -> Result<bool, String> {
    if reported.boot_id.is_empty() && reported.start_time_ticks == 0 {
        let own = process::innermost_pid(identity.pid).map_err(|error| error.to_string())?;
        return Ok(own == Some(reported.pid));
    }
    Ok(reported.start_time_ticks == identity.start_time_ticks
        && reported.boot_id == identity.boot_id.0)
}

/// What the VMM says of its machine, when the kernel says that it is the VMM that is meant.
fn machine_of(connection: &Connection, identity: &VmmIdentity) -> Result<MachineObserved, String> {
    if connection.peer_pid() != Some(identity.pid) {
        return Err("another process answers on its control socket".to_owned());
    }
    connection
        .hello()
        .status
        .as_ref()
        .and_then(machine_observed)
        .ok_or_else(|| "the VMM is in a state that this agent does not know".to_owned())
}

fn is_alive(identity: &VmmIdentity) -> Result<bool, String> {
    process::liveness(identity)
        .map(|liveness| liveness == Liveness::Alive)
        .map_err(|error| format!("the process {} cannot be inspected: {error}", identity.pid))
}

fn observation<T>(answer: Answer<T>, now: Timestamp) -> Observation<T> {
    match answer {
        Ok(Some(value)) => Observation::Present(value),
        Ok(None) => Observation::Absent,
        Err(why) => Observation::Unknown { why, since: now },
    }
}

fn nothing_known(why: &str, now: Timestamp) -> Observed {
    Observed {
        boot_id: observation(Err(why.to_owned()), now),
        vmms: observation(Err(why.to_owned()), now),
        exit: observation(Err(why.to_owned()), now),
        holdings: observation(Err(why.to_owned()), now),
        stands_still: observation(Err(why.to_owned()), now),
        operation: Observation::Absent,
    }
}

fn exists(path: &Path) -> io::Result<bool> {
    Ok(absent_is_none(fs::symlink_metadata(path))?.is_some())
}

/// The start of the file, as much as a record can have.
fn read_record(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = absent_is_none(File::open(path))? else {
        return Ok(None);
    };
    let limit = PAYLOAD_HEADER_BYTES + MAX_EXIT_RECORD_BYTES;
    let mut bytes = Vec::new();
    file.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn modified_at(path: &Path) -> Timestamp {
    let since_1970 = fs::metadata(path)
        .and_then(|meta| meta.modified())
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let millis = since_1970.map_or(0, |span| span.as_millis());
    Timestamp(i64::try_from(millis).unwrap_or(i64::MAX))
}
