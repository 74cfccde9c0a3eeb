//! Errors of the service as google.rpc details, and back.

use std::collections::HashMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of `ErrorInfo` in every error of the service.
const DOMAIN: &str = "kvmlet";

/// What a caller is advised to wait before it tries again what could not be done just now.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// One field that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, such as `spec.volumes[1].name`; empty for the object as a whole.
    pub path: String,
    /// What is wrong, without the path.
    pub message: String,
}

/// Kubernetes' reasons of failures (`metav1.StatusReason`), as far as the service has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// The object breaks rules; the error carries [`Violation`]s.
    Invalid,
    /// The request itself makes no sense.
    BadRequest,
    /// There is no such object.
    NotFound,
    /// There is such an object already.
    AlreadyExists,
    /// A precondition does not hold.
    Conflict,
    /// The node's policy or the object's state does not allow it.
    Forbidden,
    /// The caller may not do it. Kubernetes has the word of [`FailureReason::Forbidden`] for it, too.
    Denied,
    /// The version to watch from is too old.
    Expired,
    /// Try again later.
    ServiceUnavailable,
    /// The agent failed.
    InternalError,
}

impl FailureReason {
    const ALL: [Self; 10] = [
        Self::Invalid,
        Self::BadRequest,
        Self::NotFound,
        Self::AlreadyExists,
        Self::Conflict,
        Self::Forbidden,
        Self::Denied,
        Self::Expired,
        Self::ServiceUnavailable,
        Self::InternalError,
    ];

    /// Kubernetes' word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid",
            Self::BadRequest => "BadRequest",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Forbidden | Self::Denied => "Forbidden",
            Self::Expired => "Expired",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::InternalError => "InternalError",
        }
    }

    const fn code(self) -> Code {
        match self {
            Self::Invalid | Self::BadRequest => Code::InvalidArgument,
            Self::NotFound => Code::NotFound,
            Self::AlreadyExists => Code::AlreadyExists,
            Self::Conflict => Code::Aborted,
            Self::Forbidden => Code::FailedPrecondition,
            Self::Denied => Code::PermissionDenied,
            Self::Expired => Code::OutOfRange,
            Self::ServiceUnavailable => Code::Unavailable,
            Self::InternalError => Code::Internal,
        }
    }
}

/// An object that was refused. `summary` names it: `VirtualMachineInstance "web" is invalid`.
#[must_use]
pub fn invalid(summary: &str, violations: &[Violation]) -> Status {
    let mut details = info(FailureReason::Invalid);
    for violation in violations {
        details.add_bad_request_violation(&violation.path, &violation.message);
    }
    Status::with_error_details(FailureReason::Invalid.code(), summary, details)
}

/// Any other failure.
#[must_use]
pub fn failure(reason: FailureReason, message: &str) -> Status {
    Status::with_error_details(reason.code(), message, info(reason))
}

fn info(reason: FailureReason) -> ErrorDetails {
    let mut details = ErrorDetails::new();
    details.set_error_info(reason.as_str(), DOMAIN, HashMap::new());
    if reason == FailureReason::ServiceUnavailable {
        details.set_retry_info(Some(RETRY_AFTER));
    }
    details
}

/// The reason that an error of the service carries; nothing when it comes from elsewhere.
#[must_use]
pub fn failure_reason(status: &Status) -> Option<FailureReason> {
    let info = status.get_details_error_info()?;
    FailureReason::ALL.into_iter().find(|reason| {
        info.domain == DOMAIN && info.reason == reason.as_str() && status.code() == reason.code()
    })
}

/// The refused fields that an error of the service carries.
#[must_use]
pub fn violations(status: &Status) -> Vec<Violation> {
    status
        .get_details_bad_request()
        .map(|bad| bad.field_violations)
        .unwrap_or_default()
        .into_iter()
        .map(|violation| Violation {
            path: violation.field,
            message: violation.description,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_and_reason_survive_the_wire() {
        let sent = vec![Violation {
            path: "spec.volumes[0].name".to_owned(),
            message: "Required value".to_owned(),
        }];
        let status = invalid("VirtualMachineInstance \"web\" is invalid", &sent);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(failure_reason(&status), Some(FailureReason::Invalid));
        assert_eq!(violations(&status), sent);
        let gone = failure(FailureReason::Expired, "too old");
        assert_eq!(failure_reason(&gone), Some(FailureReason::Expired));
        assert_eq!(failure_reason(&Status::not_found("x")), None);
        for reason in FailureReason::ALL {
            assert_eq!(failure_reason(&failure(reason, "no")), Some(reason));
        }
    }

    #[test]
    fn what_may_work_later_says_when() {
        let delay = |reason| {
            let info = failure(reason, "no").get_details_retry_info();
            info.and_then(|info| info.retry_delay)
        };
        assert_eq!(delay(FailureReason::ServiceUnavailable), Some(RETRY_AFTER));
        assert_eq!(delay(FailureReason::Conflict), None);
    }
}
