//! Keys and passwords that the agent in a guest sets: KubeVirt's condition and events.

use crate::condition::{ConditionStatus, EventKind, PlanEvent};
use crate::guest::CredentialsSync;
use crate::record::Record;

/// KubeVirt's condition; it is there when there is something to set.
pub(crate) const SYNCHRONIZED: &str = "AccessCredentialsSynchronized";

/// Status and message of the condition.
pub(crate) fn condition(record: &Record) -> Option<(ConditionStatus, &str)> {
    let sync = record
        .report
        .credentials
        .as_ref()
        .filter(|_| record.report.end.is_none())?;
    Some(match sync {
        CredentialsSync::Done => (ConditionStatus::True, ""),
        CredentialsSync::Failed { why } => (ConditionStatus::False, why),
    })
}

/// The event of a change that people should know.
pub(crate) fn changed(before: &Record, after: &Record) -> Option<PlanEvent> {
    let of = |record: &Record| {
        let condition = record
            .report
            .conditions
            .iter()
            .find(|it| it.kind == SYNCHRONIZED)?;
        Some((condition.status, condition.message.clone()))
    };
    let (status, message) = of(after).filter(|now| of(before).as_ref() != Some(now))?;
    let (kind, reason, message) = match status {
        ConditionStatus::True => (
            EventKind::Normal,
            "AccessCredentialsSyncSuccess",
            String::from("Access credentials sync successful."),
        ),
        _ => (
            EventKind::Warning,
            "AccessCredentialsSyncFailed",
            format!("Access credentials sync failed: {message}"),
        ),
    };
    Some(PlanEvent {
        kind,
        reason: reason.to_owned(),
        message,
    })
}
