//! VirtualMachines: whether the spec of one can be honoured.

use proto_node::meta::ObjectMeta;
use proto_node::vmi::{
    VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceTemplateSpec, VirtualMachineSpec,
};
use proto_node::{from_json, to_json};
use serde_json::{Value, json};

use super::admitted::{Admitted, Remark};
use super::machine::NO_MEMORY;
use super::purpose::{ARCHITECTURE, AdmissionPurpose};
use super::review::Review;
use super::{cdi, rules, secure_boot};
use crate::caps::NodeCaps;
use crate::derive::{firmware_serial, firmware_uuid};
use crate::error::{FieldError, Rule, of_fields_within};
use crate::instancetype::{
    FindKit, Kit, Sort, apply, check_matchers, check_requirements, check_spread, conflict_text,
    fill_in_defaults, is_inferred, leave_out_matchers, machine_type, named, origin,
};
use crate::run_strategy::RunStrategy;
use crate::vmi::Vmi;

/// Where a machine holds what its VMIs are made of.
const TEMPLATE: &str = "spec.template";

/// An admitted machine and what its user should know.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmittedVirtualMachine {
    /// The object as it is to be stored: with the defaults that KubeVirt stores, and no others.
    pub object: VirtualMachine,
    /// Advice to whoever applies, one sentence each.
    pub warnings: Vec<String>,
    /// Fields that were accepted and have no effect: path and reason.
    pub ignored: Vec<Remark>,
}

/// Admits a machine: fills in its defaults and judges it, as [`judge_virtual_machine`] does.
///
/// # Errors
/// Every rule that is broken.
pub fn admit_virtual_machine(
    mut object: VirtualMachine,
    caps: Option<&NodeCaps>,
    find: FindKit<'_>,
) -> Result<AdmittedVirtualMachine, Vec<FieldError>> {
    default_virtual_machine(&mut object, find);
    let advice = judge_virtual_machine(&object, (caps, find), Absence::Known)?;
    Ok(AdmittedVirtualMachine {
        object,
        warnings: advice.warnings,
        ignored: advice.ignored,
    })
}

/// Fills in what KubeVirt stores in a machine: architecture, machine type and the identity of the firmware, which all its
/// VMIs have. An instance type says none of it, so a machine that waits for one has it, too; of a preference that is not
/// there nothing is waited for. The server has set `metadata.uid` before.
pub fn default_virtual_machine(object: &mut VirtualMachine, find: FindKit<'_>) {
    let uid = object
        .metadata
        .as_ref()
        .map(|metadata| metadata.uid.clone());
    let preference = object.spec.as_ref().and_then(|spec| {
        let named = named(spec, Sort::Preference).ok()??;
        find(object, &named, Sort::Preference)
    });
    let Some(spec) = object.spec.as_mut() else {
        return;
    };
    leave_out_matchers(spec);
    if let Some(template) = spec.template.as_mut() {
        fill_in(template, &uid.unwrap_or_default(), preference.as_ref());
    }
}

/// What it means that an instance type or a preference is not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// There is none.
    Known,
    /// There may be one.
    Unknown,
}

/// What the user of a machine that breaks no rule should know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineAdvice {
    /// Advice to whoever applies, one sentence each.
    pub warnings: Vec<String>,
    /// Fields that were accepted and have no effect: path and reason.
    pub ignored: Vec<Remark>,
}

/// Judges a machine that has its defaults: its template is judged as the VMI that will be made of it. Without `caps` it is judged
/// for a node that has all that this release can use. So is a machine that does not start by itself: what the node lacks matters
/// when it is started.
///
/// As under KubeVirt an instance type or preference that is not there is no reason to refuse a machine: it waits for it. Where there
/// may be one all the same, what depends on it is not judged.
///
/// # Errors
/// Every rule that is broken.
pub fn judge_virtual_machine(
    object: &VirtualMachine,
    (caps, find): (Option<&NodeCaps>, FindKit<'_>),
    absence: Absence,
) -> Result<MachineAdvice, Vec<FieldError>> {
    let mut review = Review::new(AdmissionPurpose::creation(caps));
    // Metadata is judged for all kinds alike, the status is the controller's, the template is judged as a VMI.
    let left_out = ["metadata", "status", "spec.template"];
    rules::check(object, &left_out, &mut review);
    let metadata = object.metadata.clone().unwrap_or_default();
    let Some(spec) = object.spec.as_ref() else {
        return Err(review.errors);
    };
    check_run_strategy(spec, &mut review);
    cdi::templates(spec, &metadata.namespace, &mut review);
    for error in check_matchers(spec) {
        review.push(error);
    }
    let caps = caps.filter(|_| RunStrategy::of(spec).is_some_and(RunStrategy::starts_by_itself));
    let mut found = FoundKit::of(object, find, &mut review);
    found.is_unknown |= absence == Absence::Unknown && !found.missing.is_empty();
    if let Some(template) = &spec.template {
        judge_template(template, &metadata, (caps, &found), &mut review);
    }
    if review.errors.is_empty() {
        Ok(MachineAdvice {
            warnings: review.warnings,
            ignored: review.ignored,
        })
    } else {
        Err(review.errors)
    }
}

/// The instance type and the preference of a machine.
#[derive(Default)]
struct FoundKit {
    instancetype: Option<(String, Value)>,
    preference: Option<(String, Value)>,
    /// What is missing, each as `spec.instancetype "large"`.
    missing: Vec<String>,
    /// One is named by the labels of a volume, which are not known here, or is not known itself.
    is_unknown: bool,
    /// A preference that could be named instead of one that asks for secure boot.
    without_secure_boot: Option<&'static str>,
}

impl FoundKit {
    fn of(object: &VirtualMachine, find: FindKit<'_>, review: &mut Review<'_>) -> Self {
        let mut kit = Self::default();
        for sort in [Sort::Instancetype, Sort::Preference] {
            let spec = object.spec.as_ref();
            // A matcher that is inferred from a volume is checked with the others.
            kit.is_unknown |= spec.is_some_and(|spec| is_inferred(spec, sort));
            let named = match spec.map(|spec| named(spec, sort)) {
                Some(Ok(Some(named))) => named,
                Some(Err(text)) => {
                    kit.miss(sort, &text, review);
                    continue;
                }
                Some(Ok(None)) | None => continue,
            };
            let Some(spec) = find(object, &named, sort) else {
                let text = format!("{} {:?} not found", named.kind, named.name);
                kit.miss(sort, &text, review);
                continue;
            };
            let found = Some((named.name, spec));
            match sort {
                Sort::Instancetype => kit.instancetype = found,
                Sort::Preference => kit.preference = found,
            }
        }
        if let Some((_, preference)) = &kit.preference {
            kit.without_secure_boot = secure_boot::other(object, preference, find);
        }
        kit
    }

    fn miss(&mut self, sort: Sort, text: &str, review: &mut Review<'_>) {
        let text = format!("{}: {text}", sort.field());
        review.warn(&format!(
            "{text}: the machine is not started before there is one"
        ));
        self.missing.push(text);
    }

    fn kit(&self) -> Kit<'_> {
        Kit {
            instancetype: self.instancetype.as_ref().map(|(_, spec)| spec),
            preference: self.preference.as_ref().map(|(_, spec)| spec),
        }
    }
}

fn judge_template(
    template: &VirtualMachineInstanceTemplateSpec,
    metadata: &ObjectMeta,
    (caps, found): (Option<&NodeCaps>, &FoundKit),
    review: &mut Review<'_>,
) {
    let kit = found.kit();
    if let Err(text) = check_spread(kit.instancetype, kit.preference) {
        let field = "instancetype.spec.cpu.guest";
        review.push(FieldError::new(field, Rule::Invalid, text));
        return;
    }
    let plain = to_json(template);
    let mut made = plain.clone();
    if let Err(paths) = apply(kit, &mut made, "spec.template.spec") {
        for path in paths {
            let text = conflict_text(&path);
            let way_out = "leave it out: the instance type says it";
            review.push(FieldError::new(path, Rule::Invalid, text).fix(way_out));
        }
        return;
    }
    if found.is_unknown {
        judge_without_kit(&plain, metadata, caps, review);
        return;
    }
    let mut sized = made["spec"].clone();
    fill_in_defaults(&mut sized);
    if let Err(short) = check_requirements(kit.instancetype, kit.preference, &sized) {
        let text = format!(
            "failure checking preference requirements: {}",
            short.message
        );
        let error = FieldError::new(short.field, Rule::NotFound, text);
        review.push(error.fix(found.missing.join("; ")));
        return;
    }
    let is_unsized = sized.pointer("/domain/memory/guest").is_none();
    if is_unsized && found.missing.is_empty() {
        review.warn(
            "the machine has no memory, and is not started before it has: set spec.template.spec.domain.memory.guest, or \
             spec.instancetype",
        );
    }
    let mut judged = judge_made(&made, metadata, caps);
    if is_unsized && let Err(errors) = &mut judged {
        // KubeVirt takes such a machine: its VMI is what it refuses.
        errors.retain(|error| error.message != NO_MEMORY);
        if errors.is_empty() {
            // The rest is judged with any size.
            if let Some(Value::Object(domain)) = made.pointer_mut("/spec/domain") {
                domain.insert("memory".to_owned(), json!({"guest": "1Gi"}));
            }
            judged = judge_made(&made, metadata, caps);
        }
    }
    match judged {
        Ok(admitted) => {
            let warnings = admitted.warnings.iter();
            review
                .warnings
                .extend(warnings.map(|text| of_fields_within(TEMPLATE, text)));
            let ignored = admitted.ignored.into_iter();
            review.ignored.extend(ignored.map(|remark| Remark {
                path: format!("{TEMPLATE}.{}", remark.path),
                ..remark
            }));
        }
        Err(errors) => {
            for error in errors {
                review.push(of_kit(error, &plain, found));
            }
        }
    }
}

/// Judges a template with all that its instance type and preference give it.
fn judge_made(
    made: &Value,
    metadata: &ObjectMeta,
    caps: Option<&NodeCaps>,
) -> Result<Admitted, Vec<FieldError>> {
    let expanded = from_json(made.clone()).map_err(|errors| {
        let errors = errors.into_iter();
        let invalid = errors.map(|error| FieldError::new(error.path, Rule::Invalid, error.message));
        invalid.collect::<Vec<_>>()
    })?;
    admit_vmi(&expanded, metadata, caps)
}

/// Fields of a VMI that neither instance types nor preferences make legal. KubeVirt's errors leave parents out of the path of
/// some.
const OF_TEMPLATE_ALONE: [&str; 13] = [
    "spec.GPUs",
    "spec.Sound",
    "spec.accessCredentials",
    "spec.affinity",
    "spec.domain.devices",
    "spec.networks",
    "spec.nodeAffinity",
    "spec.podAffinity",
    "spec.podAntiAffinity",
    "spec.resourceClaims",
    "spec.topologySpreadConstraints",
    "spec.utilityVolumes",
    "spec.volumes",
];

/// Judges what does not depend on an instance type or a preference that is not there.
fn judge_without_kit(
    template: &Value,
    metadata: &ObjectMeta,
    caps: Option<&NodeCaps>,
    review: &mut Review<'_>,
) {
    let mut example = template.clone();
    let domain = example.pointer_mut("/spec/domain");
    if let Some(domain) = domain.filter(|domain| domain.is_object()) {
        // The size is unknown; any will do.
        domain["memory"] = json!({"guest": "1Gi"});
    }
    // It was decoded once.
    let Ok(example) = from_json(example) else {
        return;
    };
    let errors = admit_vmi(&example, metadata, caps)
        .err()
        .unwrap_or_default();
    for error in errors {
        let is_of_schema = error.message.ends_with(" in body is required");
        let mut fields = OF_TEMPLATE_ALONE.iter();
        if is_of_schema || fields.any(|field| error.path.starts_with(field)) {
            review.push(error.within(TEMPLATE));
        }
    }
}

/// An error of a VMI as one of its machine: it names the instance type or preference that the value comes from.
fn of_kit(error: FieldError, template: &Value, found: &FoundKit) -> FieldError {
    let preference = found.preference.as_ref();
    if let Some((name, preference)) = preference.filter(|_| secure_boot::is_cause(&error)) {
        let other = found.without_secure_boot;
        if let Some(fix) = secure_boot::way_out((name, preference), template, other) {
            return FieldError { fix, ..error }.within(TEMPLATE);
        }
    }
    let source = origin(&error.path, template, found.kit());
    let name = match source {
        Some(Sort::Instancetype) => found.instancetype.as_ref().map(|(name, _)| name),
        Some(Sort::Preference) => preference.map(|(name, _)| name),
        None => None,
    };
    let fix = match (source, name) {
        (Some(sort), Some(name)) => format!("it comes from the {} {name:?}", sort.word()),
        _ => error.fix,
    };
    FieldError { fix, ..error }.within(TEMPLATE)
}

fn check_run_strategy(spec: &VirtualMachineSpec, review: &mut Review<'_>) {
    match (&spec.run_strategy, spec.running) {
        (Some(_), Some(running)) => review.invalid(
            "spec.running",
            if running { "true" } else { "false" },
            "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead",
        ),
        (None, None) => review.push(FieldError::new(
            "spec.running",
            Rule::Invalid,
            "RunStrategy must be specified",
        )),
        (None, Some(_)) => {
            review.warn("spec.running is deprecated, please use spec.runStrategy instead.");
        }
        (Some(_), None) => {}
    }
}

/// Judges the VMI that would be made of a template.
fn admit_vmi(
    template: &VirtualMachineInstanceTemplateSpec,
    machine: &ObjectMeta,
    caps: Option<&NodeCaps>,
) -> Result<Admitted, Vec<FieldError>> {
    let metadata = template.metadata.clone().unwrap_or_default();
    let example = VirtualMachineInstance {
        metadata: Some(ObjectMeta {
            name: machine.name.clone(),
            namespace: machine.namespace.clone(),
            uid: machine.uid.clone(),
            labels: metadata.labels,
            annotations: metadata.annotations,
            ..ObjectMeta::default()
        }),
        spec: template.spec.clone(),
        ..VirtualMachineInstance::default()
    };
    match caps {
        Some(caps) => Vmi::admit(example, caps),
        None => Vmi::admit_anywhere(example),
    }
}

fn fill_in(
    template: &mut VirtualMachineInstanceTemplateSpec,
    uid: &str,
    preference: Option<&Value>,
) {
    let Some(spec) = template.spec.as_mut() else {
        return;
    };
    let preferred = |path: &str| -> Option<String> {
        let text = preference?.pointer(path)?.as_str()?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    if spec.architecture.is_empty() {
        let preferred = preferred("/preferredArchitecture");
        spec.architecture = preferred.unwrap_or_else(|| ARCHITECTURE.to_owned());
    }
    let Some(domain) = spec.domain.as_mut() else {
        return;
    };
    let machine = domain.machine.get_or_insert_default();
    if machine.r#type.is_empty() {
        let preferred = preferred("/machine/preferredMachineType");
        let usual = || machine_type(&spec.architecture).to_owned();
        machine.r#type = preferred.unwrap_or_else(usual);
    }
    let firmware = domain.firmware.get_or_insert_default();
    if firmware.uuid.is_empty() {
        firmware.uuid = firmware_uuid(uid);
    }
    if firmware.serial.is_empty() {
        firmware.serial = firmware_serial(uid);
    }
}
