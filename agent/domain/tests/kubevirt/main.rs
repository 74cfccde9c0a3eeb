//! Instance types, preferences and admission against what KubeVirt's own code (v1.7) answered: `pkg/instancetype`, its
//! `expand-spec` and its admission webhooks, recorded by the program in `recorder`.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test")]

mod kits;
mod networks;
mod pairs;

use serde::de::DeserializeOwned;

/// The lines of a packed recording.
fn lines<T: DeserializeOwned>(packed: &[u8]) -> Vec<T> {
    let text = String::from_utf8(zstd::decode_all(packed).unwrap()).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}
