//! Recordings: JSON, one value a line, packed.

use std::path::Path;

use serde::de::DeserializeOwned;

/// The values of a file below `tests`.
pub fn recorded<T: DeserializeOwned>(file: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(file);
    let packed = std::fs::read(path).unwrap();
    let text = String::from_utf8(zstd::decode_all(packed.as_slice()).unwrap()).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}
