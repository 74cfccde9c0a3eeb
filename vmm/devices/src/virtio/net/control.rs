//! Changes to a NIC while its guest runs.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vmm_sys::event;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::config::{ANNOUNCE, LINK_UP};
use super::limits::NetLimits;

/// A NIC cannot be changed that way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetControlError {
    /// Nobody in the guest would announce anything.
    #[error("its driver did not take VIRTIO_NET_F_GUEST_ANNOUNCE, or is not ready")]
    NoAnnouncer,
    /// Frames do not come past us.
    #[error("its frames are moved by vhost-net, which knows no limits")]
    NoLimits,
}

/// Requests that the device's thread has not carried out yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pending {
    /// The link changed, and the configuration interrupt is not sent yet.
    pub(super) status_changed: bool,
    /// New limits.
    pub(super) limits: Option<NetLimits>,
}

/// A handle on a NIC, for whoever owns the machine. Nothing here waits for the device.
pub struct NetControl {
    link_up: AtomicBool,
    /// The driver is asked to announce itself and has not yet.
    announce: AtomicBool,
    /// There is a driver that would.
    can_announce: AtomicBool,
    /// Frames are not moved by us.
    is_unlimited: AtomicBool,
    /// Counts changes of the status.
    generation: AtomicU8,
    pending: Mutex<Pending>,
    /// Written for the device to look at `pending`.
    event: EventFd,
}

impl NetControl {
    pub(super) fn new(link_up: bool) -> io::Result<Self> {
        Ok(Self {
            link_up: AtomicBool::new(link_up),
            announce: AtomicBool::new(false),
            can_announce: AtomicBool::new(false),
            is_unlimited: AtomicBool::new(false),
            generation: AtomicU8::new(0),
            pending: Mutex::default(),
            event: EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?,
        })
    }

    /// Sets the link down or up, and notifies the guest. While it is out, frames are lost both
    /// ways.
    pub fn set_link(&self, up: bool) {
        if self.link_up.swap(up, Ordering::AcqRel) != up {
            self.status_changed();
        }
    }

    /// Whether the cable is in.
    pub fn is_link_up(&self) -> bool {
        self.link_up.load(Ordering::Acquire)
    }

    /// Changes the limits; all buckets are full again.
    ///
    /// # Errors
    /// The kernel moves the frames by itself.
    pub fn set_limits(&self, limits: NetLimits) -> Result<(), NetControlError> {
        if self.is_unlimited.load(Ordering::Acquire) && limits != NetLimits::default() {
            return Err(NetControlError::NoLimits);
        }
        self.ask(|pending| pending.limits = Some(limits));
        Ok(())
    }

    /// The kernel moves the frames by itself.
    pub(super) fn set_unlimited(&self) {
        self.is_unlimited.store(true, Ordering::Release);
    }

    /// Asks the guest to announce to its network where it is now (by gratuitous ARP and the like).
    ///
    /// # Errors
    /// No driver is there that could be asked.
    pub fn announce(&self) -> Result<(), NetControlError> {
        if !self.can_announce.load(Ordering::Acquire) {
            return Err(NetControlError::NoAnnouncer);
        }
        self.announce.store(true, Ordering::Release);
        self.status_changed();
        Ok(())
    }

    /// Whether the guest was asked to announce itself and has not said yet that it did.
    pub fn is_announcing(&self) -> bool {
        self.announce.load(Ordering::Acquire)
    }

    /// The driver, if there is one now, announces itself when it is asked to.
    pub(super) fn set_announcer(&self, is_there: bool) {
        self.can_announce.store(is_there, Ordering::Release);
        if !is_there {
            self.announce.store(false, Ordering::Release);
        }
    }

    /// The driver has announced itself.
    pub(super) fn acknowledge(&self) {
        self.announce.store(false, Ordering::Release);
    }

    /// `status` of the configuration.
    pub(super) fn status(&self) -> u16 {
        let when = |wanted: bool, bit: u16| if wanted { bit } else { 0 };
        when(self.is_link_up(), LINK_UP) | when(self.is_announcing(), ANNOUNCE)
    }

    pub(super) fn generation(&self) -> u8 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn take_pending(&self) -> Pending {
        std::mem::take(&mut *self.lock())
    }

    pub(super) fn event(&self) -> &EventFd {
        &self.event
    }

    fn status_changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.ask(|pending| pending.status_changed = true);
    }

    fn ask(&self, change: impl FnOnce(&mut Pending)) {
        change(&mut self.lock());
        event::signal(&self.event);
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // A panic of another holder of the lock leaves no request half written.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
