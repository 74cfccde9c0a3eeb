//! The note about a VMM that was started: who it is and as which user it runs.
//!
//! It is written right after the process exists. When the agent dies before it is, the control
//! socket still identifies the process.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use agent_plan::VmmIdentity;
use serde::{Deserialize, Serialize};

use crate::layout::absent_is_none;

const NAME: &str = "launch.json";
const TEMPORARY: &str = ".launch.json.tmp";

/// The contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchFile {
    /// Boot id, pid, start time and incarnation of the VMM.
    pub(crate) identity: VmmIdentity,
    /// The user that the VMM runs as; `None` when it runs as the agent does.
    pub(crate) user: Option<u32>,
}

impl LaunchFile {
    /// Reads the note in a VMM's run directory. One that was cut off by a crash is none.
    pub(crate) fn read(dir: &Path) -> io::Result<Option<Self>> {
        let Some(text) = absent_is_none(fs::read(dir.join(NAME)))? else {
            return Ok(None);
        };
        Ok(serde_json::from_slice(&text).ok())
    }

    /// Writes the note as a whole or not at all.
    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        let temporary = dir.join(TEMPORARY);
        let mut file: File = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(&temporary, dir.join(NAME))
    }
}

#[cfg(test)]
mod tests {
    use agent_plan::BootId;

    use super::*;

    #[test]
    fn a_note_is_read_back_and_a_torn_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(LaunchFile::read(dir.path()).unwrap(), None);
        let note = LaunchFile {
            identity: VmmIdentity {
                boot_id: BootId("b".to_owned()),
                pid: 7,
                start_time_ticks: 9,
            },
            user: Some(70_000),
        };
        note.write(dir.path()).unwrap();
        assert_eq!(LaunchFile::read(dir.path()).unwrap(), Some(note));
        fs::write(dir.path().join(NAME), "{\"identity\":{").unwrap();
        assert_eq!(LaunchFile::read(dir.path()).unwrap(), None);
    }
}
