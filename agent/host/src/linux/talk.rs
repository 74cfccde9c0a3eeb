//! Requests that bring about no state: the console, a reset, requests to the agent in
//! the guest.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use agent_plan::{Failure, Record};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use proto_vmm::v1::{self, request::Kind};
use tokio::time::timeout;

use super::LinuxHost;
use super::execute::control_failure;
use crate::control::{ControlError, SocketDir};
use crate::facility::{ConsoleError, ConsoleRequest, ConsoleStream, VerbError};
use crate::failure::chain;
use crate::guest_agent::{GuestAgent, GuestAgentError};
use crate::layout::PathUid;

/// How long the channel of the agent in a guest may be in use by others.
const TURN: Duration = Duration::from_secs(5);

impl LinuxHost {
    pub(super) async fn console(
        &self,
        record: &Record,
        request: ConsoleRequest,
    ) -> Result<ConsoleStream, ConsoleError> {
        let uid =
            PathUid::new(&record.id.uid).map_err(|error| ConsoleError::Vmm(error.to_string()))?;
        let mut connection = self
            .connect(&uid, record.launches.incarnation())
            .await
            .map_err(|failure| match failure.reason.as_str() {
                "VmmGone" => ConsoleError::NotRunning,
                _ => ConsoleError::Vmm(failure.message),
            })?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags)
            .map_err(|error| ConsoleError::Vmm(error.to_string()))?;
        let attach = v1::AttachConsole {
            force: request.force,
            replay: request.replay_from.is_some(),
            replay_from: request.replay_from.unwrap_or(0),
            client: request.client,
        };
        match connection.attach_console(attach, theirs.as_fd()).await {
            Ok(offset) => tokio::net::UnixStream::from_std(UnixStream::from(ours))
                .map(|stream| ConsoleStream { stream, offset })
                .map_err(|error| ConsoleError::Vmm(error.to_string())),
            Err(ControlError::Refused {
                code: v1::ErrorCode::ConsoleBusy,
                message,
                ..
            }) => Err(ConsoleError::Busy { said: message }),
            Err(ControlError::Refused {
                code: v1::ErrorCode::WrongState,
                ..
            }) => Err(ConsoleError::NotRunning),
            Err(error) => Err(ConsoleError::Vmm(chain(&error))),
        }
    }

    pub(super) async fn reset_machine(&self, record: &Record) -> Result<(), VerbError> {
        let uid = uid_of(record)?;
        let mut connection = self
            .connect(&uid, record.launches.incarnation())
            .await
            .map_err(not_done)?;
        let status = connection.hello().status.as_ref();
        let state = status.map_or(v1::MachineState::Unspecified, v1::MachineStatus::state);
        if state == v1::MachineState::Configured {
            // It waits for its first instruction: there is nothing yet that a reset could undo.
            return Ok(());
        }
        let reset = connection.request(Kind::Reset(v1::Reset {}), &[]).await;
        reset
            .map(drop)
            .map_err(|error| not_done(control_failure(&error)))
    }

    pub(super) async fn reboot_guest(&self, record: &Record) -> Result<(), VerbError> {
        let uid = uid_of(record)?;
        let dir = self.layout.run_of_vmm(&uid, record.launches.incarnation());
        let turn = self.agent_turn(&uid);
        // Probes may take long; whoever asked for this does not wait for them.
        let Ok(_turn) = timeout(TURN, turn.lock()).await else {
            let why = format!("a probe has been talking to it for {TURN:?}");
            return Err(VerbError::NoGuestAgent(why));
        };
        match guest_agent(&dir).await {
            Ok(mut agent) => agent
                .reboot()
                .await
                .map_err(|error| VerbError::GuestRefused(error.to_string())),
            Err(silence) => self.press_for_reboot(&uid, record, &silence).await,
        }
    }

    /// Presses the power button of a guest without an agent, whose VMM takes its power-off for a reboot.
    async fn press_for_reboot(
        &self,
        uid: &PathUid,
        record: &Record,
        silence: &GuestAgentError,
    ) -> Result<(), VerbError> {
        let connected = self.connect(uid, record.launches.incarnation()).await;
        let mut connection = connected.map_err(not_done)?;
        let press = Kind::SoftReboot(v1::SoftReboot {});
        match connection.request(press, &[]).await {
            Ok(_) => Ok(()),
            // By the button of an older VMM the VMI would end.
            Err(ControlError::Refused {
                code: v1::ErrorCode::Unsupported,
                ..
            }) => Err(VerbError::NoGuestAgent(silence.to_string())),
            Err(error) => Err(not_done(control_failure(&error))),
        }
    }

    /// Sends the agent in the guest, if there is one, the same request as the power button sends the guest: a guest may
    /// heed only one of them. Nobody waits for it.
    pub(super) fn ask_guest_agent_to_power_down(&self, uid: &PathUid, incarnation: u64) {
        let dir = self.layout.run_of_vmm(uid, incarnation);
        let turn = self.agent_turn(uid);
        tokio::spawn(async move {
            // A guest that is ended is not probed any more: the turn comes soon, if it does not come now.
            let _turn = timeout(TURN, turn.lock()).await;
            let asked = match guest_agent(&dir).await {
                Ok(mut agent) => agent.power_down().await,
                Err(error) => Err(error),
            };
            if let Err(why) = asked {
                let dir = dir.display();
                tracing::debug!(%dir, %why, "the guest was asked by its power button alone");
            }
        });
    }
}

/// The agent in the guest of a VMM, which has answered; or why there is none.
async fn guest_agent(dir: &Path) -> Result<GuestAgent, GuestAgentError> {
    GuestAgent::greet(channel(dir).await?).await
}

/// The channel of the agent in the guest of a VMM, whether or not anybody listens at its other end.
pub(super) async fn channel(dir: &Path) -> std::io::Result<tokio::net::UnixStream> {
    SocketDir::open(dir)?.connect_to_guest_agent().await
}

/// Why a VMM did not do what was asked of it.
fn not_done(failure: Failure) -> VerbError {
    match failure.reason.as_str() {
        "VmmGone" => VerbError::NotRunning,
        _ => VerbError::Vmm(failure.message),
    }
}

fn uid_of(record: &Record) -> Result<PathUid, VerbError> {
    PathUid::new(&record.id.uid).map_err(|error| VerbError::Vmm(error.to_string()))
}
