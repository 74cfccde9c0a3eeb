//! What the process gives up before it takes orders.

use vmm_monitor::sandbox;
use vmm_sys::forbidden::install_sigsys_handler;
use vmm_sys::harden::{drop_capabilities, forbid_dumps, forbid_new_privileges, limit_open_files};
use vmm_sys::landlock::forbid_files;
use vmm_sys::signal::{Signal, ignore};
use vmm_sys::threads::Threads;

use crate::log::Log;

/// Most descriptors: 64 of a configuration, an eventfd or three for each queue.
const OPEN_FILES: u64 = 4096;

/// First thing: nothing of the guest may land in a core file, nothing may be gained by an exec.
pub fn at_start() -> Result<(), Box<dyn std::error::Error>> {
    forbid_dumps()?;
    install_sigsys_handler()?;
    forbid_new_privileges()?;
    limit_open_files(OPEN_FILES)?;
    // Clients that hang up are errors of their sockets.
    ignore(Signal::SIGPIPE)?;
    Ok(())
}

/// Before the first thread starts and the first peer is heard: no capabilities are left, no file can
/// be opened, and only the system calls of a VMM can be made. Returns what threads are started with.
pub fn before_threads(log: &Log) -> Result<Threads, Box<dyn std::error::Error>> {
    drop_capabilities()?;
    if forbid_files()?.is_none() {
        log.warn(
            "sandbox",
            "this kernel has no Landlock: seccomp alone keeps files from being opened",
        );
    }
    Ok(sandbox::enter()?)
}
