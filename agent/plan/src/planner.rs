//! [`plan()`]: one observation in, one plan out.

mod bring_up;
pub(crate) mod draft;
pub(crate) mod finish;
mod firmware;
mod hold;
mod links;
mod operation;
mod reservation;

pub use draft::Plan;

use self::draft::Draft;
use crate::observation::Observed;
use crate::record::Record;
use crate::time::Timestamp;
use crate::wanted::Wanted;
use crate::{credentials, report};

/// Plans the next steps of one VMI. Total, and a function of its arguments alone.
///
/// Planning from an unchanged world gives no actions; planning twice from the same observation gives
/// the same actions; a final phase never changes.
#[must_use]
pub fn plan(wanted: &Wanted, record: &Record, observed: &Observed, now: Timestamp) -> Plan {
    let mut draft = Draft {
        wanted,
        observed,
        now,
        plan: Plan {
            actions: Vec::new(),
            record: record.clone(),
            events: Vec::new(),
            wake_at: None,
            gone: false,
        },
    };
    if let Some(deletion) = wanted.deletion {
        let record = &mut draft.plan.record;
        record.note_deletion(deletion.requested_at, now);
    }
    draft.adopt();
    draft.settle();
    draft.apply_probe_results();
    draft.adopt_reservation();
    if draft.plan.record.report.end.is_some() {
        draft.clear_away();
    } else if let Some((requested_at, grace)) = finish::ending(wanted, &draft.plan.record) {
        draft.end_on_request(requested_at, grace);
    } else {
        draft.bring_up();
    }
    report::report(wanted, observed, now, &mut draft.plan.record);
    draft
        .plan
        .events
        .extend(report::silence(record, &draft.plan.record));
    draft
        .plan
        .events
        .extend(credentials::changed(record, &draft.plan.record));
    draft
        .plan
        .events
        .extend(report::sync_failure_event(record, &draft.plan.record));
    draft
        .plan
        .events
        .extend(report::operation_begun(record, &draft.plan.record));
    draft.plan
}
