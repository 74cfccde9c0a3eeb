//! Kubernetes' ServiceAccount.

use super::columns::{AGE, count};
use crate::kind::{Admission, ObjectKind, Writer};

pub(super) const KIND: ObjectKind = ObjectKind {
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    message: "kvmlet.core.v1.ServiceAccount",
    columns: &[count("SECRETS", ".secrets[*]"), AGE],
    // Kubernetes judges nothing of it but its metadata.
    writer: Writer::Objects(|_, _| Admission {
        errors: Vec::new(),
        warnings: Vec::new(),
    }),
    ..ObjectKind::PLAIN
};
