//! A guest's NIC on a bridge of the configuration, and the note of it in its VMM's run directory.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::layout::absent_is_none;

/// A guest's NIC on a bridge of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nic {
    /// The node's end of it.
    pub(crate) tap: String,
    /// What the guest may send from.
    pub(crate) mac: [u8; 6],
    /// All its IP addresses, where the configuration names them.
    #[serde(default)]
    pub(crate) addresses: Vec<IpAddr>,
}

const NOTE: &str = "cards.json";
const TEMPORARY: &str = ".cards.json.tmp";

/// Reads the note in a VMM's run directory; none is no NICs.
pub(crate) fn read(dir: &Path) -> io::Result<Vec<Nic>> {
    match absent_is_none(fs::read(dir.join(NOTE)))? {
        None => Ok(Vec::new()),
        Some(text) => Ok(serde_json::from_slice(&text)?),
    }
}

/// Writes the note as a whole or not at all.
pub(crate) fn write(dir: &Path, nics: &[Nic]) -> io::Result<()> {
    let temporary = dir.join(TEMPORARY);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(&serde_json::to_vec(nics)?)?;
    fs::rename(&temporary, dir.join(NOTE))
}
