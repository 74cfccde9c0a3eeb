//! What the disks' servers share with the thread that cuts the power.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::content::Volatile;

#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) disks: BTreeMap<String, Volatile>,
    /// The highest number that the guest printed for each disk.
    pub(super) kept: BTreeMap<String, u64>,
    /// Requests until the power is cut.
    pub(super) left: Option<u64>,
    pub(super) cut: Option<Cut>,
    /// Connections of QEMU.
    pub(super) clients: usize,
    /// Why nothing more will come.
    pub(super) failure: Option<String>,
}

/// The moment of a power cut.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The disks by name.
    pub disks: BTreeMap<String, Volatile>,
    /// What the guest was promised for each disk, as it had printed it before.
    pub kept: BTreeMap<String, u64>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A disk as its server sees it.
pub(super) struct Disk {
    pub(super) shared: Arc<Shared>,
    pub(super) name: String,
}

impl Disk {
    /// Carries a request out on the disk, after a cut if this is its moment.
    pub(super) fn request<T>(&self, carry_out: impl FnOnce(&mut Volatile) -> T) -> Option<T> {
        let mut state = self.shared.lock();
        match state.left {
            Some(0) => {
                state.left = None;
                state.cut = Some(Cut {
                    disks: state.disks.clone(),
                    kept: state.kept.clone(),
                });
                self.shared.changed.notify_all();
            }
            Some(left) => state.left = Some(left - 1),
            None => {}
        }
        state.disks.get_mut(&self.name).map(carry_out)
    }

    /// A client of the disk, as long as the value lives.
    pub(super) fn client(&self) -> Client<'_> {
        self.shared.lock().clients += 1;
        Client(&self.shared)
    }

    pub(super) fn fail(&self, error: &std::io::Error) {
        let why = format!("the disk {}: {error}", self.name);
        self.shared.lock().failure.get_or_insert(why);
        self.shared.changed.notify_all();
    }
}

pub(super) struct Client<'a>(&'a Shared);

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.0.lock().clients -= 1;
        self.0.changed.notify_all();
    }
}
