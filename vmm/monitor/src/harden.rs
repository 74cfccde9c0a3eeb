//! What the process gives up before it takes orders.

use vmm_sys::harden::{drop_capabilities, forbid_dumps, forbid_new_privileges};
use vmm_sys::signal::{Signal, ignore};

use crate::system_calls;

/// First thing: nothing of the guest may land in a core file, nothing may be gained by an exec.
pub fn at_start() -> Result<(), Box<dyn std::error::Error>> {
    forbid_dumps()?;
    forbid_new_privileges()?;
    // Clients that hang up are errors of their sockets.
    ignore(Signal::SIGPIPE)?;
    Ok(())
}

/// Before the first peer is heard and the first thread starts: no capabilities are left, and only
/// the system calls of a running VMM.
pub fn before_serving() -> Result<(), Box<dyn std::error::Error>> {
    drop_capabilities()?;
    system_calls::restrict()?;
    Ok(())
}
