//! One qcow2 image: where the disk's bytes are in its file.
//!
//! Source: QEMU's `docs/interop/qcow2.txt`, "Cluster mapping".

mod check;
mod compressed;
mod entry;
mod extensions;
mod features;
mod header;
mod refcounts;
mod snapshots;
mod used;

pub use self::compressed::Compression;
use self::compressed::Decoder;
pub(super) use self::entry::Mapping;
use self::header::ENTRY_BYTES;
pub(super) use self::header::Header;
use super::error::DiskError;
use super::format::{be64, index};
use super::source::Source;

/// An image whose header was read and whose tables are read as they are needed.
pub(super) struct Qcow2 {
    source: Source,
    header: Header,
    /// The L2 table that was read last, by its index in the L1 table.
    l2: Option<(u64, Vec<u8>)>,
    decoder: Decoder,
}

/// A run of bytes of the disk that are alike.
pub(super) struct Run {
    pub(super) length: u64,
    pub(super) mapping: Mapping,
}

impl Qcow2 {
    pub(super) fn new(source: Source, header: Header) -> Self {
        let decoder = Decoder::new(header.compression);
        Self {
            source,
            header,
            l2: None,
            decoder,
        }
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// What the image has for the bytes from `at` on, which lie inside of the disk; at most `most`.
    pub(super) fn find(&mut self, at: u64, most: u64) -> Result<Run, DiskError> {
        let first = self.mapping(at)?;
        let unit = match first {
            Mapping::Compressed { .. } => self.header.cluster_bytes(),
            _ => self.header.unit_bytes(),
        };
        let mut length = if first == Mapping::Unallocated && self.l2_of(at)?.is_none() {
            let covered = self.header.l2_covers_bytes();
            covered - at % covered
        } else {
            unit - at % unit
        };
        // Neighbours of the same kind within the same L2 table.
        let l1_index = self.header.l1_index(at);
        while length < most && self.header.l1_index(at + length) == l1_index {
            let expected = match first {
                Mapping::Compressed { .. } => break,
                Mapping::Data { offset } => Mapping::Data {
                    offset: offset + length,
                },
                other => other,
            };
            if self.mapping(at + length)? != expected {
                break;
            }
            length += unit;
        }
        Ok(Run {
            length: length.min(most),
            mapping: first,
        })
    }

    /// Fills `buffer` with the disk's bytes from `at` on, which [`Self::find`] found as `mapping`.
    pub(super) fn read(
        &mut self,
        mapping: Mapping,
        at: u64,
        buffer: &mut [u8],
    ) -> Result<(), DiskError> {
        match mapping {
            Mapping::Unallocated | Mapping::Zero => buffer.fill(0),
            Mapping::Data { offset } => {
                let what = format_args!("the disk's data at {at:#x}");
                self.source.read(what, offset, buffer)?;
            }
            Mapping::Compressed { offset, length } => {
                let cluster = self.header.cluster_bytes();
                let start = at - at % cluster;
                let plain =
                    self.decoder
                        .cluster(&self.source, (offset, length), (start, cluster))?;
                let from = plain.get(index(at - start)..).unwrap_or_default();
                for (to, from) in buffer.iter_mut().zip(from) {
                    *to = *from;
                }
            }
        }
        Ok(())
    }

    /// What the cluster or subcluster that holds the byte at `at` is; the offset of data is that of this byte.
    fn mapping(&mut self, at: u64) -> Result<Mapping, DiskError> {
        let (cluster, unit) = (self.header.cluster_bytes(), self.header.unit_bytes());
        let place = self.header.l2_index(at) * self.header.l2_entry_bytes();
        let Some(table) = self.l2_of(at)? else {
            return Ok(Mapping::Unallocated);
        };
        let entry = be64(table, index(place));
        let mapping = if unit == cluster {
            entry::mapping(&self.header, entry)
        } else {
            let bitmap = be64(table, index(place + ENTRY_BYTES));
            entry::subcluster(&self.header, (entry, bitmap), at % cluster / unit)
        };
        let mapping = mapping.map_err(|what| {
            self.source.damaged(format_args!(
                "the L2 entry of the disk's byte {at:#x} {what} ({entry:#018x})"
            ))
        })?;
        Ok(match mapping {
            Mapping::Data { offset } => Mapping::Data {
                offset: offset + at % cluster,
            },
            other => other,
        })
    }

    /// The L2 table of the byte at `at`; nothing when there is none.
    fn l2_of(&mut self, at: u64) -> Result<Option<&[u8]>, DiskError> {
        let l1_index = self.header.l1_index(at);
        if self.l2.as_ref().map(|(known, _)| *known) != Some(l1_index) {
            let table = match self.l2_offset(l1_index)? {
                None => Vec::new(),
                Some(offset) => {
                    let mut table = vec![0; index(self.header.cluster_bytes())];
                    let what = format_args!("the L2 table of L1 entry {l1_index}");
                    self.source.read(what, offset, &mut table)?;
                    table
                }
            };
            self.l2 = Some((l1_index, table));
        }
        let table = self.l2.as_ref().map(|(_, table)| table.as_slice());
        Ok(table.filter(|table| !table.is_empty()))
    }

    /// Where the file has the L2 table of an L1 entry.
    fn l2_offset(&self, l1_index: u64) -> Result<Option<u64>, DiskError> {
        let mut entry = [0; 8];
        // Inside of the L1 table, which was found to be inside of the file.
        let offset = self.header.l1_offset + l1_index * ENTRY_BYTES;
        let what = format_args!("L1 entry {l1_index}");
        self.source.read(what, offset, &mut entry)?;
        let entry = u64::from_be_bytes(entry);
        entry::l2_offset(&self.header, entry).map_err(|what| {
            self.source
                .damaged(format_args!("L1 entry {l1_index} {what} ({entry:#018x})"))
        })
    }
}
