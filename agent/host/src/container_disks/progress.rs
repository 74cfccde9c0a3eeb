//! Progress of an import.

use tokio::sync::watch;

use crate::work::Work;

/// What is done for an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImportStage {
    /// Its layers are fetched.
    #[default]
    Pulling,
    /// Its disk is taken out of them.
    Unpacking,
    /// The disk is made a raw one.
    Converting,
}

impl ImportStage {
    /// The reason of operations.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pulling => "Pulling",
            Self::Unpacking => "Unpacking",
            Self::Converting => "Converting",
        }
    }
}

/// Progress of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportProgress {
    /// What the bytes below are of.
    pub stage: ImportStage,
    /// Bytes of it that are done: of layers, of layers that are read, of the disk.
    pub done_bytes: u64,
    /// Of how many; 0 when that is not known yet.
    pub total_bytes: u64,
}

impl ImportProgress {
    /// Sets it as the progress of an operation that waits for an image.
    pub(super) fn report(self, work: &Work, image: &str) {
        let word = self.stage.word();
        let what = format!("{word} image {image:?}");
        work.set_progress(word, &what, (self.done_bytes, self.total_bytes));
    }
}

/// By which an import reports its progress.
#[derive(Clone, Debug)]
pub(super) struct ProgressReporter(watch::Sender<ImportProgress>);

impl ProgressReporter {
    /// For an import that begins with this stage, and the receiver of its progress.
    pub(super) fn new(stage: ImportStage) -> (Self, watch::Receiver<ImportProgress>) {
        let (sender, progress) = watch::channel(ImportProgress {
            stage,
            ..ImportProgress::default()
        });
        (Self(sender), progress)
    }

    pub(super) fn report(&self, stage: ImportStage, done_bytes: u64, total_bytes: u64) {
        self.0.send_replace(ImportProgress {
            stage,
            done_bytes,
            total_bytes,
        });
    }
}
