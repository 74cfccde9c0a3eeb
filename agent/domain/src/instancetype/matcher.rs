//! How a machine names its instance type and its preference.

use proto_node::vmi::{VirtualMachine, VirtualMachineSpec, Volume};
use serde_json::Value;

use crate::error::{Bound, FieldError, Rule};

/// Whether an instance type or a preference is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// An instance type.
    Instancetype,
    /// A VirtualMachinePreference, of a namespace or of the cluster.
    Preference,
}

/// An instance type or preference that a machine names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Kind in manifests.
    pub kind: &'static str,
    /// It lives in the machine's namespace.
    pub is_namespaced: bool,
    /// `metadata.name` of the instance type or preference.
    pub name: String,
    /// The ControllerRevision with the copy that is wanted; empty: the one that the machine has.
    pub revision: String,
}

/// Finds the spec of an instance type or preference that a machine names, whose status may name a copy of it.
pub type FindKit<'a> = &'a dyn Fn(&VirtualMachine, &Named, Sort) -> Option<Value>;

/// Either matcher.
struct Matcher<'a> {
    name: &'a str,
    kind: &'a str,
    revision: &'a str,
    volume: &'a str,
    policy: &'a str,
}

impl Sort {
    /// The field of a machine.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Instancetype => "spec.instancetype",
            Self::Preference => "spec.preference",
        }
    }

    /// Which of them objects of a kind are.
    #[must_use]
    pub fn of_kind(kind: &str) -> Option<Self> {
        let mut all = [Self::Instancetype, Self::Preference].into_iter();
        all.find(|sort| [sort.kinds().0, sort.kinds().1].contains(&kind))
    }

    /// Kinds in a namespace and of the cluster.
    pub(super) const fn kinds(self) -> (&'static str, &'static str) {
        match self {
            Self::Instancetype => (
                "VirtualMachineInstancetype",
                "VirtualMachineClusterInstancetype",
            ),
            Self::Preference => (
                "VirtualMachinePreference",
                "VirtualMachineClusterPreference",
            ),
        }
    }

    /// The word in conditions: `FailedFindInstancetype`.
    #[must_use]
    pub const fn not_found(self) -> &'static str {
        match self {
            Self::Instancetype => "FailedFindInstancetype",
            Self::Preference => "FailedFindPreference",
        }
    }

    /// The word in sentences.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Instancetype => "instancetype",
            Self::Preference => "preference",
        }
    }

    /// KubeVirt's name of the matcher.
    const fn matcher(self) -> &'static str {
        match self {
            Self::Instancetype => "InstancetypeMatcher",
            Self::Preference => "PreferenceMatcher",
        }
    }

    fn of(self, spec: &VirtualMachineSpec) -> Option<Matcher<'_>> {
        match self {
            Self::Instancetype => spec.instancetype.as_ref().map(|it| Matcher {
                name: &it.name,
                kind: &it.kind,
                revision: &it.revision_name,
                volume: &it.infer_from_volume,
                policy: &it.infer_from_volume_failure_policy,
            }),
            Self::Preference => spec.preference.as_ref().map(|it| Matcher {
                name: &it.name,
                kind: &it.kind,
                revision: &it.revision_name,
                volume: &it.infer_from_volume,
                policy: &it.infer_from_volume_failure_policy,
            }),
        }
    }
}

/// What a machine names.
///
/// # Errors
/// KubeVirt's sentence about a kind that is none.
pub fn named(spec: &VirtualMachineSpec, sort: Sort) -> Result<Option<Named>, String> {
    let Some(matcher) = sort.of(spec).filter(|matcher| !matcher.name.is_empty()) else {
        return Ok(None);
    };
    let (in_namespace, of_cluster) = sort.kinds();
    let word = matcher.kind.to_lowercase();
    let is = |kind: &str| {
        let singular = kind.to_lowercase();
        word == singular || word == format!("{singular}s")
    };
    let is_namespaced = is(in_namespace);
    if !is_namespaced && !word.is_empty() && !is(of_cluster) {
        return Err(format!(
            "got unexpected kind in {}: {}",
            sort.matcher(),
            matcher.kind
        ));
    }
    Ok(Some(Named {
        kind: if is_namespaced {
            in_namespace
        } else {
            of_cluster
        },
        is_namespaced,
        name: matcher.name.to_owned(),
        revision: matcher.revision.to_owned(),
    }))
}

/// KubeVirt's rule of changed matchers: another name with the revision of the one before would have no effect.
#[must_use]
pub fn check_matcher_changes(
    before: &VirtualMachineSpec,
    spec: &VirtualMachineSpec,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for sort in [Sort::Instancetype, Sort::Preference] {
        let (Some(before), Some(now)) = (sort.of(before), sort.of(spec)) else {
            continue;
        };
        if !now.revision.is_empty() && now.revision == before.revision && now.name != before.name {
            let field = format!("{}.revisionName", sort.field());
            let text = "the Matcher Name has been updated without updating the RevisionName";
            errors.push(FieldError::new(field, Rule::Invalid, text));
        }
    }
    errors
}

/// Leaves out matchers that name nothing and may: their volume tells nothing.
pub fn leave_out_matchers(spec: &mut VirtualMachineSpec) {
    for sort in [Sort::Instancetype, Sort::Preference] {
        let is_legal = sort.of(spec).is_some_and(|it| check(sort, &it).is_empty());
        if !is_legal || !is_inferred(spec, sort) || infer(spec, sort).is_err() {
            continue;
        }
        match sort {
            Sort::Instancetype => spec.instancetype = None,
            Sort::Preference => spec.preference = None,
        }
    }
}

/// Judges both matchers.
#[must_use]
pub fn check_matchers(spec: &VirtualMachineSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for sort in [Sort::Instancetype, Sort::Preference] {
        let Some(matcher) = sort.of(spec) else {
            continue;
        };
        let before = errors.len();
        errors.extend(check(sort, &matcher));
        if errors.len() == before && is_inferred(spec, sort) {
            errors.extend(infer(spec, sort).err());
        }
    }
    errors
}

/// Whether a machine wants what the labels of a volume name.
pub(crate) fn is_inferred(spec: &VirtualMachineSpec, sort: Sort) -> bool {
    !matcher_volume(spec, sort).is_empty()
}

fn matcher_volume(spec: &VirtualMachineSpec, sort: Sort) -> &str {
    sort.of(spec).map_or("", |matcher| matcher.volume)
}

fn check(sort: Sort, matcher: &Matcher<'_>) -> Vec<FieldError> {
    let field = sort.field();
    let mut errors = Vec::new();
    if matcher.name.is_empty() && matcher.volume.is_empty() {
        let text = format!(
            "Either Name or InferFromVolume should be provided within the {}",
            sort.matcher()
        );
        errors.push(FieldError::new(field, Rule::NotFound, text));
    }
    if !matcher.volume.is_empty() {
        for (name, word, value) in [
            ("name", "Name", matcher.name),
            ("kind", "Kind", matcher.kind),
        ] {
            if !value.is_empty() {
                let text =
                    format!("{word} already set, should be cleared before setting inferFromVolume");
                let error = FieldError::new(format!("{field}.{name}"), Rule::NotSupported, text);
                errors.push(error.beyond(Bound::Api));
            }
        }
    }
    if !matches!(matcher.policy, "" | "Reject" | "Ignore") {
        let text = format!(
            "Invalid value '{}' for InferFromVolumeFailurePolicy",
            matcher.policy
        );
        let field = format!("{field}.inferFromVolumeFailurePolicy");
        errors.push(FieldError::new(field, Rule::Invalid, text));
    }
    errors
}

/// Whether a matcher whose volume tells nothing may be left out.
fn infer(spec: &VirtualMachineSpec, sort: Sort) -> Result<(), FieldError> {
    let matcher = sort.of(spec);
    let (wanted, policy) = matcher.map_or(("", ""), |it| (it.volume, it.policy));
    let field = format!("{}.inferFromVolume", sort.field());
    let template = spec.template.as_ref().and_then(|it| it.spec.as_ref());
    let mut volumes = template.into_iter().flat_map(|spec| &spec.volumes);
    let Some(volume) = volumes.find(|volume| volume.name == wanted) else {
        let text = format!("unable to find volume {wanted} to infer defaults");
        return Err(FieldError::new(field, Rule::Invalid, text));
    };
    if has_labels(volume) {
        let error = FieldError::new(field, Rule::NotSupported, "not supported by this release");
        let way_out = format!(
            "this node has no persistent volumes whose labels could name one: give {}.name",
            sort.field()
        );
        return Err(error.value(wanted).fix(way_out));
    }
    if policy == "Ignore" {
        return Ok(());
    }
    let text = format!("unable to infer defaults from volume {wanted} as type is not supported");
    Err(FieldError::new(field, Rule::Invalid, text))
}

/// Whether a volume is of a type that can have labels.
fn has_labels(volume: &Volume) -> bool {
    let form = proto_node::to_json(volume);
    ["persistentVolumeClaim", "dataVolume"]
        .iter()
        .any(|name| form.get(name).is_some())
}
