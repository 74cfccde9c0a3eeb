//! What the process gives up before it takes orders.

use vmm_sys::harden::{HardenError, drop_capabilities, forbid_dumps, forbid_new_privileges};
use vmm_sys::signal::{Signal, ignore};

/// First thing: nothing of the guest may land in a core file, nothing may be gained by an exec.
pub fn at_start() -> Result<(), Box<dyn std::error::Error>> {
    forbid_dumps()?;
    forbid_new_privileges()?;
    // Clients that hang up are errors of their sockets.
    ignore(Signal::SIGPIPE)?;
    Ok(())
}

/// Before the first peer is heard: no capabilities are left.
pub fn before_serving() -> Result<(), HardenError> {
    drop_capabilities()
}
