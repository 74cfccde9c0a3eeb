//! Formats that were kept when their versions were made, `tests/fixtures/formats/KIND-VERSION.txt`.
//!
//! A state whose format is another than that of the file needs another version, and then a file of
//! its own: whoever reads the old one must know that it is old (docs/snapshots.md).

use std::fs;
use std::path::Path;

use super::DeviceState;
use super::format::format_of;

/// Fails when `S` has another format than its version had. With `KVMLET_NEW_FORMATS` in the
/// environment a version that has none is given one.
pub(crate) fn assert_format_is_kept<S: DeviceState>() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/formats");
    let (kind, version) = (S::KIND, S::VERSION);
    let path = directory.join(format!("{kind}-{version}.txt"));
    let format = format_of::<S>();
    if !path.exists() && std::env::var_os("KVMLET_NEW_FORMATS").is_some() {
        fs::write(&path, &format).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        format, kept,
        "{kind} is not as version {version} was: see docs/snapshots.md"
    );
}
