//! Guest memory as it is asked for, and how it comes to be.

pub(crate) mod error;

use std::num::NonZeroUsize;

use vmm_kvm::KvmHost;
use vmm_memory::{
    GuestRam, Layout, Pages, PopulateOptions, RamError, clear_populated, clear_ram, create_ram_of,
    place_ram, populate, slots_needed,
};
use vmm_sys::affinity;

use crate::build::error::BuildError;
use crate::memory::error::TooManySlots;
use crate::numa::{self, NumaNode};
use crate::status::StatusBoard;

/// RAM of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// At power-on, in bytes.
    pub bytes: u64,
    /// What it may ever grow to, in bytes; at least `bytes`.
    pub max_bytes: u64,
    /// What it is made of.
    pub pages: Pages,
    /// Whether all of it is allocated before the guest runs. Pages of a pool always are.
    pub prefault: bool,
}

impl MemoryConfig {
    /// Ordinary memory of `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self {
            bytes,
            max_bytes: bytes,
            pages: Pages::Ordinary,
            prefault: false,
        }
    }

    fn is_populated(&self) -> bool {
        self.prefault || self.pages.are_pooled()
    }
}

/// Says where RAM is to be, for guests of `host`, which must have memslots for all that there may
/// ever be.
pub(crate) fn lay_out(config: &MemoryConfig, host: &KvmHost) -> Result<Layout, BuildError> {
    let layout = Layout::with_max(config.bytes, config.max_bytes, host.address_bits())?;
    let (needed, limit) = (slots_needed(&layout), host.max_memslots());
    if usize::try_from(needed).is_ok_and(|needed| needed <= limit) {
        Ok(layout)
    } else {
        Err(TooManySlots { needed, limit }.into())
    }
}

/// Makes RAM, puts it on the nodes of the host that it is to lie on, and allocates it if that is to
/// be done now. A cancellation is set on `board`.
pub(crate) fn make_ram(
    config: &MemoryConfig,
    nodes: &[NumaNode],
    layout: &Layout,
    board: &StatusBoard,
) -> Result<GuestRam, RamError> {
    let ram = create_ram_of(layout, config.pages)?;
    for (number, range) in numa::ranges(nodes, layout) {
        let node = usize::try_from(number).ok().and_then(|at| nodes.get(at));
        if let Some(host) = node.and_then(|node| node.host.as_ref()) {
            place_ram(&ram, range, host)?;
        }
    }
    if config.is_populated() {
        populate(&ram, config.pages, options(board))?;
    }
    Ok(ram)
}

/// Makes RAM zero again. What was allocated before the guest ran stays allocated.
pub(crate) fn clear(
    config: &MemoryConfig,
    ram: &GuestRam,
    board: &StatusBoard,
) -> Result<(), RamError> {
    if !config.is_populated() {
        return clear_ram(ram);
    }
    match clear_populated(ram, config.pages, options(board)) {
        // The end that was asked for is what the machine thread comes to next.
        Err(RamError::Cancelled) => Ok(()),
        outcome => outcome,
    }
}

/// As many threads as the calling one may use CPUs.
fn options(board: &StatusBoard) -> PopulateOptions<'_> {
    let cpus = affinity::of_this_thread().map_or(1, |cpus| cpus.count());
    PopulateOptions {
        threads: NonZeroUsize::new(cpus).unwrap_or(NonZeroUsize::MIN),
        cancelled: board.end_wanted(),
    }
}
