//! What the controller remembers of a machine between two looks. Losing it is harmless as long as the next look is at a
//! state that is no older than the last write.

use super::view::View;

/// What is remembered of a machine.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The machine's uid; another machine of the same name begins anew.
    uid: String,
    /// The version at which a VMI was made that is not in view.
    pub(super) awaited: Option<u64>,
    /// What kept the last look's writes from being carried out.
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
    pub fn look(&mut self, view: &View) {
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
