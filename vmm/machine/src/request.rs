//! Requests to a machine, and the observer of their answers.

use std::io;
use std::sync::mpsc::Sender;

use vmm_devices::virtio::blk::DiskLimits;
use vmm_memory::GuestRam;

use crate::build::error::BuildError;
use crate::disks::DiskError;
use crate::guest_event::GuestEvent;
use crate::memory_log::MemoryVisitor;
use crate::nics::{NetChange, NicError};
use crate::pci::address::PciAddress;
use crate::snapshot::Snapshot;
use crate::snapshot::error::SnapshotError;
use crate::status::{Change, MachineState, Status, StatusBoard};
use crate::timeline::Timeline;

/// What can be asked of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run the guest for the first time. Idempotent.
    Boot,
    /// Press the ACPI power button.
    PowerButton,
    /// Press the ACPI power button, and start the guest over when it powers off.
    SoftReboot,
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
        /// PCI address of the disk.
        disk: PciAddress,
    },
    /// Change a disk's limits.
    SetDiskLimits {
        /// PCI address of the disk.
        disk: PciAddress,
        /// All of its limits.
        limits: DiskLimits,
    },
    /// Change a NIC.
    ChangeNic {
        /// PCI address of the NIC.
        nic: PciAddress,
        /// The change of the NIC's link or limits.
        change: NetChange,
    },
}

/// Why a request was refused.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It does not fit the machine's state.
    #[error("{request} is not possible while the machine is {state:?}")]
    WrongState {
        /// Name of the request.
        request: &'static str,
        /// State of the machine when the request came.
        state: MachineState,
    },
    /// The disk cannot be changed so.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No NIC is at the address, or it refused the change.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The host could not do it.
    #[error("the host could not do it")]
    Host(#[source] BuildError),
    /// Whoever was to see to its memory could not.
    #[error("its memory could not be seen to")]
    Memory(#[source] io::Error),
    /// The machine cannot be saved.
    #[error("the machine could not be saved")]
    Save(#[from] SnapshotError),
}

/// Takes the state of a machine that is paused, on the machine's own thread: the machine goes on with
/// requests when it returns.
pub type Saver = Box<dyn FnOnce(&Snapshot, &GuestRam) -> io::Result<()> + Send>;

/// Gets answers and changes of a machine, on the machine thread. Must not block.
pub trait Observer: Send {
    /// The machine was built, or could not be. Comes first, once.
    fn built(&mut self, result: Result<(), BuildError>);
    /// A request was carried out or refused.
    fn answered(&mut self, ticket: u64, result: Result<(), RequestError>);
    /// Something happened; `status` is as it was right after it. By the time that somebody reads it, the
    /// machine may have gone on.
    fn changed(&mut self, change: Change, status: &Status);
}

/// What the queue holds.
pub(crate) enum Message {
    Request { ticket: u64, request: Request },
    Save { ticket: u64, saver: Saver },
    VisitMemory { ticket: u64, visitor: MemoryVisitor },
    Guest(GuestEvent),
}

/// A machine that is owned by its own thread.
#[derive(Clone)]
pub struct MachineHandle {
    queue: Sender<Message>,
    pub(crate) board: StatusBoard,
}

impl MachineHandle {
    /// The handle of a machine whose thread takes `queue` and writes to `board`.
    pub(crate) fn new(queue: Sender<Message>, board: StatusBoard) -> Self {
        Self { queue, board }
    }

    /// Asks for something; [`Observer::answered`] gets the answer with this ticket, except after the
    /// machine has ended.
    pub fn request(&self, ticket: u64, request: Request) {
        let is_end = matches!(request, Request::Stop { .. });
        // After the end nobody answers.
        drop(self.queue.send(Message::Request { ticket, request }));
        // Who gives up its work for this finds the request in the queue.
        if is_end {
            self.board.want_end();
        }
    }

    /// Gives the state of a paused machine to `saver`; [`Observer::answered`] gets the outcome with this
    /// ticket, as for a [`request`](Self::request).
    pub fn save(&self, ticket: u64, saver: Saver) {
        self.send(Message::Save { ticket, saver });
    }

    pub(crate) fn send(&self, message: Message) {
        // After the end nobody answers.
        drop(self.queue.send(message));
    }

    /// When the machine came how far on its start.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        self.board.timeline()
    }

    /// The status now. Never waits.
    #[must_use]
    pub fn status(&self) -> Status {
        self.board.read()
    }
}
