//! Carrying out one action.

use agent_domain::{PciAddress, Vmi};
use agent_plan::{Action, Completed, Failure, Record, Timestamp, VmmIdentity};
use proto_vmm::v1::{self, request::Kind};

use super::LinuxHost;
use crate::control::{Connection, ControlError, Deadlines, SocketDir};
use crate::failure::{chain, fatal, retry};
use crate::layout::PathUid;

/// Reason of a failure that says nothing about whether the VMM lives.
const NO_ANSWER: &str = "VmmDidNotAnswer";

impl LinuxHost {
    pub(super) async fn carry_out(
        &self,
        action: &Action,
        vmi: &Vmi,
        record: &Record,
    ) -> Result<Completed, Failure> {
        let uid =
            PathUid::new(&record.id.uid).map_err(|error| fatal("InvalidUid", error.to_string()))?;
        if let Some(incarnation) = incarnation_of(action) {
            self.fence(&uid, incarnation)?;
        }
        let done = match action {
            Action::EnsureRunDir { incarnation } => self.ensure_run_dir(&uid, *incarnation),
            Action::EnsureKernel => {
                let work = self.begin_work(&uid);
                let _end = work.until_dropped();
                self.ensure_boot_files(&uid, vmi, &work).await
            }
            Action::EnsureDisks => {
                let work = self.begin_work(&uid);
                let _end = work.until_dropped();
                self.ensure_disks(&uid, vmi, &work).await
            }
            Action::EnsureTaps => self.ensure_taps(&uid, vmi).await,
            Action::StartVmm { incarnation } => {
                return self.start_vmm(&uid, *incarnation, (vmi, record)).await;
            }
            Action::ConfigureVmm { incarnation } => {
                let work = self.begin_work(&uid);
                let _end = work.until_dropped();
                self.configure_vmm(&uid, *incarnation, (vmi, record), &work)
                    .await
            }
            Action::BootVmm { incarnation } => {
                self.ask(&uid, *incarnation, Kind::Boot(v1::Boot {})).await
            }
            Action::PauseVmm { incarnation } => {
                self.ask(&uid, *incarnation, Kind::Pause(v1::Pause {}))
                    .await
            }
            Action::ResumeVmm { incarnation } => {
                self.ask(&uid, *incarnation, Kind::Resume(v1::Resume {}))
                    .await
            }
            Action::SetLink {
                incarnation,
                nic,
                up,
            } => self.ask(&uid, *incarnation, set_link(*nic, *up)).await,
            Action::PressPowerButton { incarnation } => {
                let press = Kind::PowerButton(v1::PowerButton {});
                let pressed = self.ask(&uid, *incarnation, press).await;
                if pressed.is_ok() {
                    self.ask_guest_agent_to_power_down(&uid, *incarnation);
                }
                pressed
            }
            Action::StopVmm {
                incarnation,
                reason,
            } => self.stop_vmm(&uid, *incarnation, reason).await,
            Action::KillVmm { identity, .. } => self.ends.kill(identity).await.map_err(|error| {
                let message = format!("the VMM (pid {}) cannot be killed: {error}", identity.pid);
                retry("KillFailed", message)
            }),
            // Dropping the future of the operation has done it.
            Action::CancelOperation => Ok(()),
            Action::Release {
                incarnation,
                holdings,
            } => self.release(&uid, record, *incarnation, holdings).await,
        };
        done.map(|()| Completed::Done)
    }

    /// Refuses what is late.
    fn fence(&self, uid: &PathUid, incarnation: u64) -> Result<(), Failure> {
        let on_disk = self
            .layout
            .incarnations(uid)
            .map_err(|error| retry("RunDirFailed", error.to_string()))?;
        let mut memory = self.memory();
        let seen = &mut memory.vmi(uid).incarnation;
        let highest = on_disk.last().copied().unwrap_or(0).max(*seen);
        if incarnation < highest {
            return Err(retry(
                "Fenced",
                format!("incarnation {incarnation} is over: {highest} was seen since"),
            ));
        }
        *seen = incarnation;
        Ok(())
    }

    /// A connection to the VMM of an incarnation, whose identity was compared.
    pub(super) async fn connect(
        &self,
        uid: &PathUid,
        incarnation: u64,
    ) -> Result<Connection, Failure> {
        self.identity_of(uid, incarnation).await?;
        self.open_control(uid, incarnation).await
    }

    /// Who the VMM of an incarnation is, if it lives.
    pub(super) async fn identity_of(
        &self,
        uid: &PathUid,
        incarnation: u64,
    ) -> Result<VmmIdentity, Failure> {
        let vmm = self
            .living_vmm(uid, incarnation, Timestamp::default())
            .await
            .map_err(|why| retry("VmmUnknown", why))?;
        vmm.map(|vmm| vmm.identity).ok_or_else(vmm_gone)
    }

    /// A connection to the VMM of an incarnation, which was just identified.
    async fn open_control(&self, uid: &PathUid, incarnation: u64) -> Result<Connection, Failure> {
        let dir = self.layout.run_of_vmm(uid, incarnation);
        let socket = SocketDir::open(&dir)
            .map_err(|error| retry("VmmUnknown", format!("{}: {error}", dir.display())))?;
        match Connection::open(&socket, Deadlines::of_an_action()).await {
            Ok(connection) => Ok(connection),
            Err(error) => {
                let failure = control_failure(&error);
                Err(self.gone_or(uid, incarnation, failure).await)
            }
        }
    }

    async fn ask(&self, uid: &PathUid, incarnation: u64, kind: Kind) -> Result<(), Failure> {
        let connection = self.connect(uid, incarnation).await?;
        self.ask_over(connection, (uid, incarnation), kind).await
    }

    async fn ask_over(
        &self,
        mut connection: Connection,
        (uid, incarnation): (&PathUid, u64),
        kind: Kind,
    ) -> Result<(), Failure> {
        match connection.request(kind, &[]).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let failure = control_failure(&error);
                Err(self.gone_or(uid, incarnation, failure).await)
            }
        }
    }

    /// A VMM that did not answer is gone only if its process is; what its socket does proves nothing.
    async fn gone_or(&self, uid: &PathUid, incarnation: u64, failure: Failure) -> Failure {
        if failure.reason != NO_ANSWER {
            return failure;
        }
        let look = self.living_vmm(uid, incarnation, Timestamp::default());
        match look.await {
            Ok(None) => vmm_gone(),
            Ok(Some(_)) | Err(_) => failure,
        }
    }

    /// Ends the guest when it is its turn. That its VMM is gone already is success.
    async fn stop_vmm(&self, uid: &PathUid, incarnation: u64, reason: &str) -> Result<(), Failure> {
        let stop = Kind::Stop(v1::Stop {
            reason: reason.to_owned(),
        });
        match self.ask_in_turn(uid, incarnation, stop).await {
            Err(failure) if failure.reason == "VmmGone" => Ok(()),
            result => result,
        }
    }

    /// Asks for what ends the VMM. The turn is taken before the connection is made: a VMM has few, and this one may wait.
    async fn ask_in_turn(
        &self,
        uid: &PathUid,
        incarnation: u64,
        kind: Kind,
    ) -> Result<(), Failure> {
        let identity = self.identity_of(uid, incarnation).await?;
        let turn = self.ends.take(&identity).await.map_err(|error| {
            let message = format!("the VMM (pid {}) cannot be followed: {error}", identity.pid);
            retry("StopFailed", message)
        })?;
        if turn.is_none() {
            return Err(vmm_gone());
        }
        let connection = self.open_control(uid, incarnation).await?;
        self.ask_over(connection, (uid, incarnation), kind).await
    }
}

fn set_link(nic: PciAddress, up: bool) -> Kind {
    let nic = Some(v1::PciAddress {
        bus: u32::from(nic.bus),
        device: u32::from(nic.device),
        function: 0,
    });
    Kind::SetLink(v1::SetLink { card: nic, up })
}

/// The incarnation by which an action is fenced. Killing and releasing are for what is over.
fn incarnation_of(action: &Action) -> Option<u64> {
    match action {
        Action::EnsureRunDir { incarnation }
        | Action::StartVmm { incarnation }
        | Action::ConfigureVmm { incarnation }
        | Action::BootVmm { incarnation }
        | Action::PauseVmm { incarnation }
        | Action::ResumeVmm { incarnation }
        | Action::SetLink { incarnation, .. }
        | Action::PressPowerButton { incarnation }
        | Action::StopVmm { incarnation, .. } => Some(*incarnation),
        Action::EnsureKernel
        | Action::EnsureDisks
        | Action::EnsureTaps
        | Action::KillVmm { .. }
        | Action::CancelOperation
        | Action::Release { .. } => None,
    }
}

/// What a refusal of the VMM, or its silence, means for the VMI.
pub(super) fn control_failure(error: &ControlError) -> Failure {
    match error {
        ControlError::Busy(_) => retry("VmmBusy", chain(error)),
        ControlError::Refused {
            code: v1::ErrorCode::InvalidArgument,
            field,
            message,
        } => {
            let place = if field.is_empty() {
                String::new()
            } else {
                format!(" ({field})")
            };
            fatal("MachineRefused", format!("{message}{place}"))
        }
        ControlError::Refused { message, .. } => retry("VmmRefused", message.clone()),
        error => retry(NO_ANSWER, chain(error)),
    }
}

fn vmm_gone() -> Failure {
    retry("VmmGone", "the VMM has ended")
}
