//! Objects as the node sends them.

use serde_json::Value;

use crate::failure::Failure;

pub fn read(bytes: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(bytes)
        .map_err(|error| Failure::refused(format!("the agent answered with no JSON: {error}")))
}
