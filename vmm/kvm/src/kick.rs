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
        let thread = unsafe { libc::gettid() };
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

fn kick_signal() -> libc::c_int {
    libc::SIGRTMIN()
}

extern "C" fn ignore_signal(_: libc::c_int) {}

/// Installs the handler of the kick signal, which does nothing but interrupt system calls. Once per
/// process, before the first vCPU runs.
///
/// # Errors
/// The kernel's; none is expected.
pub fn install_kick_handler() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ignore_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the action is initialised, without SA_RESTART, and its handler touches nothing.
    let result = unsafe { libc::sigaction(kick_signal(), &raw const action, std::ptr::null_mut()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
