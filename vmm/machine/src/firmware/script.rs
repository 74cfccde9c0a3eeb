//! The script of tables as firmware reads it: QEMU's table loader (`hw/acpi/bios-linker-loader.c`
//! there), entries of 128 bytes.

use crate::acpi::{BlobName, Step, TableSet, Zone};

pub(super) const ROOT_FILE: &str = "etc/acpi/rsdp";
pub(super) const TABLES_FILE: &str = "etc/acpi/tables";
pub(super) const GENERATION_FILE: &str = "etc/vmgenid_guid";
/// Where firmware writes where it put the former.
pub(super) const GENERATION_ADDRESS_FILE: &str = "etc/vmgenid_addr";

const ENTRY_BYTES: usize = 128;
const NAME_BYTES: usize = 56;
const ALLOCATE: u32 = 1;
const ADD_POINTER: u32 = 2;
const ADD_CHECKSUM: u32 = 3;
const WRITE_POINTER: u32 = 4;
const ZONE_HIGH: u8 = 1;
const ZONE_SEARCH: u8 = 2;

/// Where the generation id is.
#[derive(Clone, Copy, Debug)]
pub(super) struct GenerationPointer {
    /// Offset of the field within the tables that is to have its address.
    pub(super) at: usize,
    /// Offset of the id within its file.
    pub(super) offset: u32,
    /// Alignment of the file in memory.
    pub(super) align: u32,
}

/// The whole script.
pub(super) fn script(set: &TableSet, generation: Option<GenerationPointer>) -> Vec<u8> {
    let (_, _, steps) = set.hand_over();
    let (allocations, rest): (Vec<Step>, Vec<Step>) = steps
        .iter()
        .partition(|step| matches!(step, Step::Allocate { .. }));
    let mut script: Vec<Vec<u8>> = allocations.into_iter().map(entry).collect();
    // Before the checksum of the table that the pointer is in.
    if let Some(generation) = generation {
        script.extend(generation_entries(generation));
    }
    script.extend(rest.into_iter().map(entry));
    script.concat()
}

fn generation_entries(generation: GenerationPointer) -> [Vec<u8>; 3] {
    let allocate = Entry::new(ALLOCATE)
        .name(GENERATION_FILE)
        .number(generation.align)
        .byte(ZONE_HIGH);
    let add = Entry::new(ADD_POINTER)
        .name(TABLES_FILE)
        .name(GENERATION_FILE)
        .number(small(generation.at))
        .byte(4);
    let write = Entry::new(WRITE_POINTER)
        .name(GENERATION_ADDRESS_FILE)
        .name(GENERATION_FILE)
        .number(0)
        .number(generation.offset)
        .byte(8);
    [allocate, add, write].map(Entry::finish)
}

fn entry(step: Step) -> Vec<u8> {
    let entry = match step {
        Step::Allocate { blob, align, zone } => Entry::new(ALLOCATE)
            .name(file(blob))
            .number(u32::try_from(align).unwrap_or(0))
            .byte(match zone {
                Zone::Anywhere => ZONE_HIGH,
                Zone::Search => ZONE_SEARCH,
            }),
        Step::AddPointer {
            blob,
            offset,
            bytes,
            target,
        } => Entry::new(ADD_POINTER)
            .name(file(blob))
            .name(file(target))
            .number(small(offset))
            .byte(u8::try_from(bytes).unwrap_or(0)),
        Step::AddChecksum {
            blob,
            offset,
            start,
            bytes,
        } => Entry::new(ADD_CHECKSUM)
            .name(file(blob))
            .number(small(offset))
            .number(small(start))
            .number(small(bytes)),
    };
    entry.finish()
}

fn file(blob: BlobName) -> &'static str {
    match blob {
        BlobName::Root => ROOT_FILE,
        BlobName::Tables => TABLES_FILE,
    }
}

/// Tables are far smaller than 4 GiB.
fn small(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

/// One entry in the making; numbers are little-endian.
struct Entry(Vec<u8>);

impl Entry {
    fn new(command: u32) -> Self {
        Self(command.to_le_bytes().to_vec())
    }

    fn name(mut self, name: &str) -> Self {
        let end = self.0.len() + NAME_BYTES;
        self.0.extend(name.as_bytes());
        self.0.resize(end, 0);
        self
    }

    fn number(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.resize(ENTRY_BYTES, 0);
        self.0
    }
}
