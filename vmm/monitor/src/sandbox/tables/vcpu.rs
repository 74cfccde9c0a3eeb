//! Threads of vCPUs: the guest, and what it reaches by ports and memory.

use super::ioctls::{
    KVM_CHECK_EXTENSION, KVM_GET_DEBUGREGS, KVM_GET_FPU, KVM_GET_LAPIC, KVM_GET_MP_STATE,
    KVM_GET_MSR_INDEX_LIST, KVM_GET_MSRS, KVM_GET_NESTED_STATE, KVM_GET_REGS, KVM_GET_SREGS,
    KVM_GET_TSC_KHZ, KVM_GET_VCPU_EVENTS, KVM_GET_XCRS, KVM_GET_XSAVE, KVM_GET_XSAVE2,
    KVM_IOEVENTFD, KVM_IRQ_LINE, KVM_IRQFD, KVM_KVMCLOCK_CTRL, KVM_RUN, KVM_SET_DEBUGREGS,
    KVM_SET_FPU, KVM_SET_GSI_ROUTING, KVM_SET_LAPIC, KVM_SET_MP_STATE, KVM_SET_MSRS,
    KVM_SET_NESTED_STATE, KVM_SET_REGS, KVM_SET_SREGS, KVM_SET_TSC_KHZ, KVM_SET_VCPU_EVENTS,
    KVM_SET_XCRS, KVM_SET_XSAVE, REQUEST, TUNSETOFFLOAD, TUNSETQUEUE,
};
use super::ioctls::{
    VHOST_GET_VRING_BASE, VHOST_NET_SET_BACKEND, VHOST_SET_FEATURES, VHOST_SET_LOG_BASE,
    VHOST_SET_MEM_TABLE, VHOST_SET_VRING_ADDR, VHOST_SET_VRING_BASE, VHOST_SET_VRING_CALL,
    VHOST_SET_VRING_ERR, VHOST_SET_VRING_KICK, VHOST_SET_VRING_NUM,
};
use super::rule::Arguments::{Any, Is};
use super::rule::Reason::{Seen, Unseen};
use super::rule::{Rule, table};

/// Their rules. `KVM_RUN` is first: filters look at lines of one call in order.
pub(super) const RULES: &[Rule] = table! {
    SYS_ioctl, Is(REQUEST, KVM_RUN) => Seen("the guest runs");
    SYS_ioctl, Is(REQUEST, KVM_KVMCLOCK_CTRL) => Seen("the guest stands still");
    // What the guest does to interrupts and BARs.
    SYS_ioctl, Is(REQUEST, KVM_IRQ_LINE) => Seen("the guest touches a status register");
    SYS_ioctl, Is(REQUEST, KVM_SET_GSI_ROUTING) => Seen("the guest writes an MSI-X table");
    SYS_ioctl, Is(REQUEST, KVM_IRQFD) => Seen("the guest enables MSI-X");
    SYS_ioctl, Is(REQUEST, KVM_IOEVENTFD) => Seen("the guest moves a BAR");
    // Devices that the guest starts and resets.
    SYS_ioctl, Is(REQUEST, TUNSETOFFLOAD) => Seen("a network driver starts");
    SYS_ioctl, Is(REQUEST, TUNSETQUEUE) => Unseen("a network driver starts with more queues");
    SYS_epoll_ctl, Any => Unseen("connections of a socket device end with its reset");
    SYS_io_uring_enter, Any => Unseen("a disk is reset with requests in flight");
    SYS_timerfd_settime, Any => Seen("the guest winds up its watchdog; reset of devices with timers");
    SYS_pread64, Any => Unseen("the console log is cut while the main thread is behind");
    // Reset: the state at power-on is read first, and brought back.
    SYS_ioctl, Is(REQUEST, KVM_GET_REGS) => Seen("reset, snapshot; where a failure was");
    SYS_ioctl, Is(REQUEST, KVM_SET_REGS) => Seen("reset, restore");
    SYS_ioctl, Is(REQUEST, KVM_GET_SREGS) => Seen("reset, snapshot");
    SYS_ioctl, Is(REQUEST, KVM_SET_SREGS) => Seen("reset, restore");
    SYS_ioctl, Is(REQUEST, KVM_GET_FPU) => Seen("reset");
    SYS_ioctl, Is(REQUEST, KVM_SET_FPU) => Seen("reset");
    SYS_ioctl, Is(REQUEST, KVM_GET_XCRS) => Seen("reset, snapshot");
    SYS_ioctl, Is(REQUEST, KVM_SET_XCRS) => Seen("reset, restore");
    SYS_ioctl, Is(REQUEST, KVM_GET_DEBUGREGS) => Seen("reset, snapshot");
    SYS_ioctl, Is(REQUEST, KVM_SET_DEBUGREGS) => Seen("reset, restore");
    SYS_ioctl, Is(REQUEST, KVM_GET_LAPIC) => Seen("reset, snapshot");
    SYS_ioctl, Is(REQUEST, KVM_SET_LAPIC) => Seen("reset, restore");
    SYS_ioctl, Is(REQUEST, KVM_GET_VCPU_EVENTS) => Seen("reset, snapshot");
    SYS_ioctl, Is(REQUEST, KVM_SET_VCPU_EVENTS) => Seen("reset, restore");
    SYS_ioctl, Is(REQUEST, KVM_GET_MP_STATE) => Seen("reset, snapshot");
    SYS_ioctl, Is(REQUEST, KVM_SET_MP_STATE) => Seen("reset, restore");
    SYS_ioctl, Is(REQUEST, KVM_GET_MSR_INDEX_LIST) => Seen("reset, snapshot");
    SYS_ioctl, Is(REQUEST, KVM_GET_MSRS) => Seen("reset, snapshot");
    SYS_ioctl, Is(REQUEST, KVM_SET_MSRS) => Seen("reset, restore");
    // Snapshot and restore alone.
    SYS_ioctl, Is(REQUEST, KVM_GET_XSAVE) => Seen("snapshot");
    SYS_ioctl, Is(REQUEST, KVM_SET_XSAVE) => Seen("restore");
    SYS_ioctl, Is(REQUEST, KVM_GET_XSAVE2) => Unseen("snapshot where guests have AMX, for which the starter must ask");
    SYS_ioctl, Is(REQUEST, KVM_GET_NESTED_STATE) => Unseen("snapshot on hosts with nested guests");
    SYS_ioctl, Is(REQUEST, KVM_SET_NESTED_STATE) => Unseen("restore of a guest with guests of its own");
    SYS_ioctl, Is(REQUEST, KVM_GET_TSC_KHZ) => Unseen("snapshot on hosts that can tell");
    SYS_ioctl, Is(REQUEST, KVM_SET_TSC_KHZ) => Unseen("restore on hosts that can scale the TSC");
    SYS_ioctl, Is(REQUEST, KVM_CHECK_EXTENSION) => Seen("restore");
    // vhost-net: the guest starts and resets its NIC, the machine thread brings it to rest. The host of the
    // bare-metal test guest has none.
    SYS_ioctl, Is(REQUEST, VHOST_SET_MEM_TABLE) => Unseen("guest memory for vhost-net");
    SYS_ioctl, Is(REQUEST, VHOST_SET_FEATURES) => Unseen("the features of vhost-net");
    SYS_ioctl, Is(REQUEST, VHOST_SET_LOG_BASE) => Unseen("vhost-net logs what it writes");
    SYS_ioctl, Is(REQUEST, VHOST_SET_VRING_NUM) => Unseen("a ring of vhost-net");
    SYS_ioctl, Is(REQUEST, VHOST_SET_VRING_ADDR) => Unseen("a ring of vhost-net");
    SYS_ioctl, Is(REQUEST, VHOST_SET_VRING_BASE) => Unseen("a ring of vhost-net");
    SYS_ioctl, Is(REQUEST, VHOST_GET_VRING_BASE) => Unseen("a ring of vhost-net comes to rest");
    SYS_ioctl, Is(REQUEST, VHOST_SET_VRING_KICK) => Unseen("a ring of vhost-net");
    SYS_ioctl, Is(REQUEST, VHOST_SET_VRING_CALL) => Unseen("a ring of vhost-net");
    SYS_ioctl, Is(REQUEST, VHOST_SET_VRING_ERR) => Unseen("a ring of vhost-net");
    SYS_ioctl, Is(REQUEST, VHOST_NET_SET_BACKEND) => Unseen("vhost-net begins and ends");
};
