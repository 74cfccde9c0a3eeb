//! ACPI tables for firmware to place: those of direct boot, with the addresses that firmware chose.

use std::sync::Arc;

use vmm_kvm::CpuTopology;
use vmm_memory::Layout;

use super::script::{self, GenerationPointer};
use crate::acpi::{self, Addresses, Described, DescribedPci, PM_BASE, TableSet};
use crate::firmware::decode::Decode;
use crate::firmware::error::FirmwareError;
use crate::fixed_devices::FixedDevices;
use crate::generation_id::GenerationId;
use crate::numa::NumaNode;

/// Where the generation id is within its file, so that no firmware takes it for the header of a table
/// (QEMU, `docs/specs/vmgenid.rst`).
const GENERATION_OFFSET: u32 = 40;
/// The file is a page: what is in it is the guest's alone.
const GENERATION_BYTES: usize = 4096;
/// An address that the DSDT tells in four bytes, for another one to be put there.
const SOMEWHERE: u64 = 0x7fff_ffff;
/// `Name (ADDR, Package (2) { DWord` of AML (ACPI 6.3, 20.2).
const ADDRESS_FIELD: [u8; 9] = [0x08, b'A', b'D', b'D', b'R', 0x12, 8, 2, 0x0c];

/// What tables are made of, whenever firmware looks at them.
#[derive(Clone, Debug)]
pub(super) struct TableSource {
    pub(super) layout: Layout,
    pub(super) pci: DescribedPci,
    pub(super) topology: CpuTopology,
    pub(super) nodes: Vec<NumaNode>,
    pub(super) has_generation: bool,
    pub(super) fixed: FixedDevices,
    pub(super) decode: Arc<Decode>,
}

/// The files that firmware makes tables of.
pub(super) struct TableFiles {
    pub(super) root: Vec<u8>,
    pub(super) tables: Vec<u8>,
    pub(super) script: Vec<u8>,
}

impl TableSource {
    /// The files as they are now. Their lengths never change.
    pub(super) fn files(&self) -> Result<TableFiles, FirmwareError> {
        let addresses = Addresses::chosen(
            &self.layout,
            self.decode.ecam_base(),
            self.decode.power().unwrap_or(PM_BASE),
        );
        let mut set = acpi::tables(&Described {
            layout: &self.layout,
            addresses,
            pci: &self.pci,
            topology: self.topology,
            nodes: &self.nodes,
            vm_gen_id: self.has_generation.then_some(SOMEWHERE),
            fixed: self.fixed,
        });
        let generation = self
            .has_generation
            .then(|| generation_pointer(&mut set))
            .transpose()?;
        let (root, tables, _) = set.hand_over();
        Ok(TableFiles {
            root: root.to_vec(),
            tables: tables.to_vec(),
            script: script::script(&set, generation),
        })
    }
}

fn generation_pointer(set: &mut TableSet) -> Result<GenerationPointer, FirmwareError> {
    let (_, tables, _) = set.hand_over();
    let mut places = tables.windows(ADDRESS_FIELD.len());
    let found = places.position(|bytes| bytes == ADDRESS_FIELD);
    let at = found.ok_or(FirmwareError::Generation)? + ADDRESS_FIELD.len();
    set.set_number(at, 4, GENERATION_OFFSET.into());
    Ok(GenerationPointer {
        at,
        offset: GENERATION_OFFSET,
        align: u32::try_from(GENERATION_BYTES).unwrap_or(0),
    })
}

/// The file of the generation id.
pub(super) fn generation_file(id: GenerationId) -> Vec<u8> {
    let mut file = vec![0; GENERATION_BYTES];
    let offset = usize::try_from(GENERATION_OFFSET).unwrap_or(0);
    for (to, from) in file.iter_mut().skip(offset).zip(id) {
        *to = from;
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> TableSource {
        TableSource {
            layout: Layout::new(3 << 30, 40).unwrap().with_open_windows(),
            pci: DescribedPci {
                last_bus: 4,
                ..DescribedPci::default()
            },
            topology: CpuTopology::new(2, 2, 1).unwrap(),
            nodes: Vec::new(),
            has_generation: true,
            fixed: FixedDevices::ALL,
            decode: Arc::new(Decode::power_on()),
        }
    }

    #[test]
    fn tables_tell_where_firmware_put_things_and_keep_their_lengths() {
        let source = source();
        let before = source.files().unwrap();
        source.decode.set_ecam(0xe000_0001);
        source.decode.set_power(0xb000, true);
        let after = source.files().unwrap();
        let lengths =
            |files: &TableFiles| [files.root.len(), files.tables.len(), files.script.len()];
        assert_eq!(lengths(&before), lengths(&after));
        let at = after.tables.windows(4).position(|name| name == b"MCFG");
        let base = &after.tables[at.unwrap() + 44..][..8];
        assert_eq!(base, 0xe000_0000u64.to_le_bytes());
        let at = after.tables.windows(4).position(|name| name == b"FACP");
        let timer = &after.tables[at.unwrap() + 76..][..4];
        assert_eq!(timer, 0xb008u32.to_le_bytes());
    }

    /// A guest that was saved under an earlier release has files of these lengths.
    #[test]
    fn files_are_those_of_earlier_releases_byte_for_byte() {
        let sums = [false, true].map(|isa_pvpanic| {
            let source = TableSource {
                fixed: FixedDevices { isa_pvpanic },
                ..source()
            };
            let files = source.files().unwrap();
            [files.root, files.tables, files.script]
                .map(|file| (file.len(), crc32fast::hash(&file)))
        });
        let root = (36, 0x508a_6ef8);
        assert_eq!(sums[0], [root, (1348, 0xfb94_70c1), (2816, 0x3896_c96a)]);
        assert_eq!(sums[1], [root, (1348, 0x1196_1fe4), (2816, 0xc448_72bc)]);
    }

    #[test]
    fn the_id_is_pointed_to_before_its_table_is_summed() {
        let files = source().files().unwrap();
        assert_eq!(files.script.len() % 128, 0);
        let entries: Vec<(u32, &[u8])> = files
            .script
            .chunks(128)
            .map(|entry| {
                (
                    u32::from_le_bytes(entry[..4].try_into().unwrap()),
                    &entry[4..],
                )
            })
            .collect();
        let commands: Vec<u32> = entries.iter().map(|(command, _)| *command).collect();
        assert_eq!(commands[..6], [1, 1, 1, 2, 4, 3]);
        let (_, pointer) = entries[3];
        assert!(pointer.starts_with(b"etc/acpi/tables\0"));
        assert!(pointer[56..].starts_with(b"etc/vmgenid_guid\0"));
        let at = u32::from_le_bytes(pointer[112..116].try_into().unwrap()) as usize;
        assert_eq!(pointer[116], 4);
        assert_eq!(files.tables[at..at + 4], [40, 0, 0, 0]);
        let (_, write) = entries[4];
        assert!(write.starts_with(b"etc/vmgenid_addr\0"));
        assert_eq!(
            generation_file([7; 16])[40..57],
            [&[7; 16][..], &[0]].concat()
        );
    }
}
