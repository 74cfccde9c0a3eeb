//! Tables as blobs, and a script that puts them into guest memory.
//!
//! Tables point to each other by address, and are summed with their pointers in. Who chooses the
//! addresses differs: the machine itself for direct boot, firmware otherwise. So the builder leaves
//! each pointer as an offset into the blob that it points to, each checksum as zero, and says in a
//! script what is to be done about them, in the terms of QEMU's table loader
//! (`hw/acpi/bios-linker-loader.c` there): allocate, add pointer, add checksum.

/// Where a blob may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// Anywhere below 4 GiB.
    Anywhere,
    /// Below 1 MiB, where guests search.
    Search,
}

/// Blobs of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlobName {
    /// The root pointer: `etc/acpi/rsdp` of fw_cfg.
    Root,
    /// All tables: `etc/acpi/tables` of fw_cfg.
    Tables,
}

/// One step of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Put a blob into memory. Comes once for each, before all that names it.
    Allocate {
        /// The blob to place.
        blob: BlobName,
        /// Alignment in bytes, a power of two.
        align: u64,
        /// Where in guest memory it may be placed.
        zone: Zone,
    },
    /// Add the address of `target` to the little-endian number of `bytes` bytes at `offset`.
    AddPointer {
        /// Where the pointer is.
        blob: BlobName,
        /// Offset of the pointer.
        offset: usize,
        /// Its width.
        bytes: usize,
        /// What it points into.
        target: BlobName,
    },
    /// Subtract the sum of `bytes` bytes from `start` on from the byte at `offset`, which is one of
    /// them, so that they sum up to zero.
    AddChecksum {
        /// The blob that is summed.
        blob: BlobName,
        /// Offset of the checksum.
        offset: usize,
        /// First byte that is summed.
        start: usize,
        /// Number of bytes that are summed.
        bytes: usize,
    },
}

/// A pointer within a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    /// Where in the table.
    pub(super) at: usize,
    /// Its width in bytes.
    pub(super) bytes: usize,
    /// Offset of the table that it leads to, among all tables.
    pub(super) to: usize,
}

/// Blobs and their script.
#[derive(Clone, Debug)]
pub(crate) struct TableSet {
    root: Vec<u8>,
    tables: Vec<u8>,
    steps: Vec<Step>,
}

/// A blob at its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlacedBlob {
    /// Guest-physical address.
    pub(crate) address: u64,
    /// Content, whole.
    pub(crate) bytes: Vec<u8>,
}

/// All blobs at their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlacedTables {
    /// The root pointer.
    pub(crate) root: PlacedBlob,
    /// All tables.
    pub(crate) tables: PlacedBlob,
}

/// Offset of the checksum in a table's header (ACPI 6.3, 5.2.6).
const TABLE_CHECKSUM: usize = 9;
/// FACS wants 64 byte alignment (ACPI 6.3, 5.2.10); it does no harm to the others.
const TABLE_ALIGN: usize = 64;

impl TableSet {
    pub(super) fn new() -> Self {
        let allocate = |blob, zone| Step::Allocate {
            blob,
            align: TABLE_ALIGN as u64,
            zone,
        };
        Self {
            root: Vec::new(),
            tables: Vec::new(),
            steps: vec![
                allocate(BlobName::Root, Zone::Search),
                allocate(BlobName::Tables, Zone::Anywhere),
            ],
        }
    }

    /// Appends what has no header; returns its offset.
    pub(super) fn add(&mut self, bytes: &[u8]) -> usize {
        let at = self.tables.len().next_multiple_of(TABLE_ALIGN);
        self.tables.resize(at, 0);
        self.tables.extend_from_slice(bytes);
        at
    }

    /// Appends a table with `pointers`; returns its offset.
    pub(super) fn add_table(&mut self, bytes: &[u8], pointers: &[Pointer]) -> usize {
        let start = self.add(bytes);
        for pointer in pointers {
            let offset = start + pointer.at;
            put(&mut self.tables, offset, pointer.bytes, pointer.to as u64);
            self.steps.push(Step::AddPointer {
                blob: BlobName::Tables,
                offset,
                bytes: pointer.bytes,
                target: BlobName::Tables,
            });
        }
        put(&mut self.tables, start + TABLE_CHECKSUM, 1, 0);
        self.steps.push(Step::AddChecksum {
            blob: BlobName::Tables,
            offset: start + TABLE_CHECKSUM,
            start,
            bytes: bytes.len(),
        });
        start
    }

    /// Sets the root pointer with its `pointer` and its checksums: where, and of how many bytes.
    pub(super) fn set_root(
        &mut self,
        bytes: &[u8],
        pointer: Pointer,
        checksums: &[(usize, usize)],
    ) {
        self.root = bytes.to_vec();
        put(&mut self.root, pointer.at, pointer.bytes, pointer.to as u64);
        self.steps.push(Step::AddPointer {
            blob: BlobName::Root,
            offset: pointer.at,
            bytes: pointer.bytes,
            target: BlobName::Tables,
        });
        for (offset, bytes) in checksums {
            put(&mut self.root, *offset, 1, 0);
            self.steps.push(Step::AddChecksum {
                blob: BlobName::Root,
                offset: *offset,
                start: 0,
                bytes: *bytes,
            });
        }
    }

    /// The content of a blob before the script has run.
    fn blob(&self, name: BlobName) -> &[u8] {
        match name {
            BlobName::Root => &self.root,
            BlobName::Tables => &self.tables,
        }
    }

    /// Runs the script. `allocate` gives an address for so many bytes with this alignment.
    pub(crate) fn place(&self, mut allocate: impl FnMut(Zone, u64, u64) -> u64) -> PlacedTables {
        let mut placed = PlacedTables::default();
        for step in &self.steps {
            match *step {
                Step::Allocate { blob, align, zone } => {
                    let bytes = self.blob(blob).to_vec();
                    let address = allocate(zone, align, bytes.len() as u64);
                    *placed.blob(blob) = PlacedBlob { address, bytes };
                }
                Step::AddPointer {
                    blob,
                    offset,
                    bytes,
                    target,
                } => {
                    let address = placed.blob(target).address;
                    let content = &mut placed.blob(blob).bytes;
                    let within = number(content, offset, bytes);
                    put(content, offset, bytes, within.wrapping_add(address));
                }
                Step::AddChecksum {
                    blob,
                    offset,
                    start,
                    bytes,
                } => {
                    let content = &mut placed.blob(blob).bytes;
                    let summed = content.get(start..start + bytes).unwrap_or_default();
                    let sum = summed.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
                    if let Some(checksum) = content.get_mut(offset) {
                        *checksum = checksum.wrapping_sub(sum);
                    }
                }
            }
        }
        placed
    }
}

impl PlacedTables {
    fn blob(&mut self, name: BlobName) -> &mut PlacedBlob {
        match name {
            BlobName::Root => &mut self.root,
            BlobName::Tables => &mut self.tables,
        }
    }
}

fn put(blob: &mut [u8], offset: usize, bytes: usize, value: u64) {
    let field = blob.get_mut(offset..offset + bytes).unwrap_or_default();
    for (to, from) in field.iter_mut().zip(value.to_le_bytes()) {
        *to = from;
    }
}

fn number(blob: &[u8], offset: usize, bytes: usize) -> u64 {
    let field = blob.get(offset..offset + bytes).unwrap_or_default();
    let places = field.iter().rev();
    places.fold(0, |value, byte| value << 8 | u64::from(*byte))
}

impl TableSet {
    /// What a loader that is not ours is given: root pointer, tables, script.
    pub(crate) fn hand_over(&self) -> (&[u8], &[u8], &[Step]) {
        (&self.root, &self.tables, &self.steps)
    }

    /// Sets a little-endian number within the tables.
    pub(crate) fn set_number(&mut self, offset: usize, bytes: usize, value: u64) {
        put(&mut self.tables, offset, bytes, value);
    }
}
