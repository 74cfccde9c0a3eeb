//! SMBIOS (DMTF DSP0134, version 3.0): what guests, and the tools of their users, know the machine by.
//!
//! As with ACPI's tables, who chooses addresses differs: the structures are a blob (`etc/smbios/smbios-tables`
//! of fw_cfg) without addresses in it, and the entry point (`etc/smbios/smbios-anchor`) one that the
//! blob's address is put into.

mod structure;
mod structures;
#[cfg(test)]
mod tests;

use proto_machine::smbios::SmbiosConfig;
use vm_memory::{Bytes, GuestAddress};
use vmm_kvm::CpuTopology;
use vmm_memory::{GuestRam, Layout};

use self::structure::Table;
use crate::boot::{SMBIOS_BASE, SMBIOS_BYTES};
use crate::fields::Fields;

const ANCHOR_BYTES: usize = 24;
const ANCHOR_CHECKSUM: usize = 5;
const ANCHOR_MOST_BYTES: usize = 0xc;
const ANCHOR_TABLE: usize = 0x10;
/// The entry point is searched for at multiples of this, so the structures may be there, too.
const ALIGN: u64 = 16;

/// SMBIOS cannot be handed to the guest.
#[derive(Debug, thiserror::Error)]
pub enum SmbiosError {
    /// Too many strings, processors or memory modules.
    #[error("{bytes} bytes of SMBIOS do not fit into {SMBIOS_BYTES} bytes")]
    TooLarge {
        /// Their size.
        bytes: u64,
    },
    /// Guest memory is smaller than 1 MiB.
    #[error("SMBIOS could not be written to guest memory")]
    Memory(#[source] vm_memory::GuestMemoryError),
}

/// The processors that SMBIOS lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processors {
    /// Sockets, those that may come included.
    pub(crate) topology: CpuTopology,
    /// EAX and EDX of CPUID 1, little-endian.
    pub(crate) id: [u8; 8],
}

/// Entry point and structures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Smbios {
    /// Without address and checksum.
    anchor: [u8; ANCHOR_BYTES],
    tables: Vec<u8>,
}

impl Smbios {
    /// All structures of a machine.
    pub(crate) fn new(config: &SmbiosConfig, processors: Processors, layout: &Layout) -> Self {
        let mut table = Table::default();
        table.add(structures::bios());
        table.add(structures::system(&config.system));
        let chassis = table.add(structures::chassis(&config.chassis));
        table.add(structures::base_board(&config.base_board, chassis));
        let Processors { topology, id } = processors;
        for socket in 0..topology.max_sockets() {
            table.add(structures::processor(socket, topology, id));
        }
        if !config.oem_strings.is_empty() {
            table.add(structures::oem_strings(&config.oem_strings));
        }
        structures::add_memory(&mut table, layout);
        table.add(structures::boot());
        table.add(structures::end());
        let tables = table.into_bytes();
        Self {
            anchor: anchor(tables.len()),
            tables,
        }
    }

    /// What firmware that places it is given: the entry point without address and checksum, and the
    /// structures.
    pub(crate) fn hand_over(self) -> (Vec<u8>, Vec<u8>) {
        (self.anchor.to_vec(), self.tables)
    }

    /// The entry point of structures that are at `address`.
    fn anchor_to(&self, address: u64) -> [u8; ANCHOR_BYTES] {
        let mut anchor = self.anchor;
        let mut fields = Fields(&mut anchor);
        fields.put(ANCHOR_TABLE, &address.to_le_bytes());
        fields.sum_to_zero(ANCHOR_CHECKSUM);
        anchor
    }
}

/// The 64-bit entry point (5.2.2).
fn anchor(table_bytes: usize) -> [u8; ANCHOR_BYTES] {
    let mut anchor = [0; ANCHOR_BYTES];
    let mut fields = Fields(&mut anchor);
    fields.put(0, b"_SM3_");
    let length = u8::try_from(ANCHOR_BYTES).unwrap_or(0);
    // Version 3.0, documentation revision 0, entry point revision 1.
    fields.put(6, &[length, 3, 0, 0, 1]);
    let most = u32::try_from(table_bytes).unwrap_or(u32::MAX);
    fields.put(ANCHOR_MOST_BYTES, &most.to_le_bytes());
    anchor
}

/// Places everything where guests that boot without firmware search.
pub(crate) fn write(ram: &GuestRam, smbios: &Smbios) -> Result<(), SmbiosError> {
    let at = SMBIOS_BASE + (ANCHOR_BYTES as u64).next_multiple_of(ALIGN);
    let bytes = at - SMBIOS_BASE + smbios.tables.len() as u64;
    if bytes > SMBIOS_BYTES {
        return Err(SmbiosError::TooLarge { bytes });
    }
    ram.write_slice(&smbios.anchor_to(at), GuestAddress(SMBIOS_BASE))
        .and_then(|()| ram.write_slice(&smbios.tables, GuestAddress(at)))
        .map_err(SmbiosError::Memory)
}
