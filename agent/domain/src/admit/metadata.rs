//! Names, labels and annotations: Kubernetes' own rules.

use std::collections::BTreeMap;

use proto_node::meta::ObjectMeta;
use proto_node::vmi::VirtualMachineInstanceSpec;

use super::purpose::AdmissionPurpose;
use super::review::Review;
use crate::error::{Bound, FieldError, Rule};
use crate::name::{is_dns_label, is_dns_subdomain, is_of_dns_labels};

/// Kubernetes' bound on all annotations together.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// The namespace of an object that names none.
pub(super) const DEFAULT_NAMESPACE: &str = "default";

/// Longest DNS label.
const MAX_LABEL_BYTES: usize = 63;

/// Longest DNS subdomain.
const MAX_SUBDOMAIN_BYTES: usize = 253;

pub(super) const DNS_LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
pub(super) const DNS_SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
pub(super) const QUALIFIED_NAME_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Labels that only KubeVirt's own components set.
const RESERVED_LABELS: &[&str] = &[
    "kubevirt.io/created-by",
    "kubevirt.io/migrationJobUID",
    "kubevirt.io/nodeName",
    "kubevirt.io/migrationTargetNodeName",
    "kubevirt.io/schedulable",
    "kubevirt.io/install-strategy",
];

/// The uid that names the machine for its whole life, from which is derived what is unknown of it: that of the VirtualMachine
/// that it belongs to, so that all its VMIs are the same machine to their guest; its own where it belongs to none.
pub(super) fn seed(metadata: &ObjectMeta) -> &str {
    let mut owners = metadata.owner_references.iter();
    let machine = owners.find(|owner| {
        owner.controller == Some(true)
            && owner.kind == "VirtualMachine"
            && owner.api_version.starts_with("kubevirt.io/")
    });
    machine.map_or(metadata.uid.as_str(), |machine| machine.uid.as_str())
}

/// Fills in the namespace.
pub(super) fn default(metadata: &mut ObjectMeta) {
    if metadata.namespace.is_empty() {
        DEFAULT_NAMESPACE.clone_into(&mut metadata.namespace);
    }
}

/// Judges names, labels, annotations and finalizers: whether they are legal.
pub(super) fn judge(metadata: &ObjectMeta, review: &mut Review<'_>) -> bool {
    let before = review.errors.len();
    if metadata.name.is_empty() {
        review.required("metadata.name", "name or generateName is required");
    } else if !is_dns_subdomain(&metadata.name) {
        review.invalid("metadata.name", &metadata.name, DNS_SUBDOMAIN_RULE);
    }
    if !is_dns_label(&metadata.namespace) {
        review.invalid("metadata.namespace", &metadata.namespace, DNS_LABEL_RULE);
    }
    if metadata.uid.is_empty() {
        review.required("metadata.uid", "the server gives it before admission");
    } else if !is_uid(&metadata.uid) {
        review.invalid(
            "metadata.uid",
            &metadata.uid,
            "must be at most 128 characters of [A-Za-z0-9._-], beginning with a letter or digit",
        );
    }
    check_labels(&metadata.labels, review);
    check_annotations(&metadata.annotations, review);
    for (index, finalizer) in metadata.finalizers.iter().enumerate() {
        if !is_qualified_name(finalizer) {
            review.invalid(
                &format!("metadata.finalizers[{index}]"),
                finalizer,
                QUALIFIED_NAME_RULE,
            );
        }
    }
    review.errors.len() == before
}

/// Judges names, labels, annotations and finalizers of an object of any kind that lives in a namespace; fills in the
/// namespace where there is none. What KubeVirt reserves of a VMI's labels is not judged.
#[must_use]
pub fn check_metadata(metadata: &mut ObjectMeta) -> Vec<FieldError> {
    default(metadata);
    let mut review = Review::new(AdmissionPurpose::Stored);
    judge(metadata, &mut review);
    review.errors
}

/// What the spec says beside its object's metadata: names of the guest, and the labels of its node.
pub(super) fn check_names(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) {
    check_host_names(&spec.hostname, &spec.subdomain, review);
    check_node_selector(&spec.node_selector, review);
}

/// `hostname` and `subdomain`, with KubeVirt's messages.
fn check_host_names(hostname: &str, subdomain: &str, review: &mut Review<'_>) {
    let is_label = !hostname.contains('.') && is_of_dns_labels(hostname);
    if let Some(faults) = faults(hostname, MAX_LABEL_BYTES, is_label, DNS_LABEL_RULE) {
        let message =
            format!("spec.hostname does not conform to the kubernetes DNS_LABEL rules : {faults}");
        review.invalid("spec.hostname", hostname, message);
    }
    let faults = faults(
        subdomain,
        MAX_SUBDOMAIN_BYTES,
        is_of_dns_labels(subdomain),
        DNS_SUBDOMAIN_RULE,
    );
    if let Some(faults) = faults {
        let message = format!(
            "spec.subdomain does not conform to the kubernetes DNS_SUBDOMAIN rules : {faults}"
        );
        review.invalid("spec.subdomain", subdomain, message);
    }
}

/// What is wrong with a name, in the words of Kubernetes' validation, which says of one that is too long and of one with other
/// characters each what it is.
fn faults(name: &str, most: usize, is_legal: bool, rule: &str) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let mut faults = Vec::new();
    if name.len() > most {
        faults.push(format!("must be no more than {most} characters"));
    }
    if !is_legal {
        faults.push(rule.to_owned());
    }
    (!faults.is_empty()).then(|| faults.join(", "))
}

/// The labels that `nodeSelector` asks for must be on this node.
fn check_node_selector(selector: &BTreeMap<String, String>, review: &mut Review<'_>) {
    let Some(caps) = review.caps() else { return };
    for (key, value) in selector {
        if caps.labels.get(key) != Some(value) {
            let has = caps
                .labels
                .get(key)
                .map_or_else(|| "no such label".to_owned(), |value| format!("{value:?}"));
            review.push(
                FieldError::new(
                    format!("spec.nodeSelector.{key}"),
                    Rule::Invalid,
                    format!("node {:?} has {has}", caps.node_name),
                )
                .value(value)
                .fix("apply it to a node that has the label, or leave the selector out")
                .beyond(Bound::Node),
            );
        }
    }
}

/// Reports a name that is no DNS label, in the words of Kubernetes' validation (`IsDNS1123Label`).
pub(super) fn check_label(field: &str, name: &str, review: &mut Review<'_>) {
    if name.len() > MAX_LABEL_BYTES {
        let message = format!("must be no more than {MAX_LABEL_BYTES} characters");
        review.invalid(field, name, message);
    }
    match (is_dns_subdomain(name), name.contains('.')) {
        (true, false) => {}
        (true, true) => review.invalid(field, name, "must not contain dots"),
        (false, _) => review.invalid(field, name, DNS_LABEL_RULE),
    }
}

fn check_labels(labels: &BTreeMap<String, String>, review: &mut Review<'_>) {
    for (key, value) in labels {
        if !is_qualified_name(key) {
            review.invalid("metadata.labels", key, QUALIFIED_NAME_RULE);
        }
        if value.len() > 63 {
            review.invalid(
                "metadata.labels",
                value,
                "must be no more than 63 characters",
            );
        } else if !value.is_empty() && !is_name_part(value) {
            review.invalid("metadata.labels", value, LABEL_VALUE_RULE);
        }
        if review.is_new() && RESERVED_LABELS.contains(&key.as_str()) {
            review.invalid(
                "metadata.labels",
                key,
                "creation of the following reserved kubevirt.io/ labels on a VMI object is prohibited",
            );
        }
    }
}

fn check_annotations(annotations: &BTreeMap<String, String>, review: &mut Review<'_>) {
    let mut bytes = 0;
    for (key, value) in annotations {
        bytes += key.len() + value.len();
        if !is_qualified_name(&key.to_lowercase()) {
            review.invalid("metadata.annotations", key, QUALIFIED_NAME_RULE);
        }
    }
    if bytes > MAX_ANNOTATION_BYTES {
        review.push(FieldError::new(
            "metadata.annotations",
            Rule::Invalid,
            format!("{bytes} bytes in all: must have at most {MAX_ANNOTATION_BYTES} bytes"),
        ));
    }
}

/// `[prefix/]name`, the prefix a DNS subdomain.
pub(super) fn is_qualified_name(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    prefix.is_none_or(is_dns_subdomain) && name.len() <= 63 && is_name_part(name)
}

fn is_name_part(text: &str) -> bool {
    let ends_well = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    ends_well(text.bytes().next())
        && ends_well(text.bytes().next_back())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn is_uid(text: &str) -> bool {
    text.len() <= 128
        && text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
