//! Starts of VMMs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::identity::{BootId, VmmIdentity};
use crate::time::Timestamp;

/// Starts of VMMs for one VMI, by incarnation: one number is never given to two. Its actor alone writes them.
///
/// One that came to nothing keeps its number, and that is all that is kept of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launches(BTreeMap<u64, Option<Launch>>);

/// One start of a VMM, as intended and as it went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The boot of the host in which it was intended.
    pub boot_id: BootId,
    /// When it was intended.
    pub intended_at: Timestamp,
    /// Identity of the VMM, once that is known.
    pub identity: Option<VmmIdentity>,
    /// When the boot of the guest was intended. From here on the guest may have run.
    pub boot_intended_at: Option<Timestamp>,
    /// When the guest was first seen running.
    pub running_at: Option<Timestamp>,
}

impl Launches {
    /// The highest incarnation that was ever meant to start; 0 before the first.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.0
            .last_key_value()
            .map_or(0, |(incarnation, _)| *incarnation)
    }

    /// The start that is under way or has been; `None` before the first and after one that came to nothing.
    #[must_use]
    pub fn present(&self) -> Option<&Launch> {
        let (_, launch) = self.0.last_key_value()?;
        launch.as_ref()
    }

    /// The same, to be changed.
    pub fn present_mut(&mut self) -> Option<&mut Launch> {
        self.0.last_entry()?.into_mut().as_mut()
    }

    /// A start was intended, or found; those before it are over.
    pub fn begin(&mut self, incarnation: u64, launch: Launch) {
        self.0.clear();
        self.0.insert(incarnation, Some(launch));
    }

    /// The present start came to nothing.
    pub fn give_up(&mut self) {
        if let Some(mut last) = self.0.last_entry() {
            last.insert(None);
        }
    }

    /// All that are kept, by incarnation.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Option<&Launch>)> {
        self.0
            .iter()
            .map(|(incarnation, launch)| (*incarnation, launch.as_ref()))
    }
}

impl FromIterator<(u64, Option<Launch>)> for Launches {
    fn from_iter<I: IntoIterator<Item = (u64, Option<Launch>)>>(launches: I) -> Self {
        Self(launches.into_iter().collect())
    }
}
