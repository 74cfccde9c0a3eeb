//! Guest memory: memfds, regions, layout.
//!
//! Owns where things are in guest-physical address space ([`Layout`]) and how RAM is made
//! ([`create_ram`]). RAM is a memfd, so that snapshot, fork and handing a guest to another process
//! need no copy.

mod dirty;
mod layout;
mod load;
mod ram;

pub use dirty::{
    DIRTY_PAGE_BYTES, DirtyLog, DirtyPages, DirtySlice, start_dirty_log, stop_dirty_log,
    take_dirty_log,
};
pub use layout::{ECAM_BASE, ECAM_BYTES, Layout, LayoutError, MMIO32_END, Window};
pub use load::{LoadError, load_file};
pub use ram::{GuestRam, RamError, clear_ram, create_ram};
