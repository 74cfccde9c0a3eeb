//! The owner of a machine's state: one thread, one queue for requests and guest events.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use vmm_devices::virtio::blk::DiskLimits;
use vmm_memory::GuestRam;

use crate::backoff::{ResetBackoff, ResetVerdict};
use crate::build::{BuildError, Configured, Restore};
use crate::built::BuiltMachine;
use crate::config::{MachineConfig, RebootPolicy};
use crate::disks::DiskError;
use crate::events::{GuestEvent, GuestEvents, ResetSource};
use crate::gate::Gate;
use crate::pci::PciAddress;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::status::{
    Change, End, EndReason, MachineState, PauseReason, Status, StatusBoard, boottime_ns,
};
use crate::vcpus::chain;

const STACK_BYTES: usize = 256 << 10;

/// What can be asked of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run the guest for the first time. Idempotent.
    Boot,
    /// Press the ACPI power button.
    PowerButton,
    /// End the guest at once.
    Stop {
        /// For the exit record.
        reason: String,
    },
    /// Reset the machine.
    Reset,
    /// Hold vCPUs and devices. Idempotent.
    Pause,
    /// Undo `Pause`, whatever its reason was. Idempotent.
    Resume,
    /// Make a disk as large as its image is now, and tell the guest.
    GrowDisk {
        /// Where the disk is.
        disk: PciAddress,
    },
    /// Change a disk's limits.
    SetDiskLimits {
        /// Where the disk is.
        disk: PciAddress,
        /// All of its limits.
        limits: DiskLimits,
    },
}

/// Why a request was refused.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It does not fit the machine's state.
    #[error("{request} is not possible while the machine is {state:?}")]
    WrongState {
        /// What was asked.
        request: &'static str,
        /// The state.
        state: MachineState,
    },
    /// A disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The host could not do it.
    #[error("the host could not do it")]
    Host(#[source] BuildError),
    /// The machine can not be saved.
    #[error("the machine could not be saved")]
    Save(#[from] SnapshotError),
}

/// Takes the state of a machine that is paused, on the machine's own thread: the machine goes on with
/// requests when it returns.
pub type Saver = Box<dyn FnOnce(&Snapshot, &GuestRam) -> io::Result<()> + Send>;

/// Is told what becomes of a machine, on the owner's thread. Must not block.
pub trait Observer: Send {
    /// The machine was built, or could not be. Comes first, once.
    fn built(&mut self, result: Result<(), BuildError>);
    /// A request was carried out or refused.
    fn answered(&mut self, ticket: u64, result: Result<(), RequestError>);
    /// Something happened.
    fn changed(&mut self, change: Change);
}

/// What the queue holds.
pub(crate) enum Message {
    Request { ticket: u64, request: Request },
    Save { ticket: u64, saver: Saver },
    Guest(GuestEvent),
}

/// A machine that is owned by its own thread.
#[derive(Clone)]
pub struct MachineHandle {
    queue: Sender<Message>,
    board: StatusBoard,
}

impl MachineHandle {
    /// Asks for something; the observer is told the answer with this ticket, except after the
    /// machine has ended.
    pub fn request(&self, ticket: u64, request: Request) {
        // After the end nobody answers.
        drop(self.queue.send(Message::Request { ticket, request }));
    }

    /// Gives the state of a paused machine to `saver`; the observer is told the outcome with this
    /// ticket, as for a [`request`](Self::request).
    pub fn save(&self, ticket: u64, saver: Saver) {
        // After the end nobody answers.
        drop(self.queue.send(Message::Save { ticket, saver }));
    }

    /// The status now. Never waits.
    #[must_use]
    pub fn status(&self) -> Status {
        self.board.read()
    }
}

/// Builds a machine on a thread of its own, which then owns it. One that is built of a snapshot is
/// paused.
///
/// # Errors
/// When the thread can not be started.
pub fn start(
    config: MachineConfig,
    restore: Option<Restore>,
    mut observer: Box<dyn Observer>,
) -> io::Result<MachineHandle> {
    vmm_sys::signal::install_kick(vmm_kvm::kick_signal())?;
    let (queue, messages) = channel();
    let board = StatusBoard::default();
    let handle = MachineHandle {
        queue: queue.clone(),
        board: board.clone(),
    };
    std::thread::Builder::new()
        .name("machine".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let is_restored = restore.is_some();
            match build(config, restore, queue, &board) {
                Ok(built) => {
                    board.update(|status| {
                        if is_restored {
                            status.state = MachineState::Paused;
                            status.booted_at_ns = boottime_ns();
                        } else {
                            status.state = MachineState::Configured;
                        }
                    });
                    observer.built(Ok(()));
                    Owner::new(built, messages, board, observer).run();
                }
                Err(error) => observer.built(Err(error)),
            }
        })?;
    Ok(handle)
}

struct Built {
    machine: BuiltMachine,
    reboot_policy: RebootPolicy,
}

fn build(
    config: MachineConfig,
    restore: Option<Restore>,
    queue: Sender<Message>,
    board: &StatusBoard,
) -> Result<Built, BuildError> {
    let reboot_policy = config.reboot_policy;
    let gate = Arc::new(Gate::new(config.cpus.topology.count()));
    let events = GuestEvents::new(queue, Arc::clone(&gate));
    let machine = Configured::new(config)?
        .build_memory(restore)?
        .build_devices(&events, board)?
        .build_vcpus(&gate, &events)?;
    Ok(Built {
        machine,
        reboot_policy,
    })
}

struct Owner {
    machine: BuiltMachine,
    reboot_policy: RebootPolicy,
    messages: Receiver<Message>,
    /// Requests that came between a guest event and its handling.
    waiting: VecDeque<Message>,
    board: StatusBoard,
    observer: Box<dyn Observer>,
    backoff: ResetBackoff,
    /// When the guest last started.
    started: Instant,
    /// A guest that resets too often starts again then.
    restart_at: Option<Instant>,
}

/// Whether the owner goes on.
enum Flow {
    Continue,
    Ended,
}

impl Owner {
    fn new(
        built: Built,
        messages: Receiver<Message>,
        board: StatusBoard,
        observer: Box<dyn Observer>,
    ) -> Self {
        Self {
            machine: built.machine,
            reboot_policy: built.reboot_policy,
            messages,
            waiting: VecDeque::new(),
            board,
            observer,
            backoff: ResetBackoff::default(),
            started: Instant::now(),
            restart_at: None,
        }
    }

    fn run(mut self) {
        while let Some(next) = self.next_message() {
            let flow = match next {
                Next::Message(Message::Request { ticket, request }) => {
                    self.on_request(ticket, request)
                }
                Next::Message(Message::Save { ticket, saver }) => {
                    let result = self.save(saver);
                    self.observer.answered(ticket, result);
                    Flow::Continue
                }
                Next::Message(Message::Guest(event)) => self.on_guest_event(event),
                Next::RestartDue => self.restart(),
            };
            if let Flow::Ended = flow {
                return;
            }
        }
    }

    /// `None` when nobody can send any more.
    fn next_message(&mut self) -> Option<Next> {
        if let Some(message) = self.waiting.pop_front() {
            return Some(Next::Message(message));
        }
        let Some(at) = self.restart_at else {
            return self.messages.recv().ok().map(Next::Message);
        };
        let left = at.saturating_duration_since(Instant::now());
        match self.messages.recv_timeout(left) {
            Ok(message) => Some(Next::Message(message)),
            Err(RecvTimeoutError::Timeout) => Some(Next::RestartDue),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    fn on_request(&mut self, ticket: u64, request: Request) -> Flow {
        if let Request::Stop { reason } = request {
            self.observer.answered(ticket, Ok(()));
            return self.end(EndReason::Stopped, reason);
        }
        let result = self.carry_out(&request);
        self.observer.answered(ticket, result);
        Flow::Continue
    }

    fn carry_out(&mut self, request: &Request) -> Result<(), RequestError> {
        use MachineState::{Configured, Paused, Running};
        let state = self.board.read().state;
        let wrong = |request| Err(RequestError::WrongState { request, state });
        match (request, state) {
            (Request::Boot, Configured) => self.boot().map_err(RequestError::Host),
            (Request::Boot | Request::Resume, Running)
            | (Request::Boot | Request::Pause, Paused) => Ok(()),
            (Request::PowerButton, Running | Paused) => {
                self.machine.press_power_button();
                Ok(())
            }
            (Request::Reset, Running | Paused) => {
                self.reset(None, Duration::ZERO).map_err(RequestError::Host)
            }
            (Request::Pause, Running) => self
                .pause(PauseReason::Requested)
                .map_err(RequestError::Host),
            (Request::Resume, Paused) => self.resume().map_err(RequestError::Host),
            (Request::GrowDisk { disk }, Configured | Running | Paused) => {
                Ok(self.machine.disks().grow(*disk)?)
            }
            (Request::SetDiskLimits { disk, limits }, Configured | Running | Paused) => {
                Ok(self.machine.disks().set_limits(*disk, *limits)?)
            }
            (Request::Boot, _) => wrong("Boot"),
            (Request::PowerButton, _) => wrong("PowerButton"),
            (Request::Reset, _) => wrong("Reset"),
            (Request::Pause, _) => wrong("Pause"),
            (Request::Resume, _) => wrong("Resume"),
            (Request::GrowDisk { .. }, _) => wrong("GrowDisk"),
            (Request::SetDiskLimits { .. }, _) => wrong("SetDiskLimits"),
            (Request::Stop { .. }, _) => wrong("Stop"),
        }
    }

    fn save(&mut self, saver: Saver) -> Result<(), RequestError> {
        let state = self.board.read().state;
        // A guest that waits for its next start has none of the former's state.
        if state != MachineState::Paused || self.restart_at.is_some() {
            let request = "Save";
            return Err(RequestError::WrongState { request, state });
        }
        let snapshot = self.machine.save()?;
        let saved = saver(&snapshot, self.machine.ram());
        saved.map_err(|error| SnapshotError::Ram(error).into())
    }

    fn boot(&mut self) -> Result<(), BuildError> {
        self.started = Instant::now();
        self.board.update(|status| {
            status.state = MachineState::Running;
            status.booted_at_ns = boottime_ns();
        });
        self.machine.run()?;
        self.observer.changed(Change::Booted);
        Ok(())
    }

    fn pause(&mut self, reason: PauseReason) -> Result<(), BuildError> {
        if let Err(error) = self.machine.hold() {
            // A device that does not come to rest: the guest goes on as if nothing had been asked.
            self.machine.run()?;
            return Err(error);
        }
        self.board.update(|status| {
            status.state = MachineState::Paused;
            status.pause_reason = Some(reason);
        });
        self.observer.changed(Change::Paused);
        Ok(())
    }

    fn resume(&mut self) -> Result<(), BuildError> {
        self.board.update(|status| {
            status.state = MachineState::Running;
            status.pause_reason = None;
        });
        if self.restart_at.is_none() {
            self.machine.run()?;
        }
        self.observer.changed(Change::Resumed);
        Ok(())
    }

    /// Brings the machine back to power-on; it runs again after `delay`, or once it is resumed.
    fn reset(&mut self, source: Option<ResetSource>, delay: Duration) -> Result<(), BuildError> {
        self.machine.hold()?;
        self.drop_stale_events();
        self.machine.reset()?;
        self.board.update(|status| status.resets += 1);
        self.observer.changed(Change::Reset(source));
        self.restart_at = Some(Instant::now() + delay);
        if delay.is_zero() {
            self.run_after_reset()?;
        }
        Ok(())
    }

    fn run_after_reset(&mut self) -> Result<(), BuildError> {
        self.restart_at = None;
        self.started = Instant::now();
        if self.board.read().state == MachineState::Running {
            self.machine.run()?;
        }
        Ok(())
    }

    fn restart(&mut self) -> Flow {
        match self.run_after_reset() {
            Ok(()) => Flow::Continue,
            Err(error) => self.end(EndReason::HostFailed, chain(&error)),
        }
    }

    /// While no vCPU runs: events of the guest that was are of no concern to the one that will be.
    fn drop_stale_events(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            if !matches!(message, Message::Guest(_)) {
                self.waiting.push_back(message);
            }
        }
    }

    fn on_guest_event(&mut self, event: GuestEvent) -> Flow {
        match event {
            GuestEvent::PowerOff => self.end(EndReason::PoweredOff, "ACPI S5".to_owned()),
            GuestEvent::Panicked => {
                self.end(EndReason::Panicked, "reported to the hypervisor".to_owned())
            }
            GuestEvent::DebugExit(value) => self.end(EndReason::DebugExit, value.to_string()),
            GuestEvent::VcpuFailed(detail) => self.end(EndReason::KvmFailed, detail),
            GuestEvent::HostFailure(detail) => self.end(EndReason::HostFailed, detail),
            GuestEvent::Reset(source) => self.on_guest_reset(source),
            GuestEvent::IoStopped { disk, errno } => self.on_io_stopped(disk, errno),
        }
    }

    /// Pauses the guest until somebody has seen to the host and resumes it.
    fn on_io_stopped(&mut self, disk: PciAddress, errno: i32) -> Flow {
        let reason = PauseReason::IoError { disk, errno };
        let state = self.board.read().state;
        let result = match state {
            // Somebody may have resumed the guest, and what was held tried again, since this was sent.
            MachineState::Running if !self.machine.disks().is_one_stopped() => self.machine.run(),
            MachineState::Running => self.pause(reason),
            MachineState::Paused => {
                self.board
                    .update(|status| status.pause_reason = Some(reason));
                Ok(())
            }
            MachineState::Building | MachineState::Configured | MachineState::Ended => Ok(()),
        };
        match result {
            Ok(()) => Flow::Continue,
            Err(error) => self.end(EndReason::HostFailed, chain(&error)),
        }
    }

    fn on_guest_reset(&mut self, source: ResetSource) -> Flow {
        let is_fault = source == ResetSource::TripleFault;
        let reason = if is_fault {
            EndReason::TripleFault
        } else {
            EndReason::Reset
        };
        if self.reboot_policy == RebootPolicy::End {
            return self.end(reason, source.to_string());
        }
        match self.backoff.on_reset(self.started.elapsed(), is_fault) {
            ResetVerdict::Hopeless => self.end(
                reason,
                format!("{source}, again and again right after start"),
            ),
            ResetVerdict::After(delay) => match self.reset(Some(source), delay) {
                Ok(()) => Flow::Continue,
                Err(error) => self.end(EndReason::HostFailed, chain(&error)),
            },
        }
    }

    fn end(&mut self, reason: EndReason, mut detail: String) -> Flow {
        if let Err(error) = self.machine.end() {
            detail.push_str("; ");
            detail.push_str(&chain(&error));
        }
        self.board.update(|status| {
            status.state = MachineState::Ended;
            status.end = Some(End { reason, detail });
        });
        self.observer.changed(Change::Ended);
        Flow::Ended
    }
}

enum Next {
    Message(Message),
    RestartDue,
}
