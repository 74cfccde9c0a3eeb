//! Descriptors that connect a device with the machine's event loop and with KVM.
//!
//! The set of a device's event sources is fixed when the device is built. The machine registers
//! each once, **edge-triggered and for reading** (`EPOLLIN | EPOLLET`), and never removes it before
//! the device goes. So nothing spins when a source stays readable that the device cannot serve
//! now, such as a tap with packets while the guest has offered no receive buffers:
//!
//! * An eventfd need not be read: each write to it is an edge, whatever its count.
//! * The device consumes any other source until it would block, or until it cannot go on. Whatever ends
//!   the second state (a kick, an activation) makes the device look at the source again by itself.
//! * A device that stops because it has used up its turn (a guest must not hold the event loop) writes to
//!   one of its own eventfds, which raises a new edge, and so queues behind the other devices.

use std::os::fd::RawFd;
use std::sync::Arc;

use vmm_sys_util::eventfd::EventFd;

/// A descriptor that a device wants polled; see the module for the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventSource {
    /// What [`PciFunction::handle_event`](crate::PciFunction::handle_event) is to be called with.
    /// Unique within the device and below `1 << 32`.
    pub token: u64,
    /// Polled for reading, edge-triggered. Stays open as long as the device lives.
    pub fd: RawFd,
}

/// A register within a BAR whose writes need no vCPU exit: a kick.
///
/// The machine registers an ioeventfd of any length and any value at the BAR's base plus `offset`
/// while the BAR is decoded, and follows the BAR when it moves. A write that comes as an exit all
/// the same (KVM is free to do so) goes to
/// [`PciFunction::bar_write`](crate::PciFunction::bar_write) and means the same.
#[derive(Clone, Debug)]
pub struct IoEvent {
    /// Index of the BAR.
    pub bar: usize,
    /// Offset within the BAR.
    pub offset: u64,
    /// Signalled by a write.
    pub event: Arc<EventFd>,
}
