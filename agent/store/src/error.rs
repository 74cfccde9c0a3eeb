//! Why the ledger cannot be opened, and why it refuses.

use std::path::PathBuf;

/// Why the ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another agent has it.
    #[error(
        "{path}: the ledger is in use by another kvmlet; stop it, or give this one a state_dir of its own"
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Written by a release that is newer than this.
    #[error(
        "{path}: the ledger has format {found}, this kvmlet knows formats up to {known}; install the newer kvmlet again"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest format known here.
        known: u64,
    },
    /// It is not a ledger, or is damaged.
    #[error(
        "{path}: the ledger is damaged ({what}); running guests are not affected; move the file away to begin with \
         an empty ledger, or put a copy back"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// The file system refused.
    #[error("{path}: the ledger cannot be opened")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

/// Why a read or write of the ledger did not happen.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An older generation than the one stored.
    #[error("generation {offered} is older than the stored generation {stored}")]
    Stale {
        /// Generation of the write.
        offered: i64,
        /// Generation in the ledger.
        stored: i64,
    },
    /// The same generation with another spec.
    #[error("generation {generation} is stored with another spec")]
    Altered {
        /// Of both.
        generation: i64,
    },
    /// The change log no longer reaches back that far.
    #[error("version {wanted} is too old; changes are kept from version {oldest} on")]
    Expired {
        /// From which version somebody wanted to go on.
        wanted: u64,
        /// The oldest version that one can go on from.
        oldest: u64,
    },
    /// What is stored cannot be read back.
    #[error("the ledger holds {what} that cannot be decoded")]
    Undecodable {
        /// Kind and key of the entry.
        what: String,
    },
    /// The sync that several writes shared failed, or one of them did halfway. Nothing of any of them is stored.
    #[error("the write shared a sync that failed: {why}")]
    NotShared {
        /// Error of the sync.
        why: String,
    },
    /// Its file failed a moment ago.
    #[error("the ledger failed a moment ago and is about to be opened again")]
    Closed,
    /// Its file failed before, and cannot be opened again.
    #[error("the ledger cannot be opened again")]
    Lost(#[source] Box<OpenError>),
    /// The database failed; nothing was written.
    #[error("the ledger cannot be read or written")]
    Database(#[source] redb::Error),
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}
