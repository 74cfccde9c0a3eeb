//! Specs of persistent volume claims by Kubernetes' rules. This release has no claims: what is illegal there is illegal
//! everywhere.

use proto_node::core::PersistentVolumeClaimSpec;

use super::metadata::DNS_SUBDOMAIN_RULE;
use super::review::Review;
use super::scheduling::check_selector;
use crate::error::{Bound, FieldError, Rule};
use crate::name::is_dns_subdomain;
use crate::quantity::Quantity;

/// Who may use a claim at a time.
pub(super) const ACCESS_MODES: [&str; 4] = [
    "ReadWriteOnce",
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOncePod",
];
/// The kind of claims.
pub(super) const CLAIM_KIND: &str = "PersistentVolumeClaim";
/// The resource that is claimed.
pub(super) const SIZE: &str = "storage";

/// Judges the spec of a claim. What its schema says was judged already. What CDI fills in, if it `is_rendered`, may be
/// left out.
pub(super) fn check(spec: &PersistentVolumeClaimSpec, is_rendered: bool, review: &mut Review<'_>) {
    const MODES: &str = "spec.accessModes";
    if spec.access_modes.is_empty() && !is_rendered {
        review.required(MODES, "at least 1 access mode is required");
    }
    for mode in &spec.access_modes {
        if !ACCESS_MODES.contains(&mode.as_str()) {
            not_supported(MODES, mode, &ACCESS_MODES, review);
        }
    }
    let is_for_one = |mode: &String| mode == "ReadWriteOncePod";
    if spec.access_modes.len() > 1 && spec.access_modes.iter().any(is_for_one) {
        let message = "may not use ReadWriteOncePod with other access modes";
        let error = FieldError::new(MODES, Rule::Forbidden, message);
        review.push(error.beyond(Bound::Api));
    }
    check_size(spec, is_rendered, review);
    if let Some(class) = spec.storage_class_name.as_deref()
        && !class.is_empty()
        && !is_dns_subdomain(class)
    {
        review.invalid("spec.storageClassName", class, DNS_SUBDOMAIN_RULE);
    }
    let is_chosen = is_rendered && spec.volume_mode == "FromStorageProfile";
    if !is_chosen && !["", "Block", "Filesystem"].contains(&spec.volume_mode.as_str()) {
        not_supported(
            "spec.volumeMode",
            &spec.volume_mode,
            &["Block", "Filesystem"],
            review,
        );
    }
    check_selector("spec.selector", spec.selector.as_ref(), review);
    let sources = [
        (
            "spec.dataSource",
            spec.data_source
                .as_ref()
                .map(|source| (&source.api_group, &source.kind)),
        ),
        (
            "spec.dataSourceRef",
            spec.data_source_ref
                .as_ref()
                .map(|source| (&source.api_group, &source.kind)),
        ),
    ];
    for (path, source) in sources {
        if let Some((group, kind)) = source
            && group.is_empty()
            && kind != CLAIM_KIND
        {
            let message = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            review.invalid(&format!("{path}.kind"), kind, message);
        }
    }
}

fn check_size(spec: &PersistentVolumeClaimSpec, is_rendered: bool, review: &mut Review<'_>) {
    const FIELD: &str = "spec.resources[storage]";
    let resources = spec.resources.as_ref();
    let Some(text) = resources.and_then(|resources| resources.requests.get(SIZE)) else {
        if !is_rendered {
            review.required(FIELD, "says how much is claimed");
        }
        return;
    };
    // Text that is no quantity was reported already.
    let Some(size) = Quantity::parse(text) else {
        return;
    };
    if size.is_negative() || size.units() == Some(0) {
        review.invalid(FIELD, text, "must be greater than zero");
    }
}

fn not_supported(field: &str, value: &str, supported: &[&str], review: &mut Review<'_>) {
    let supported: Vec<String> = supported.iter().map(|word| format!("{word:?}")).collect();
    let message = format!("supported values: {}", supported.join(", "));
    let error = FieldError::new(field, Rule::NotSupported, message).value(value);
    review.push(error.beyond(Bound::Api));
}
