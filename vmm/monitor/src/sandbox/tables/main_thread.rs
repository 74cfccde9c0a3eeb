//! The main thread: the control socket, its peers, the console, signals, the exit record.

use super::ioctls::{FIONBIO, REQUEST};
use super::rule::Arguments::{Any, Is};
use super::rule::Reason::{Seen, Unseen};
use super::rule::{Rule, table};

const FCNTL_COMMAND: u8 = 1;
const F_GETFL: u32 = 3;
const F_SETFL: u32 = 4;

const STAT_FLAGS: u8 = 3;
const AT_EMPTY_PATH: u32 = 0x1000;

/// Calls that the main thread may make.
pub(super) const RULES: &[Rule] = table! {
    SYS_epoll_wait, Any => Seen("the loop");
    SYS_epoll_ctl, Any => Seen("peers come and go");
    SYS_accept4, Any => Seen("peers connect");
    SYS_getsockopt, Any => Seen("a peer's user id; a console client's socket type");
    SYS_ioctl, Is(REQUEST, FIONBIO) => Seen("a peer's socket is not waited for");
    SYS_recvmsg, Any => Seen("frames with descriptors");
    SYS_timerfd_create, Any => Seen("the main thread's half of console ports");
    SYS_timerfd_settime, Any => Seen("the console output was read");
    SYS_recvfrom, Any => Seen("what a console client types");
    SYS_sendto, Any => Seen("what a console client is sent");
    SYS_fcntl, Is(FCNTL_COMMAND, F_GETFL) => Seen("how a descriptor was opened");
    SYS_fcntl, Is(FCNTL_COMMAND, F_SETFL) => Seen("a socket for a device is not waited for");
    SYS_eventfd2, Any => Seen("the main thread's half of console ports");
    SYS_epoll_create1, Any => Seen("the main thread's half of console ports");
    SYS_get_mempolicy, Any => Seen("nodes that a configuration names are those of the host");
    SYS_sched_setaffinity, Is(0, 0) => Seen("it is pinned where the machine's thread is");
    SYS_poll, Any => Seen("whether a console client is gone");
    SYS_newfstatat, Is(STAT_FLAGS, AT_EMPTY_PATH) => Seen("what a descriptor is");
    SYS_fstat, Any => Unseen("what a descriptor is, with other C libraries");
    SYS_statx, Any => Seen("length of the console log");
    SYS_pread64, Any => Seen("the head of a snapshot; the console log is cut");
};
