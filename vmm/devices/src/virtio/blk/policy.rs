//! What becomes of a request that the host fails. What the guest does wrong is none of it.

use std::io;

use super::request::Refusal;

/// The host's `ENOSPC`, `EDQUOT` and `EIO`; the numbers are the kernel's ABI.
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;
const EIO: i32 = 5;

/// What to do about a failure of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// The guest gets an I/O error.
    #[default]
    Report,
    /// The guest is told that all is well. Not of a sync that failed, which is about data of other
    /// requests: that is reported.
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

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The driver asked for what cannot be.
    Guest(Refusal),
    /// The host failed, with this error number.
    Host(i32),
    /// The host failed to make durable what was written, with this error number.
    Sync(i32),
    /// A former sync failed, so that no other can succeed.
    LostBefore,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Guest(refusal)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Host(error.raw_os_error().unwrap_or(EIO))
    }
}

impl Failure {
    /// An image that has become shorter than the disk.
    pub(super) const SHORT: Self = Self::Host(EIO);
}

/// What a policy comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Answer(Result<(), Refusal>),
    Hold,
}

impl ErrorPolicy {
    /// What becomes of a request that failed with `errno`.
    pub(super) fn judge(self, errno: i32) -> Verdict {
        match (self, errno) {
            (Self::Stop, _) | (Self::StopOnNoSpace, ENOSPC | EDQUOT) => Verdict::Hold,
            (Self::Ignore, _) => Verdict::Answer(Ok(())),
            (Self::Report | Self::StopOnNoSpace, _) => Verdict::Answer(Err(Refusal::IoError)),
        }
    }

    /// What becomes of a request whose sync failed with `errno`. Data that was answered as written may
    /// be lost, so no policy makes it a success.
    pub(super) fn judge_sync(self, errno: i32) -> Verdict {
        match self.judge(errno) {
            Verdict::Hold => Verdict::Hold,
            Verdict::Answer(_) => Verdict::Answer(Err(Refusal::IoError)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_its_verdict() {
        let report = Verdict::Answer(Err(Refusal::IoError));
        for errno in [EIO, ENOSPC, EDQUOT] {
            assert_eq!(ErrorPolicy::Report.judge(errno), report);
            assert_eq!(ErrorPolicy::Ignore.judge(errno), Verdict::Answer(Ok(())));
            assert_eq!(ErrorPolicy::Stop.judge(errno), Verdict::Hold);
        }
        assert_eq!(ErrorPolicy::StopOnNoSpace.judge(EIO), report);
        assert_eq!(ErrorPolicy::StopOnNoSpace.judge(ENOSPC), Verdict::Hold);
        assert_eq!(ErrorPolicy::StopOnNoSpace.judge(EDQUOT), Verdict::Hold);
    }

    #[test]
    fn no_policy_makes_a_failed_sync_a_success() {
        let report = Verdict::Answer(Err(Refusal::IoError));
        for policy in [
            ErrorPolicy::Report,
            ErrorPolicy::Ignore,
            ErrorPolicy::StopOnNoSpace,
        ] {
            assert_eq!(policy.judge_sync(EIO), report);
        }
        assert_eq!(ErrorPolicy::Stop.judge_sync(EIO), Verdict::Hold);
        assert_eq!(ErrorPolicy::StopOnNoSpace.judge_sync(ENOSPC), Verdict::Hold);
    }
}
