//! Guest memory: memfds, regions, layout.
//!
//! Owns where things are in guest-physical address space ([`Layout`]) and how RAM is made
//! ([`create_ram`]). RAM is a memfd, so that snapshot, fork and handing a guest to another process
//! need no copy.

mod layout;
mod load;
mod ram;

pub use layout::{ECAM_BASE, ECAM_BYTES, Layout, LayoutError, MMIO32_END, Window};
pub use load::{LoadError, load_file};
pub use ram::{GuestRam, RamError, clear_ram, create_ram};
