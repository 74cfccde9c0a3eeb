//! Safe wrappers of the system interfaces that a VMM needs and the standard library does not have.
//!
//! The room owns: frames with descriptors on a Unix socket ([`frame`]), peers' credentials
//! ([`peer`]), inherited sockets ([`listen`]), taps ([`tap`]), file and tap transfers straight from
//! and to guest memory ([`guest_io`]), random bytes ([`entropy`]), signals ([`signal`]) and giving
//! up privileges ([`harden`]). It knows nothing of devices and takes no decisions.

pub mod entropy;
pub mod frame;
pub mod guest_io;
pub mod harden;
pub mod listen;
pub mod peer;
pub mod signal;
pub mod tap;
