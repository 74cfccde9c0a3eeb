//! Files that flags name, and the descriptors that go with the configuration.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::Context;

/// Descriptors in the order in which they go with the frame.
#[derive(Default)]
pub struct Descriptors(Vec<OwnedFd>);

impl Descriptors {
    /// Adds one, and returns its number.
    pub fn add(&mut self, descriptor: impl Into<OwnedFd>) -> anyhow::Result<u32> {
        self.0.push(descriptor.into());
        Ok(u32::try_from(self.0.len() - 1)?)
    }

    pub fn all(self) -> Vec<OwnedFd> {
        self.0
    }
}

pub fn read_only(path: &Path) -> anyhow::Result<File> {
    open(OpenOptions::new().read(true), path)
}

pub fn open(options: &OpenOptions, path: &Path) -> anyhow::Result<File> {
    options
        .open(path)
        .with_context(|| path.display().to_string())
}
