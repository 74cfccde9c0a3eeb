//! Guest memory: memfds, regions, layout.
//!
//! Owns where things are in guest-physical address space ([`Layout`]) and by which memslots KVM knows
//! them ([`memslots`]), how RAM is made ([`create_ram_of`]), of which pages and on which nodes of the
//! host ([`place_ram`]), and when it is allocated ([`populate`]). RAM is one memfd, so that snapshot,
//! fork and handing a guest to another process need no copy.

mod dirty;
mod guest_ram;
mod huge;
mod kernel_log;
mod layout;
mod load;
mod numa;
mod pages;
mod populate;
mod ram;
mod release;
mod rom;
mod slots;

pub use dirty::log::{DirtyLog, DirtySlice};
pub use dirty::pages::{DIRTY_PAGE_BYTES, DirtyPages};
pub use dirty::{is_dirty_log_on, kernel_log, start_dirty_log, stop_dirty_log, take_dirty_log};
pub use guest_ram::{GuestRam, RamError};
pub use huge::prefer_huge;
pub use kernel_log::KernelLog;
pub use layout::{ECAM_BASE, ECAM_BYTES, HOT_PLUG_ALIGN, Layout, LayoutError, MMIO32_END, Window};
pub use load::{LoadError, load_file, load_part};
pub use numa::{HostPlacement, HostPolicy, MAX_HOST_NODES, allowed_host_nodes, place_ram};
pub use pages::Pages;
pub use populate::{PopulateOptions, clear_populated, populate};
pub use ram::{clear_ram, create_ram, create_ram_of};
pub use release::{page_runs, release};
pub use rom::{RomError, RomMemory};
pub use slots::{AddressSpace, Memslot, OVERLAY_SLOTS, SlotNumber, memslots, slots_needed};
