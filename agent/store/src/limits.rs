//! Bounds of the ledger.

/// How much is kept of what is not an object itself.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries of the change log of each kind.
    pub changes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { changes: 4096 }
    }
}
