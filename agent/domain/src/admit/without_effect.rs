//! Fields that have no effect on this node, and what KubeVirt demands of them all the same.

use proto_node::vmi::{DomainSpec, VirtualMachineInstanceSpec};
use serde_json::Value;

use super::review::Review;
use crate::error::{FieldError, Rule};

/// Judges what is new.
pub(super) fn check(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) {
    if let Some(domain) = &spec.domain {
        io_threads(domain, review);
    }
}

fn io_threads(domain: &DomainSpec, review: &mut Review<'_>) {
    if domain.io_threads_policy != "supplementalPool" {
        return;
    }
    let count = member(&domain.io_threads, "supplementalPoolThreadCount");
    if count.and_then(|count| count.as_u64()).unwrap_or(0) < 1 {
        let error = FieldError::new(
            // KubeVirt's path; the field is another.
            "spec.domain.ioThreads.count",
            Rule::Invalid,
            "the number of iothreads needs to be set and positive for the dedicated policy",
        );
        review.push(error.fix(
            "set spec.domain.ioThreads.supplementalPoolThreadCount, or leave spec.domain.ioThreadsPolicy out: neither has an \
             effect here",
        ));
    }
}

/// A member of a field that is kept whole.
fn member(json: &[u8], name: &str) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(json).ok()?;
    value.get_mut(name).map(Value::take)
}
