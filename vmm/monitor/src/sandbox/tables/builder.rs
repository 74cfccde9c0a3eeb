//! The machine's thread while it builds: what makes a VM, its memory, its devices and their threads.
//!
//! This is before the guest runs. The kernel image and a snapshot are read here; both are hostile, so
//! even now nothing can be opened, executed or connected.

use super::ioctls::{
    BLKPBSZGET, BLKSSZGET, KVM_CHECK_EXTENSION, KVM_CREATE_IRQCHIP, KVM_CREATE_PIT2,
    KVM_CREATE_VCPU, KVM_CREATE_VM, KVM_ENABLE_CAP, KVM_GET_API_VERSION, KVM_GET_SUPPORTED_CPUID,
    KVM_GET_SUPPORTED_HV_CPUID, KVM_GET_TSC_KHZ, KVM_GET_VCPU_MMAP_SIZE, KVM_REINJECT_CONTROL,
    KVM_SET_CLOCK, KVM_SET_CPUID2, KVM_SET_IDENTITY_MAP_ADDR, KVM_SET_TSC_KHZ, KVM_SET_TSS_ADDR,
    KVM_SET_USER_MEMORY_REGION, REQUEST, TUNGETIFF, TUNSETVNETHDRSZ,
};
use super::ioctls::{VHOST_GET_FEATURES, VHOST_SET_OWNER};
use super::rule::Arguments::{Any, Is};
use super::rule::Reason::{Seen, Unseen};
use super::rule::{Rule, table};
use super::threads::{PR_SET_NAME, THREAD_FLAGS};

const SIGACTION_SIGNAL: u8 = 0;
/// glibc's own `SIGSETXID`, below its `SIGRTMIN`.
const SETXID: u32 = 33;
/// `SIGRTMIN` as glibc has it.
const KICK: u32 = 34;
const FCNTL_COMMAND: u8 = 1;
const F_SETFL: u32 = 4;
const F_ADD_SEALS: u32 = 1033;
const F_DUPFD_CLOEXEC: u32 = 1030;
const MADV_DONTFORK: u32 = 10;
const MADV_HUGEPAGE: u32 = 14;
const MADV_DONTDUMP: u32 = 16;
const MADV_POPULATE_WRITE: u32 = 23;
const MADV_COLLAPSE: u32 = 25;

/// Its rules, and so those of the process before its threads are narrowed.
pub(super) const RULES: &[Rule] = table! {
    // Threads, and how they are narrowed.
    SYS_clone, Is(0, THREAD_FLAGS) => Seen("threads of devices and vCPUs");
    SYS_set_robust_list, Any => Seen("a thread starts");
    SYS_rseq, Any => Seen("a thread starts");
    SYS_prctl, Is(0, PR_SET_NAME) => Seen("a thread's name");
    SYS_rt_sigaction, Is(SIGACTION_SIGNAL, SETXID) => Seen("the C library starts its first thread");
    SYS_rt_sigaction, Is(SIGACTION_SIGNAL, KICK) => Seen("vCPUs can be kicked");
    SYS_sched_getaffinity, Any => Seen("where a thread's stack is");
    SYS_seccomp, Any => Seen("a thread is narrowed; a filter can only take away");
    // Before the main thread is narrowed.
    SYS_geteuid, Any => Seen("who may connect");
    // Guest memory.
    SYS_memfd_create, Any => Seen("guest memory");
    SYS_fcntl, Is(FCNTL_COMMAND, F_ADD_SEALS) => Seen("guest memory keeps its size");
    SYS_madvise, Is(2, MADV_DONTDUMP) => Seen("guest memory is in no core dump");
    SYS_madvise, Is(2, MADV_HUGEPAGE) => Seen("guest memory of transparent huge pages");
    SYS_mbind, Any => Seen("guest memory on nodes of the host");
    SYS_get_mempolicy, Any => Unseen("which nodes of a NUMA host there are");
    SYS_madvise, Is(2, MADV_POPULATE_WRITE) => Seen("memory that is allocated before the guest runs");
    SYS_madvise, Is(2, MADV_COLLAPSE) => Seen("huge pages under a kernel");
    SYS_preadv, Any => Seen("RAM comes from a snapshot");
    SYS_sched_setaffinity, Any => Seen("threads are pinned to CPUs");
    // Descriptors of devices.
    SYS_eventfd2, Any => Seen("kicks, calls, completions");
    SYS_epoll_create1, Any => Seen("a device thread's loop");
    SYS_timerfd_create, Any => Seen("rate limits");
    SYS_fcntl, Is(FCNTL_COMMAND, F_DUPFD_CLOEXEC) => Seen("a second owner of a descriptor");
    SYS_fcntl, Is(FCNTL_COMMAND, F_SETFL) => Seen("a tap is not waited for");
    SYS_ioctl, Is(REQUEST, TUNGETIFF) => Seen("what a tap is");
    SYS_ioctl, Is(REQUEST, TUNSETVNETHDRSZ) => Seen("a tap's header");
    SYS_fstatfs, Any => Seen("whether a disk's image is in memory");
    SYS_io_uring_setup, Any => Seen("a disk's ring");
    SYS_io_uring_register, Any => Seen("its file, its eventfd and its limits");
    SYS_io_uring_enter, Any => Seen("whether a ring works");
    SYS_madvise, Is(2, MADV_DONTFORK) => Seen("a ring's memory");
    SYS_ioctl, Is(REQUEST, BLKSSZGET) => Unseen("a disk is a block device of the host");
    SYS_ioctl, Is(REQUEST, BLKPBSZGET) => Unseen("a disk is a block device of the host");
    // KVM: the host, the VM, its vCPUs.
    SYS_ioctl, Is(REQUEST, KVM_GET_API_VERSION) => Seen("the host's KVM");
    SYS_ioctl, Is(REQUEST, KVM_CHECK_EXTENSION) => Seen("the host's KVM");
    SYS_ioctl, Is(REQUEST, KVM_GET_VCPU_MMAP_SIZE) => Seen("the host's KVM");
    SYS_ioctl, Is(REQUEST, KVM_GET_SUPPORTED_CPUID) => Seen("the host's CPU");
    SYS_ioctl, Is(REQUEST, KVM_GET_SUPPORTED_HV_CPUID) => Unseen("guests that are to find Hyper-V");
    SYS_ioctl, Is(REQUEST, KVM_CREATE_VM) => Seen("the VM");
    SYS_ioctl, Is(REQUEST, KVM_SET_IDENTITY_MAP_ADDR) => Seen("the VM");
    SYS_ioctl, Is(REQUEST, KVM_SET_TSS_ADDR) => Seen("the VM");
    SYS_ioctl, Is(REQUEST, KVM_CREATE_IRQCHIP) => Seen("the VM");
    SYS_ioctl, Is(REQUEST, KVM_CREATE_PIT2) => Seen("the VM");
    SYS_ioctl, Is(REQUEST, KVM_REINJECT_CONTROL) => Seen("missed ticks are dropped");
    SYS_ioctl, Is(REQUEST, KVM_ENABLE_CAP) => Seen("Hyper-V's and x2APIC's capabilities");
    SYS_ioctl, Is(REQUEST, KVM_SET_USER_MEMORY_REGION) => Seen("guest memory");
    SYS_ioctl, Is(REQUEST, KVM_CREATE_VCPU) => Seen("a vCPU");
    SYS_ioctl, Is(REQUEST, KVM_SET_CPUID2) => Seen("a vCPU");
    SYS_ioctl, Is(REQUEST, KVM_GET_TSC_KHZ) => Unseen("guests that ask for a frequency of their TSC");
    SYS_ioctl, Is(REQUEST, KVM_SET_TSC_KHZ) => Unseen("hosts that can scale the TSC");
    SYS_ioctl, Is(REQUEST, KVM_SET_CLOCK) => Seen("a snapshot's clock goes on");
    // vhost-net. The host of the bare-metal test guest has none.
    SYS_ioctl, Is(REQUEST, VHOST_GET_FEATURES) => Unseen("what vhost-net can do");
    SYS_ioctl, Is(REQUEST, VHOST_SET_OWNER) => Unseen("vhost-net works for this process");
};
