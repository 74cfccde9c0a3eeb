//! Lines of `kvmctl validate`.

use serde::Deserialize;

/// One line of `kvmctl validate -o json`.
#[derive(Deserialize)]
pub(super) struct Judged {
    pub(super) file: String,
    pub(super) index: usize,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) verdict: String,
    pub(super) causes: Vec<Cause>,
}

#[derive(Deserialize)]
pub(super) struct Cause {
    pub(super) field: String,
    pub(super) message: String,
}
