//! What every thread does: allocate, wait for each other, log, and end with a record of why.

use super::rule::Arguments::{Any, Is, Lacks};
use super::rule::Reason::{Seen, Unseen};
use super::rule::{Rule, table};

const PROT_EXEC: u32 = 4;
const MADV_DONTNEED: u32 = 4;
const SIGABRT: u32 = 6;
const SIGBUS: u32 = 7;
const SIGSEGV: u32 = 11;
const SIGACTION_SIGNAL: u8 = 0;
const TGKILL_SIGNAL: u8 = 2;

/// The rules of all kinds.
pub const COMMON: &[Rule] = table! {
    // Memory of the allocator and of threads' stacks; never executable.
    SYS_mmap, Lacks(2, PROT_EXEC) => Seen("heap beyond 128 KiB");
    SYS_mprotect, Lacks(2, PROT_EXEC) => Seen("guard pages of stacks");
    SYS_munmap, Any => Seen("heap is given back");
    SYS_mremap, Any => Unseen("a large vector grows");
    SYS_brk, Any => Seen("the main heap grows and shrinks");
    SYS_madvise, Is(2, MADV_DONTNEED) => Seen("a thread that ends gives its stack back");
    // Each other.
    SYS_futex, Any => Seen("locks and channels");
    SYS_sched_yield, Any => Unseen("a channel whose other end is at work");
    SYS_write, Any => Seen("eventfds; the log on standard error");
    SYS_read, Any => Seen("eventfds");
    SYS_close, Any => Seen("descriptors that go with their owner");
    // Time, where the vDSO cannot tell it: another clock source than the TSC.
    SYS_clock_gettime, Any => Unseen("hosts whose clock is not the TSC");
    SYS_gettimeofday, Any => Unseen("hosts whose clock is not the TSC");
    // Signals.
    SYS_rt_sigprocmask, Any => Seen("around the start and the end of threads");
    SYS_rt_sigreturn, Any => Seen("the kick's handler returns");
    SYS_restart_syscall, Any => Unseen("a wait goes on after SIGSTOP and SIGCONT");
    SYS_sigaltstack, Any => Seen("a thread that ends gives up its signal stack");
    // The end. A panic of any thread writes the exit record and aborts.
    SYS_exit, Any => Seen("a thread ends");
    SYS_exit_group, Any => Seen("the process ends");
    SYS_ftruncate, Any => Seen("exit record; console log; memfd and snapshot files get their size");
    SYS_pwrite64, Any => Seen("exit record, console log, snapshot");
    SYS_getpid, Any => Seen("kicks; abort");
    SYS_gettid, Any => Seen("kicks; abort");
    SYS_tgkill, Is(TGKILL_SIGNAL, SIGABRT) => Unseen("a panic aborts");
    // Not of SIGSYS: the handler that tells forbidden calls is not replaced.
    SYS_rt_sigaction, Is(SIGACTION_SIGNAL, SIGABRT) => Unseen("abort");
    SYS_rt_sigaction, Is(SIGACTION_SIGNAL, SIGSEGV) => Unseen("a fault outside of a guard page has its default");
    SYS_rt_sigaction, Is(SIGACTION_SIGNAL, SIGBUS) => Unseen("a fault outside of a guard page has its default");
    SYS_getrandom, Any => Unseen("keys of hash tables, the allocator's tags");
};
