//! The machine that the tables tell of.

use vmm_kvm::CpuTopology;
use vmm_memory::Layout;

use super::addresses::Addresses;
use super::named::NamedFunction;
use crate::fixed_devices::FixedDevices;
use crate::numa::NumaNode;

/// PCI as tables describe it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DescribedPci {
    /// The highest bus that a root port leads to; 0 without one. No other bus ever has devices.
    pub(crate) last_bus: u8,
    /// Functions that guests name by a number.
    pub(crate) named: Vec<NamedFunction>,
}

/// All that tables depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described<'a> {
    /// RAM.
    pub(crate) layout: &'a Layout,
    /// Where the chipset answers.
    pub(crate) addresses: Addresses,
    /// As firmware finds buses and functions at power-on.
    pub(crate) pci: &'a DescribedPci,
    /// Processors, those that may come included.
    pub(crate) topology: CpuTopology,
    /// NUMA nodes; empty: there is no SRAT.
    pub(crate) nodes: &'a [NumaNode],
    /// Guest-physical address of the 16 bytes of the generation id; `None`: there is no such device.
    /// The event [`VM_GEN_ID_EVENT`](super::hardware::VM_GEN_ID_EVENT) tells that they changed.
    pub(crate) vm_gen_id: Option<u64>,
    /// Devices at fixed ports beside those that all machines have.
    pub(crate) fixed: FixedDevices,
}
