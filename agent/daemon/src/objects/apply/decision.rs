//! What an apply comes to: what is written, or why nothing is.

use std::path::PathBuf;

use agent_domain::{Admitted, NodeCaps, Vmi};
use agent_objects::{Kinds, Part, Written};
use agent_plan::Timestamp;
use agent_sources::{ApiError, Applied};
use proto_node::meta::ObjectMeta;
use proto_node::object::{VMI_API_VERSION, VMI_KIND};
use proto_node::vmi::{VirtualMachineInstance, VirtualMachineInstanceStatus};

use crate::object::{self, FINALIZER};
use crate::object_source::OWN_ANNOTATIONS;
use crate::uid::new_uid;
use crate::{clock, paths};

/// What an apply comes to.
pub(super) struct Decision {
    pub(super) applied: Applied,
    /// The last finalizer of a deleted object was taken away.
    pub(super) gone: bool,
    /// Disks that a new VMI writes to.
    pub(super) written: Vec<PathBuf>,
}

fn admit(object: VirtualMachineInstance, caps: &NodeCaps) -> Result<Admitted, ApiError> {
    let name = object::metadata(&object).name;
    Vmi::admit(object, caps).map_err(|errors| ApiError::Invalid {
        kind: VMI_KIND,
        name,
        errors,
    })
}

pub(super) fn create(
    mut object: VirtualMachineInstance,
    caps: &NodeCaps,
    now: Timestamp,
) -> Result<Decision, ApiError> {
    object.api_version = VMI_API_VERSION.to_owned();
    object.kind = VMI_KIND.to_owned();
    object.status = Some(VirtualMachineInstanceStatus {
        phase: String::from("Pending"),
        ..Default::default()
    });
    let metadata = object.metadata.get_or_insert_default();
    metadata.uid = new_uid();
    metadata.generation = 1;
    metadata.creation_timestamp = clock::rfc3339(now);
    if !metadata
        .finalizers
        .iter()
        .any(|finalizer| finalizer == FINALIZER)
    {
        metadata.finalizers.push(FINALIZER.to_owned());
    }
    let admitted = admit(object, caps)?;
    let written = paths::written(&admitted.vmi);
    let applied = Applied {
        object: admitted.object,
        created: true,
        configured: false,
        warnings: admitted.warnings,
    };
    Ok(Decision {
        applied,
        gone: false,
        written,
    })
}

/// Labels, annotations, owners and finalizers can change; what else can, [`agent_objects::update`] judges.
pub(super) fn update(
    offered: VirtualMachineInstance,
    present: VirtualMachineInstance,
) -> Result<Decision, ApiError> {
    let mut metadata = offered.metadata.clone().unwrap_or_default();
    take_over(&mut metadata, &object::metadata(&present));
    let candidate = VirtualMachineInstance {
        metadata: Some(metadata),
        ..offered
    };
    let filled_in = fill_in(candidate, &present)?;
    let mut warnings = filled_in.warnings;
    let written = judge(&filled_in.object, &present)?;
    let (configured, gone) = match &written {
        Written::Unchanged => (false, false),
        Written::Changed(_) => (true, false),
        Written::Gone(_) => (true, true),
    };
    let metadata = match written {
        Written::Unchanged => object::metadata(&present),
        Written::Changed(object) | Written::Gone(object) => object.metadata,
    };
    if !metadata.deletion_timestamp.is_empty() {
        warnings.push(goes_first(&metadata.name));
    }
    let object = VirtualMachineInstance {
        metadata: Some(metadata),
        ..present
    };
    Ok(Decision {
        applied: Applied {
            object,
            created: false,
            configured,
            warnings,
        },
        gone,
        written: Vec::new(),
    })
}

/// Advice to whoever applies a VMI that is being deleted.
pub(crate) fn goes_first(name: &str) -> String {
    format!("{name} is being deleted; apply it again when it is gone")
}

fn judge(
    offered: &VirtualMachineInstance,
    present: &VirtualMachineInstance,
) -> Result<Written, ApiError> {
    let refused = |refusal| {
        let name = object::metadata(present).name;
        ApiError::of_refusal(VMI_KIND, &name, refusal)
    };
    let kind = Kinds::this_release().named(VMI_KIND).map_err(refused)?;
    let (offered, present) = (object::as_object(offered)?, object::as_object(present)?);
    agent_objects::update(kind, &present, offered, Part::Main).map_err(refused)
}

/// An offered VMI in the form in which the present one is stored.
pub(crate) struct FilledIn {
    pub(crate) object: VirtualMachineInstance,
    /// Advice.
    pub(crate) warnings: Vec<String>,
}

/// Fills the defaults into what is offered in the place of a VMI, so that the two can be compared: those of names and
/// addresses come from the present one's uid. What the node has is not asked: that the guest was admitted is enough for it
/// to stay.
pub(crate) fn fill_in(
    offered: VirtualMachineInstance,
    present: &VirtualMachineInstance,
) -> Result<FilledIn, ApiError> {
    let before = object::metadata(present);
    let metadata = ObjectMeta {
        uid: before.uid,
        namespace: before.namespace,
        name: before.name.clone(),
        ..object::metadata(&offered)
    };
    let candidate = VirtualMachineInstance {
        api_version: present.api_version.clone(),
        kind: present.kind.clone(),
        metadata: Some(metadata),
        status: None,
        ..offered.clone()
    };
    let admitted = Vmi::admit_anywhere(candidate).map_err(|errors| ApiError::Invalid {
        kind: VMI_KIND,
        name: before.name,
        errors,
    })?;
    let spec = admitted.object.spec;
    let spec = if spec == as_of_now(present).spec {
        present.spec.clone()
    } else {
        spec
    };
    Ok(FilledIn {
        object: VirtualMachineInstance {
            api_version: present.api_version.clone(),
            kind: present.kind.clone(),
            spec,
            ..offered
        },
        warnings: admitted.warnings,
    })
}

/// The stored object with the defaults of this release, which may fill in more than the one did that
/// stored it.
fn as_of_now(present: &VirtualMachineInstance) -> VirtualMachineInstance {
    Vmi::restore(present.clone()).map_or_else(|_| present.clone(), |restored| restored.object)
}

/// What the caller gave, and of what is there whatever is not the caller's to change.
fn take_over(metadata: &mut ObjectMeta, before: &ObjectMeta) {
    metadata.uid.clone_from(&before.uid);
    metadata
        .resource_version
        .clone_from(&before.resource_version);
    metadata.generation = before.generation;
    metadata
        .creation_timestamp
        .clone_from(&before.creation_timestamp);
    metadata
        .deletion_timestamp
        .clone_from(&before.deletion_timestamp);
    metadata.deletion_grace_period_seconds = before.deletion_grace_period_seconds;
    metadata.generate_name.clone_from(&before.generate_name);
    metadata.self_link.clone_from(&before.self_link);
    metadata
        .annotations
        .retain(|name, _| !name.starts_with(OWN_ANNOTATIONS));
    let own = before
        .annotations
        .iter()
        .filter(|(name, _)| name.starts_with(OWN_ANNOTATIONS));
    metadata
        .annotations
        .extend(own.map(|(name, value)| (name.clone(), value.clone())));
    if metadata.owner_references.is_empty() {
        metadata
            .owner_references
            .clone_from(&before.owner_references);
    }
    metadata.managed_fields.clone_from(&before.managed_fields);
    if metadata.finalizers.is_empty() {
        metadata.finalizers.clone_from(&before.finalizers);
    } else {
        // Only the agent says that nothing of the guest is left.
        let ours = |finalizer: &String| finalizer == FINALIZER;
        metadata.finalizers.retain(|finalizer| !ours(finalizer));
        if before.finalizers.iter().any(ours) {
            metadata.finalizers.push(FINALIZER.to_owned());
        }
    }
}
