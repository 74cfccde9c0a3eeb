//! Campaigns that go on where an earlier run of the same seed ended.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::Context;
use integration::cache;
use nix::fcntl::Flock;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The counters of a campaign, in a file. One run has it at a time.
pub(super) struct Progress {
    file: PathBuf,
    _held: Flock<File>,
}

impl Progress {
    /// Of the campaign `name` with this seed.
    pub(super) fn of(name: &str, seed: u64) -> anyhow::Result<Self> {
        Ok(Self {
            _held: cache::lock(&format!("{name}-{seed}"))?,
            file: cache::root().join(format!("soak/{name}-{seed}.json")),
        })
    }

    /// What earlier runs came to.
    pub(super) fn read<T: DeserializeOwned + Default>(&self) -> anyhow::Result<T> {
        let shown = self.file.display();
        match fs::read(&self.file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{shown} is no progress of a campaign; remove it")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(T::default()),
            Err(error) => Err(error).with_context(|| shown.to_string()),
        }
    }

    /// A run that is interrupted leaves the old file or the new one.
    pub(super) fn write(&self, tally: &impl Serialize) -> anyhow::Result<()> {
        let partial = self.file.with_extension("partial");
        if let Some(directory) = self.file.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&partial, serde_json::to_vec(tally)?)
            .and_then(|()| fs::rename(&partial, &self.file))
            .with_context(|| self.file.display().to_string())
    }

    /// Prints that there is nothing left to do.
    pub(super) fn print_done(&self) {
        println!(
            "done before; {} has it, remove it to begin anew",
            self.file.display()
        );
    }
}
