//! Header extensions: a type, a length, and bytes padded to a multiple of 8.

use std::collections::BTreeMap;

use crate::disk::error::DiskError;
use crate::disk::format::{be32, index, shown};
use crate::disk::source::Source;

const END: u32 = 0;
const BACKING_FORMAT: u32 = 0xe279_2aca;
const FEATURE_NAMES: u32 = 0x6803_f857;
const DATA_FILE: u32 = 0x4441_5441;

/// An entry of the feature name table: kind, bit and name.
const FEATURE_BYTES: usize = 48;
const INCOMPATIBLE: u8 = 0;

/// Names of incompatible features, by their bits.
pub(super) type FeatureNames = BTreeMap<u8, String>;

/// What is read of the extensions. Others say nothing that a reader of the disk needs.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    pub(super) backing_format: Option<String>,
    pub(super) data_file: Option<String>,
    pub(super) feature_names: FeatureNames,
}

impl Extensions {
    /// Reads those in `area`, which lies in the image's first cluster at `start`.
    pub(super) fn read(source: &Source, start: u64, area: &[u8]) -> Result<Self, DiskError> {
        let mut found = Self::default();
        let mut rest = area;
        // Fewer than 8 bytes are no extension, and none need to follow the last.
        while rest.len() >= 8 {
            let (kind, length) = (be32(rest, 0), index(u64::from(be32(rest, 4))));
            if kind == END {
                break;
            }
            let Some(value) = length.checked_add(8).and_then(|end| rest.get(8..end)) else {
                let at = start + (area.len() - rest.len()) as u64;
                return Err(source.damaged(format_args!(
                    "its header extension {kind:#010x} at byte {at} has {length} bytes, more than there is room for"
                )));
            };
            match kind {
                BACKING_FORMAT => found.backing_format = Some(shown(value)),
                DATA_FILE => found.data_file = Some(shown(value)),
                FEATURE_NAMES => found.feature_names = feature_names(value),
                _ => {}
            }
            let padded = 8 + length.next_multiple_of(8);
            rest = rest.get(padded..).unwrap_or_default();
        }
        Ok(found)
    }
}

fn feature_names(table: &[u8]) -> FeatureNames {
    table
        .chunks_exact(FEATURE_BYTES)
        .filter_map(|entry| match entry {
            [INCOMPATIBLE, bit, name @ ..] => {
                let end = name.iter().position(|byte| *byte == 0);
                let name = name.get(..end.unwrap_or(name.len()))?;
                Some((*bit, shown(name)))
            }
            _ => None,
        })
        .collect()
}
