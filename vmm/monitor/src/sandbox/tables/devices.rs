//! Threads that serve devices: kicks, disks, taps, timers.

use super::ioctls::{BLKDISCARD, BLKZEROOUT, REQUEST, TUNSETOFFLOAD, TUNSETQUEUE};
use super::ioctls::{
    VHOST_GET_VRING_BASE, VHOST_NET_SET_BACKEND, VHOST_SET_FEATURES, VHOST_SET_LOG_BASE,
    VHOST_SET_MEM_TABLE, VHOST_SET_VRING_ADDR, VHOST_SET_VRING_BASE, VHOST_SET_VRING_CALL,
    VHOST_SET_VRING_ERR, VHOST_SET_VRING_KICK, VHOST_SET_VRING_NUM,
};
use super::rule::Arguments::{Any, Is};
use super::rule::Reason::{Seen, Unseen};
use super::rule::{Rule, table};

const FCNTL_COMMAND: u8 = 1;
const F_GETFL: u32 = 3;
const F_SETFL: u32 = 4;

/// Calls that threads of devices may make.
pub(super) const RULES: &[Rule] = table! {
    SYS_epoll_wait, Any => Seen("the loop");
    // Taps.
    SYS_readv, Any => Seen("a frame straight to guest memory");
    SYS_writev, Any => Seen("a frame from guest memory");
    SYS_ioctl, Is(REQUEST, TUNSETQUEUE) => Unseen("a driver uses more or fewer queues");
    SYS_ioctl, Is(REQUEST, TUNSETOFFLOAD) => Unseen("a driver changes its offloads");
    // Sockets of a socket device and of console ports: connections that were handed over, or come to
    // a socket that listens already.
    SYS_accept4, Any => Seen("a host program connects to the guest");
    SYS_getsockopt, Any => Seen("what a socket is");
    SYS_fcntl, Is(FCNTL_COMMAND, F_GETFL) => Seen("a socket is not waited for");
    SYS_fcntl, Is(FCNTL_COMMAND, F_SETFL) => Seen("a socket is not waited for");
    SYS_epoll_ctl, Any => Seen("connections come and go");
    SYS_poll, Any => Seen("whether a peer is gone");
    SYS_recvfrom, Any => Seen("from a peer to the guest");
    SYS_sendto, Any => Seen("from the guest to a peer");
    SYS_recvmsg, Any => Seen("a connection from the broker, as a descriptor");
    SYS_sendmsg, Any => Seen("the broker is asked for a connection");
    SYS_shutdown, Any => Seen("one side ends its half of a connection");
    // Disks by io_uring. What a ring does goes past this filter, so each was limited to what a disk needs
    // when the machine was built, and no thread that serves guests makes another.
    SYS_io_uring_enter, Any => Seen("requests");
    // Disks without it.
    SYS_preadv, Any => Seen("a read");
    SYS_pwritev, Any => Seen("a write");
    SYS_pread64, Any => Unseen("a read that O_DIRECT cannot take as it is");
    SYS_fdatasync, Any => Seen("a flush");
    SYS_fallocate, Any => Seen("discard and write-zeroes; memory that a balloon gives back");
    SYS_statx, Any => Unseen("how large the huge pages are that a balloon gives back");
    SYS_ioctl, Is(REQUEST, BLKDISCARD) => Unseen("discard on a block device of the host");
    SYS_ioctl, Is(REQUEST, BLKZEROOUT) => Unseen("write-zeroes on a block device of the host");
    SYS_timerfd_settime, Any => Seen("rate limits, statistics of a balloon, patience with peers");
    // Entropy: `getrandom` is a common rule.
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
