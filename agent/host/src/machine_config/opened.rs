//! What the host has opened for a machine, and how its configuration names it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent_domain::{BootDevice, DiskCache};

/// What the host has opened for one VMM.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) kvm: OwnedFd,
    pub(crate) exit_record: OwnedFd,
    pub(crate) console_log: OwnedFd,
    pub(crate) boot: OpenedBoot,
    /// In the order of the spec.
    pub(crate) disks: Vec<OpenedDisk>,
    /// In the order of the spec.
    pub(crate) taps: Vec<OpenedTap>,
    /// Listens for those who want to talk to the guest's agent.
    pub(crate) guest_agent: OwnedFd,
    /// Of the guest's socket device, if it has one.
    pub(crate) vsock: Option<OpenedVsock>,
}

/// What is booted, and how.
#[derive(Debug)]
pub(crate) enum OpenedBoot {
    Kernel {
        kernel: OwnedFd,
        initrd: Option<OwnedFd>,
        cmdline: String,
    },
    Firmware {
        code: OwnedFd,
        /// Its variable store, if it has one; the VMM writes it.
        variables: Option<OwnedFd>,
        order: Vec<BootDevice>,
        /// It has no serial console of its own and is to use one.
        serial: bool,
    },
}

/// An image as it was opened.
#[derive(Debug)]
pub(crate) struct OpenedDisk {
    pub(crate) image: OwnedFd,
    /// What a throw-away image is laid over.
    pub(crate) base: Option<OwnedFd>,
    /// How the image is open; never the default.
    pub(crate) cache: DiskCache,
}

/// A tap with all its queues.
#[derive(Debug)]
pub(crate) struct OpenedTap {
    /// At least one.
    pub(crate) queues: Vec<OwnedFd>,
    pub(crate) mtu: u32,
}

/// Both ends of a guest's sockets.
#[derive(Debug)]
pub(crate) struct OpenedVsock {
    /// The guest's address.
    pub(crate) cid: u32,
    /// Listens for programs that want to reach the guest.
    pub(crate) listener: OwnedFd,
    /// Leads to whoever connects the guest's programs to the node's.
    pub(crate) broker: OwnedFd,
}

/// Descriptors in the order in which they go with the frame.
#[derive(Debug, Default)]
pub(super) struct Descriptors<'a>(pub(super) Vec<BorrowedFd<'a>>);

impl<'a> Descriptors<'a> {
    /// The index under which the configuration names a descriptor.
    pub(super) fn add(&mut self, descriptor: &'a OwnedFd) -> u32 {
        self.0.push(descriptor.as_fd());
        u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX)
    }
}
