//! What the guest does that concerns the machine as a whole.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use vmm_devices::{DeviceNotice, NoticeSink};

use crate::durable::DurableStore;
use crate::gate::Gate;
use crate::guest_event::GuestEvent;
use crate::pci::address::PciAddress;
use crate::pci::hooks::AwaitQuiesce;
use crate::request::Message;

/// Where guest events go. After one that is posted, no vCPU enters the guest until the machine thread permits it.
#[derive(Clone)]
pub(crate) struct GuestEvents {
    queue: Sender<Message>,
    gate: Arc<Gate>,
}

impl GuestEvents {
    pub(crate) fn new(queue: Sender<Message>, gate: Arc<Gate>) -> Self {
        Self { queue, gate }
    }

    /// Where the device at `address` reports what concerns the machine.
    pub(crate) fn notice_sink(&self, address: PciAddress) -> NoticeSink {
        let events = self.clone();
        Arc::new(move |notice| match notice {
            DeviceNotice::IoStopped { errno } => events.post(GuestEvent::IoStopped {
                disk: address,
                errno,
            }),
            DeviceNotice::SyncFailed { errno } => events.notify(GuestEvent::SyncFailed {
                store: DurableStore::Disk(address),
                errno,
            }),
            other => events.post_life(other),
        })
    }

    /// Sink for notices of a device without an address.
    pub(crate) fn life_sink(&self) -> NoticeSink {
        let events = self.clone();
        Arc::new(move |notice| events.post_life(notice))
    }

    /// Where devices that the guest stops have it wait for their host.
    pub(crate) fn quiesce_sink(&self) -> AwaitQuiesce {
        let events = self.clone();
        Box::new(move || {
            // Ahead of the event: the machine thread may be about to let the guest go on for another reason.
            events.gate.request_quiesce();
            events.post(GuestEvent::AwaitQuiesce);
        })
    }

    fn post_life(&self, notice: DeviceNotice) {
        match notice {
            DeviceNotice::WatchdogExpired { action } => self.post(GuestEvent::Watchdog(action)),
            DeviceNotice::Panic(panic) => self.post(GuestEvent::PanicDevice(panic)),
            // Only disks say so, and they have an address.
            DeviceNotice::IoStopped { .. } | DeviceNotice::SyncFailed { .. } => {}
        }
    }

    /// Posts to the machine thread, and holds the vCPUs until it releases them.
    pub(crate) fn post(&self, event: GuestEvent) {
        self.gate.close();
        self.notify(event);
    }

    /// Tells the machine thread what is no reason to hold the vCPUs.
    pub(crate) fn notify(&self, event: GuestEvent) {
        // Without a machine thread the process is about to end.
        drop(self.queue.send(Message::Guest(event)));
    }
}
