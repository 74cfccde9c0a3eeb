//! What the guest does that concerns the machine as a whole.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use vmm_devices::{DeviceNotice, NoticeSink, Panic, WatchdogAction};

use crate::gate::Gate;
use crate::pci::{AwaitRest, PciAddress};
use crate::request::Message;

/// By which way a guest reset itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetSource {
    /// Port 0xCF9, the reset register of ACPI.
    ResetRegister,
    /// Port 0x64, the pulse of the keyboard controller.
    KeyboardController,
    /// A vCPU shut down by a triple fault.
    TripleFault,
    /// The hypervisor was asked.
    Hypercall,
    /// It let its watchdog run out.
    Watchdog,
    /// Its kernel gave up, and [`PanicPolicy::Restart`](crate::PanicPolicy::Restart) says so.
    Panic,
}

impl std::fmt::Display for ResetSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ResetRegister => "port 0xcf9",
            Self::KeyboardController => "keyboard controller",
            Self::TripleFault => "triple fault",
            Self::Hypercall => "hypercall",
            Self::Watchdog => "watchdog",
            Self::Panic => "panic",
        })
    }
}

/// Something that only the owner of the machine can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GuestEvent {
    /// ACPI S5.
    PowerOff,
    /// The guest wants to start over.
    Reset(ResetSource),
    /// The guest's kernel gave up, by Hyper-V's crash registers.
    Panicked,
    /// A panic device was written.
    Told(Panic),
    /// A watchdog ran out.
    Watchdog(WatchdogAction),
    /// A disk holds a request that the host failed, with this error number.
    IoStopped { disk: PciAddress, errno: i32 },
    /// A disk failed to make durable what was written, with this error number.
    SyncFailed { disk: PciAddress, errno: i32 },
    /// The guest took the right to access memory from a device, or reset the bus that it is on, and may go
    /// on once the host is done with what the device had in flight.
    AwaitRest,
    /// The debug exit port was written.
    DebugExit(u32),
    /// KVM cannot run a vCPU any more.
    VcpuFailed(String),
    /// The host refused something that no guest can cause.
    HostFailure(String),
}

/// Where guest events go. After one that is posted, no vCPU enters the guest until the owner says so.
#[derive(Clone)]
pub(crate) struct GuestEvents {
    queue: Sender<Message>,
    gate: Arc<Gate>,
}

impl GuestEvents {
    pub(crate) fn new(queue: Sender<Message>, gate: Arc<Gate>) -> Self {
        Self { queue, gate }
    }

    /// Where the device at `address` tells what concerns the machine.
    pub(crate) fn notice_sink(&self, address: PciAddress) -> NoticeSink {
        let events = self.clone();
        Arc::new(move |notice| match notice {
            DeviceNotice::IoStopped { errno } => events.post(GuestEvent::IoStopped {
                disk: address,
                errno,
            }),
            DeviceNotice::SyncFailed { errno } => events.tell(GuestEvent::SyncFailed {
                disk: address,
                errno,
            }),
            other => events.post_life(other),
        })
    }

    /// Where a device without an address tells what became of the guest.
    pub(crate) fn life_sink(&self) -> NoticeSink {
        let events = self.clone();
        Arc::new(move |notice| events.post_life(notice))
    }

    /// Where devices that the guest stops have it wait for their host.
    pub(crate) fn rest_sink(&self) -> AwaitRest {
        let events = self.clone();
        Box::new(move || {
            // Ahead of the event: the owner may be about to let the guest go on for another reason.
            events.gate.want_rest();
            events.post(GuestEvent::AwaitRest);
        })
    }

    fn post_life(&self, notice: DeviceNotice) {
        match notice {
            DeviceNotice::WatchdogExpired { action } => self.post(GuestEvent::Watchdog(action)),
            DeviceNotice::Panic(panic) => self.post(GuestEvent::Told(panic)),
            // Only disks say so, and they have an address.
            DeviceNotice::IoStopped { .. } | DeviceNotice::SyncFailed { .. } => {}
        }
    }

    /// Tells the owner, and holds the vCPUs until it says so.
    pub(crate) fn post(&self, event: GuestEvent) {
        self.gate.close();
        self.tell(event);
    }

    /// Tells the owner what is no reason to hold the vCPUs.
    fn tell(&self, event: GuestEvent) {
        // Without an owner the process is about to end.
        drop(self.queue.send(Message::Guest(event)));
    }
}
