//! The machine thread: holds it, resets it, saves it, ends it.

use super::ioctls::{
    KVM_GET_CLOCK, KVM_GET_IRQCHIP, KVM_GET_PIT2, KVM_IOEVENTFD, KVM_IRQ_LINE, KVM_IRQFD,
    KVM_REGISTER_COALESCED_MMIO, KVM_SET_IRQCHIP, KVM_SET_PIT2, KVM_SET_USER_MEMORY_REGION,
    KVM_UNREGISTER_COALESCED_MMIO, REQUEST,
};
use super::ioctls::{
    VHOST_GET_VRING_BASE, VHOST_NET_SET_BACKEND, VHOST_SET_FEATURES, VHOST_SET_LOG_BASE,
    VHOST_SET_MEM_TABLE, VHOST_SET_VRING_ADDR, VHOST_SET_VRING_BASE, VHOST_SET_VRING_CALL,
    VHOST_SET_VRING_ERR, VHOST_SET_VRING_KICK, VHOST_SET_VRING_NUM,
};
use super::rule::Arguments::{Any, Is};
use super::rule::Reason::{Seen, Unseen};
use super::rule::{Rule, table};
use super::threads::{PR_SET_NAME, THREAD_FLAGS};

const TGKILL_SIGNAL: u8 = 2;
/// `SIGRTMIN` as glibc has it.
const KICK: u32 = 34;

const MADV_POPULATE_WRITE: u32 = 23;
const MADV_COLLAPSE: u32 = 25;

/// Calls that the machine's thread may make.
pub(super) const RULES: &[Rule] = table! {
    SYS_tgkill, Is(TGKILL_SIGNAL, KICK) => Seen("a vCPU is to leave the guest");
    SYS_ioctl, Is(REQUEST, KVM_REGISTER_COALESCED_MMIO) => Seen("PCI addresses are written late as a guest starts");
    SYS_ioctl, Is(REQUEST, KVM_UNREGISTER_COALESCED_MMIO) => Seen("they no longer are once it is up");
    // Reset: RAM is emptied, chips are as at power-on, the kernel is loaded anew.
    SYS_fallocate, Any => Seen("RAM is emptied");
    SYS_lseek, Any => Seen("the kernel is read; a snapshot's holes; a disk's size");
    SYS_pread64, Any => Seen("the kernel is read");
    SYS_ioctl, Is(REQUEST, KVM_SET_IRQCHIP) => Seen("reset");
    SYS_ioctl, Is(REQUEST, KVM_SET_PIT2) => Seen("reset");
    SYS_ioctl, Is(REQUEST, KVM_IOEVENTFD) => Seen("reset unmaps BARs");
    SYS_ioctl, Is(REQUEST, KVM_IRQFD) => Unseen("reset of a function whose driver still has its interrupts");
    SYS_ioctl, Is(REQUEST, KVM_IRQ_LINE) => Seen("the power button's interrupt");
    SYS_ioctl, Is(REQUEST, KVM_SET_USER_MEMORY_REGION) => Unseen("reset shows firmware below 1 MiB again");
    // Memory that was allocated before the guest ran is emptied by several threads; they are as narrow
    // as this one.
    SYS_clone, Is(0, THREAD_FLAGS) => Unseen("reset of memory that is to stay allocated");
    SYS_set_robust_list, Any => Unseen("a thread starts");
    SYS_rseq, Any => Unseen("a thread starts");
    SYS_prctl, Is(0, PR_SET_NAME) => Unseen("a thread's name");
    SYS_sched_getaffinity, Any => Seen("how many threads there may be; a thread's stack");
    SYS_madvise, Is(2, MADV_POPULATE_WRITE) => Seen("reset of memory that is to stay allocated");
    SYS_madvise, Is(2, MADV_COLLAPSE) => Seen("huge pages under a kernel that is loaded anew");
    // Disks: brought to rest, grown, limited.
    SYS_io_uring_enter, Any => Unseen("requests in flight are waited for");
    SYS_statx, Any => Unseen("an image's block size");
    SYS_timerfd_settime, Any => Seen("reset and rest of watchdogs, balloons and limits");
    // Connections of devices that are reset.
    SYS_epoll_ctl, Any => Unseen("connections of a socket device end with its reset");
    // Snapshots.
    SYS_ioctl, Is(REQUEST, KVM_GET_CLOCK) => Seen("snapshot");
    SYS_ioctl, Is(REQUEST, KVM_GET_IRQCHIP) => Seen("snapshot");
    SYS_ioctl, Is(REQUEST, KVM_GET_PIT2) => Seen("snapshot");
    SYS_pwritev, Any => Seen("RAM goes into a snapshot");
    SYS_fdatasync, Any => Seen("disks, then RAM of a snapshot are on disk before its head; a disk grows");
    SYS_fsync, Any => Seen("a snapshot is on disk");
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
