//! Getting a vCPU out of `KVM_RUN`.
//!
//! A kick first sets `immediate_exit` in the vCPU's shared page, then sends the thread a signal. A
//! vCPU on its way into the guest sees the former, one within it is interrupted by the latter, so no
//! kick is lost. The vCPU thread clears the flag before it looks at what is wanted of it.

use std::io;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI32, Ordering};

use kvm_ioctls::KvmRunWrapper;

/// Kicks one vCPU.
#[derive(Debug)]
pub struct VcpuKick {
    /// A second mapping of the vCPU's shared page.
    page: Mutex<KvmRunWrapper>,
    /// Thread that runs the vCPU; 0 while there is none.
    thread: AtomicI32,
}

impl VcpuKick {
    pub(crate) fn new(page: KvmRunWrapper) -> Self {
        Self {
            page: Mutex::new(page),
            thread: AtomicI32::new(0),
        }
    }

    /// Tells that the calling thread runs the vCPU from now on.
    pub fn enter_thread(&self) {
        // SAFETY: gettid has no preconditions.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) };
        // The kernel's ids are below 2^22.
        let thread = i32::try_from(thread).unwrap_or_default();
        self.thread.store(thread, Ordering::SeqCst);
    }

    /// Tells that no thread runs the vCPU any more.
    pub fn leave_thread(&self) {
        self.thread.store(0, Ordering::SeqCst);
    }

    /// Makes the vCPU return from `KVM_RUN` now, or at once when it enters next.
    ///
    /// # Errors
    /// The kernel's; none is expected.
    pub fn kick(&self) -> io::Result<()> {
        self.set_immediate_exit(1);
        let thread = self.thread.load(Ordering::SeqCst);
        if thread == 0 {
            return Ok(());
        }
        // SAFETY: tgkill only reads its arguments. Should the thread have ended and its id be in use
        // again within this process, the handler there does nothing.
        let result =
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, kick_signal()) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::ESRCH) {
            return Ok(());
        }
        Err(error)
    }

    /// Has the vCPU return as it enters next, after it finished the access that was answered last.
    pub fn hold_back(&self) {
        self.set_immediate_exit(1);
    }

    /// Takes note of all kicks so far. To be called by the vCPU thread before it looks at what is
    /// wanted of it.
    pub fn acknowledge(&self) {
        self.set_immediate_exit(0);
    }

    fn set_immediate_exit(&self, value: u8) {
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let flag = &raw mut page.as_mut_ref().immediate_exit;
        // SAFETY: the flag lies in a mapping that lives as long as `self`; the kernel reads it at
        // any time, hence volatile.
        unsafe { flag.write_volatile(value) };
    }
}

/// The signal that kicks. Whoever runs vCPUs gives it a handler that does nothing, without
/// `SA_RESTART`, before the first one runs.
#[must_use]
pub fn kick_signal() -> libc::c_int {
    libc::SIGRTMIN()
}
