//! Threads of vCPUs whose guest boots by firmware, or is shown PCI's configuration space: besides what all
//! vCPUs may.

use super::ioctls::{KVM_SET_USER_MEMORY_REGION, REQUEST};
use super::rule::Arguments::{Any, Is};
use super::rule::Reason::Seen;
use super::rule::{Rule, table};

/// Their rules besides those of [`super::vcpu`].
pub(super) const RULES: &[Rule] = table! {
    SYS_ioctl, Is(REQUEST, KVM_SET_USER_MEMORY_REGION) => Seen("the guest shadows its firmware, writes to flash memory, or moves PCI functions that it is shown");
    SYS_fdatasync, Any => Seen("a variable of firmware is on disk before the guest goes on");
};
