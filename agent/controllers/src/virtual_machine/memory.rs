//! What the controller remembers of a machine between two rounds. Losing it is harmless as long as the next round has a
//! state that is no older than the last write.

use super::view::View;

/// What is remembered of a machine.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The machine's uid; another machine of the same name begins anew.
    uid: String,
    /// The version at which a VMI was made that is not in view.
    pub(super) awaited: Option<u64>,
    /// Error of the last round's writes.
    pub(super) failure: Option<Failure>,
}

/// Why writes were not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Memory {
    /// Takes note of a view: what has come into it is no longer waited for.
    pub fn observe(&mut self, view: &View) {
        let uid = &view.machine.metadata.uid;
        if self.uid != *uid {
            *self = Self {
                uid: uid.clone(),
                ..Self::default()
            };
        }
        self.awaited = self.awaited.filter(|version| *version > view.version);
    }
}
