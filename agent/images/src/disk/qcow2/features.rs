//! Incompatible features: who does not know one must not read the image.

use super::extensions::FeatureNames;

/// Bit 0: reference counts may be stale. Readers need none.
pub(super) const DIRTY: u64 = 1 << 0;
/// Bit 1: QEMU found a contradiction.
const CORRUPT: u64 = 1 << 1;
/// Bit 2: data is in another file.
const DATA_FILE: u64 = 1 << 2;
/// Bit 3: the header says how clusters are compressed.
pub(super) const COMPRESSION: u64 = 1 << 3;
/// Bit 4: L2 entries with subclusters.
pub(super) const EXTENDED_L2: u64 = 1 << 4;

/// What of the set bits cannot be read, in words that follow "the image".
pub(super) fn unsupported(bits: u64, names: &FeatureNames, data_file: Option<&str>) -> Vec<String> {
    let mut found = Vec::new();
    if bits & CORRUPT != 0 {
        found.push("is marked as corrupt".to_owned());
    }
    if bits & DATA_FILE != 0 {
        let name = data_file.map(|name| format!(" '{name}'"));
        found.push(format!(
            "keeps its data in an external data file{}",
            name.unwrap_or_default()
        ));
    }
    let known = DIRTY | CORRUPT | DATA_FILE | COMPRESSION | EXTENDED_L2;
    for bit in (0..64).filter(|bit| bits & !known & 1 << bit != 0) {
        found.push(match names.get(&bit) {
            Some(name) => format!("has the unknown incompatible feature '{name}' (bit {bit})"),
            None => format!("has an unknown incompatible feature (bit {bit})"),
        });
    }
    found
}
