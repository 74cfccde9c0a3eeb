//! The spec of a VMI, as its actor keeps it.

use agent_domain::{Admitted, Remark, Vmi};
use agent_plan::{AdmittedCondition, ConditionStatus};

/// What admission made of the spec.
pub(super) struct Spec {
    pub(super) vmi: Vmi,
    pub(super) conditions: Vec<AdmittedCondition>,
}

impl Spec {
    /// What follows from admission.
    pub(super) fn of(admitted: Admitted) -> Self {
        let remark = |kind: &str, reason: &str, remarks: &[Remark]| {
            let text: Vec<String> = remarks
                .iter()
                .map(|remark| format!("{}: {}", remark.path, remark.message))
                .collect();
            (!text.is_empty()).then(|| AdmittedCondition {
                kind: kind.to_owned(),
                status: ConditionStatus::True,
                reason: reason.to_owned(),
                message: text.join("; "),
            })
        };
        let conditions = [
            remark(
                "DevicesSubstituted",
                "ProvidedAsVirtio",
                &admitted.substituted,
            ),
            remark("FieldsIgnored", "NoEffect", &admitted.ignored),
        ];
        Spec {
            vmi: admitted.vmi,
            conditions: conditions.into_iter().flatten().collect(),
        }
    }
}
