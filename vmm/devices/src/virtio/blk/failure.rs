//! Policy for requests that the host fails. Errors of the guest are not among them.

use std::io;

use super::error_policy::ErrorPolicy;
use super::request::Refusal;

/// The host's `ENOSPC`, `EDQUOT` and `EIO`; the numbers are the kernel's ABI.
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;
const EIO: i32 = 5;

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The driver asked for what cannot be.
    Guest(Refusal),
    /// The host failed, with this error number.
    Host(i32),
    /// The host failed to make durable what was written, with this error number.
    SyncFailed(i32),
    /// A former sync failed, so that no other can succeed.
    SyncFailedBefore,
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

/// What is done with a request that the host failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureAction {
    /// It is answered.
    Answer(Result<(), Refusal>),
    /// It waits until the machine is resumed.
    Hold,
}

impl ErrorPolicy {
    /// The action for a request that failed with `errno`.
    pub(super) fn action_for(self, errno: i32) -> FailureAction {
        match (self, errno) {
            (Self::Stop, _) | (Self::StopOnNoSpace, ENOSPC | EDQUOT) => FailureAction::Hold,
            (Self::Ignore, _) => FailureAction::Answer(Ok(())),
            (Self::Report | Self::StopOnNoSpace, _) => FailureAction::Answer(Err(Refusal::IoError)),
        }
    }

    /// The action for a request whose sync failed with `errno`. Data that was answered as written may
    /// be lost, so no policy makes it a success.
    pub(super) fn action_for_sync(self, errno: i32) -> FailureAction {
        match self.action_for(errno) {
            FailureAction::Hold => FailureAction::Hold,
            FailureAction::Answer(_) => FailureAction::Answer(Err(Refusal::IoError)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_its_action() {
        let report = FailureAction::Answer(Err(Refusal::IoError));
        for errno in [EIO, ENOSPC, EDQUOT] {
            assert_eq!(ErrorPolicy::Report.action_for(errno), report);
            assert_eq!(
                ErrorPolicy::Ignore.action_for(errno),
                FailureAction::Answer(Ok(()))
            );
            assert_eq!(ErrorPolicy::Stop.action_for(errno), FailureAction::Hold);
        }
        assert_eq!(ErrorPolicy::StopOnNoSpace.action_for(EIO), report);
        assert_eq!(
            ErrorPolicy::StopOnNoSpace.action_for(ENOSPC),
            FailureAction::Hold
        );
        assert_eq!(
            ErrorPolicy::StopOnNoSpace.action_for(EDQUOT),
            FailureAction::Hold
        );
    }

    #[test]
    fn no_policy_makes_a_failed_sync_a_success() {
        let report = FailureAction::Answer(Err(Refusal::IoError));
        for policy in [
            ErrorPolicy::Report,
            ErrorPolicy::Ignore,
            ErrorPolicy::StopOnNoSpace,
        ] {
            assert_eq!(policy.action_for_sync(EIO), report);
        }
        assert_eq!(ErrorPolicy::Stop.action_for_sync(EIO), FailureAction::Hold);
        assert_eq!(
            ErrorPolicy::StopOnNoSpace.action_for_sync(ENOSPC),
            FailureAction::Hold
        );
    }
}
