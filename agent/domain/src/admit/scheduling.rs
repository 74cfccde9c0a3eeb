//! Where a workload may run, by the rules of Kubernetes that KubeVirt applies.

use std::collections::BTreeSet;

use prost::{Message, Name};
use proto_node::core::{
    Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinity, PodAffinityTerm, Toleration,
    TopologySpreadConstraint,
};
use proto_node::from_json;
use proto_node::meta::LabelSelector;
use proto_node::vmi::VirtualMachineInstanceSpec;

use super::metadata::{QUALIFIED_NAME_RULE, is_qualified_name};
use super::review::Review;
use super::rules::check_allowed;
use crate::error::{FieldError, Rule};

const WITH_VALUES: &str = "must be specified when `operator` is 'In' or 'NotIn'";
const WITHOUT_VALUES: &str = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
/// Operators and effects of tolerations.
const OPERATORS: [&str; 2] = ["Equal", "Exists"];
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "PreferNoSchedule"];
const NO_OPERATOR: &str = "not a valid selector operator";

/// Judges affinity, spread and tolerations.
pub(super) fn check(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) {
    check_tolerations(&spec.tolerations, review);
    if let Some(affinity) = &spec.affinity {
        // KubeVirt's errors leave `affinity` out of the path.
        check_affinity("spec", affinity, review);
    }
    let constraints: Vec<TopologySpreadConstraint> = decoded(&spec.topology_spread_constraints)
        .map(|(_, constraint)| constraint)
        .collect();
    check_spread("spec.topologySpreadConstraints", &constraints, review);
}

/// What a list of JSON holds, with its indexes. What has another form was refused while it was decoded.
fn decoded<M: Message + Name + Default>(list: &[Vec<u8>]) -> impl Iterator<Item = (usize, M)> {
    list.iter().enumerate().filter_map(|(index, json)| {
        let message = from_json(serde_json::from_slice(json).ok()?).ok()?;
        Some((index, message))
    })
}

/// What the schema of KubeVirt's objects allows in a toleration.
fn check_tolerations(tolerations: &[Vec<u8>], review: &mut Review<'_>) {
    for (index, toleration) in decoded::<Toleration>(tolerations) {
        let path = format!("spec.tolerations[{index}]");
        check_allowed(
            &format!("{path}.operator"),
            &toleration.operator,
            &OPERATORS,
            review,
        );
        check_allowed(
            &format!("{path}.effect"),
            &toleration.effect,
            &EFFECTS,
            review,
        );
    }
}

fn check_affinity(path: &str, affinity: &Affinity, review: &mut Review<'_>) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    if let Some(nodes) = &affinity.node_affinity {
        let path = format!("{path}.nodeAffinity");
        let required = nodes
            .required_during_scheduling_ignored_during_execution
            .iter();
        let terms = required.flat_map(|selector| &selector.node_selector_terms);
        for (index, term) in terms.enumerate() {
            check_term(
                &format!("{path}.{REQUIRED}.nodeSelectorTerms[{index}]"),
                term,
                review,
            );
        }
        let preferred = &nodes.preferred_during_scheduling_ignored_during_execution;
        for (index, preferred) in preferred.iter().enumerate() {
            let path = format!("{path}.{PREFERRED}[{index}]");
            check_weight(&path, preferred.weight, review);
            if let Some(term) = &preferred.preference {
                check_term(&format!("{path}.preference"), term, review);
            }
        }
    }
    let pods: [(&str, Option<&PodAffinity>); 2] = [
        ("podAffinity", affinity.pod_affinity.as_ref()),
        ("podAntiAffinity", affinity.pod_anti_affinity.as_ref()),
    ];
    for (name, pods) in pods {
        let Some(pods) = pods else { continue };
        let path = format!("{path}.{name}");
        let required = &pods.required_during_scheduling_ignored_during_execution;
        for (index, term) in required.iter().enumerate() {
            check_pod_term(&format!("{path}.{REQUIRED}[{index}]"), term, review);
        }
        let preferred = &pods.preferred_during_scheduling_ignored_during_execution;
        for (index, preferred) in preferred.iter().enumerate() {
            let path = format!("{path}.{PREFERRED}[{index}]");
            check_weight(&path, preferred.weight, review);
            if let Some(term) = &preferred.pod_affinity_term {
                check_pod_term(&format!("{path}.podAffinityTerm"), term, review);
            }
        }
    }
}

/// A weight; that there is none was reported already.
fn check_weight(path: &str, weight: i32, review: &mut Review<'_>) {
    if !(0..=100).contains(&weight) {
        let field = format!("{path}.weight");
        review.invalid(&field, &weight.to_string(), "must be in the range 1-100");
    }
}

fn check_term(path: &str, term: &NodeSelectorTerm, review: &mut Review<'_>) {
    for (index, requirement) in term.match_expressions.iter().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        check_node_requirement(&path, requirement, review);
        check_key(&format!("{path}.key"), &requirement.key, review);
    }
    for (index, requirement) in term.match_fields.iter().enumerate() {
        let path = format!("{path}.matchFields[{index}]");
        if !["", "metadata.name"].contains(&requirement.key.as_str()) {
            let message = "not a valid field selector key";
            review.invalid(&format!("{path}.key"), &requirement.key, message);
        }
        match requirement.operator.as_str() {
            "" => {}
            "In" | "NotIn" if requirement.values.len() == 1 => {}
            "In" | "NotIn" => {
                let message = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                review.required(&format!("{path}.values"), message);
            }
            other => review.invalid(&format!("{path}.operator"), other, NO_OPERATOR),
        }
    }
}

fn check_node_requirement(
    path: &str,
    requirement: &NodeSelectorRequirement,
    review: &mut Review<'_>,
) {
    match requirement.operator.as_str() {
        "Gt" | "Lt" if requirement.values.len() != 1 => {
            let message = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            review.required(&format!("{path}.values"), message);
        }
        "Gt" | "Lt" => {}
        operator => check_values(path, operator, &requirement.values, review),
    }
}

/// The operators that all selectors have.
fn check_values(path: &str, operator: &str, values: &[String], review: &mut Review<'_>) {
    let field = format!("{path}.values");
    match operator {
        "In" | "NotIn" if values.is_empty() => review.required(&field, WITH_VALUES),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            review.push(FieldError::new(field, Rule::Invalid, WITHOUT_VALUES));
        }
        // That there is none was reported already.
        "" | "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => review.invalid(&format!("{path}.operator"), other, NO_OPERATOR),
    }
}

fn check_pod_term(path: &str, term: &PodAffinityTerm, review: &mut Review<'_>) {
    let selectors = [
        ("labelSelector", &term.label_selector),
        ("namespaceSelector", &term.namespace_selector),
    ];
    for (name, selector) in selectors {
        check_selector(&format!("{path}.{name}"), selector.as_ref(), review);
    }
    check_key(&format!("{path}.topologyKey"), &term.topology_key, review);
}

/// A selector of labels; operators that there are not were reported already.
pub(super) fn check_selector(
    path: &str,
    selector: Option<&LabelSelector>,
    review: &mut Review<'_>,
) {
    let requirements = selector
        .iter()
        .flat_map(|selector| &selector.match_expressions);
    for (index, requirement) in requirements.enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        if ["In", "NotIn", "Exists", "DoesNotExist"].contains(&requirement.operator.as_str()) {
            check_values(&path, &requirement.operator, &requirement.values, review);
        }
        check_key(&format!("{path}.key"), &requirement.key, review);
    }
}

/// The key of a label; that there is none was reported already.
fn check_key(field: &str, key: &str, review: &mut Review<'_>) {
    if !key.is_empty() && !is_qualified_name(key) {
        review.invalid(field, key, QUALIFIED_NAME_RULE);
    }
}

fn check_spread(path: &str, constraints: &[TopologySpreadConstraint], review: &mut Review<'_>) {
    let mut seen = BTreeSet::new();
    for (index, constraint) in constraints.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if constraint.max_skew < 0 {
            let field = format!("{path}.maxSkew");
            let skew = constraint.max_skew.to_string();
            review.invalid(&field, &skew, "must be greater than zero");
        }
        let key = &constraint.topology_key;
        check_key(&format!("{path}.topologyKey"), key, review);
        let selector = constraint.label_selector.as_ref();
        check_selector(&format!("{path}.labelSelector"), selector, review);
        let pair = (key, &constraint.when_unsatisfiable);
        if !seen.insert(pair) {
            let field = format!("{path}.{{topologyKey, whenUnsatisfiable}}");
            let value = format!("{{{}, {}}}", pair.0, pair.1);
            let error = FieldError::new(field, Rule::Duplicate, "is there twice");
            review.push(error.value(value));
        }
    }
}
