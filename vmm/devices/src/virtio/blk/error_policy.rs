//! What to do about a failure of the host, as the configuration says.

/// What to do about a failure of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// The guest gets an I/O error.
    #[default]
    Report,
    /// The guest gets `VIRTIO_BLK_S_OK`. A sync that failed is reported all the same: it is about data
    /// of other requests.
    Ignore,
    /// The request is held and the guest paused; it is tried again when the guest is resumed. A sync that
    /// failed is not tried again: the guest gets an I/O error then.
    Stop,
    /// `Stop` when the host has no space left, else `Report`.
    StopOnNoSpace,
}

/// Policies by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorPolicies {
    /// For reads.
    pub read: ErrorPolicy,
    /// For everything else.
    pub write: ErrorPolicy,
}
