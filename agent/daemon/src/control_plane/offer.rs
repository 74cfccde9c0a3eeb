//! An assignment as it was heard: read once, judged whole.

use agent_domain::ObjectSource;
use agent_plan::{LeaseTerms, Millis, OnExpiry};
use agent_sources::{Apply, CallerTrace, Delete, Kind, ObjectRef, TOKEN_ANNOTATION};
use agent_store::{AssignmentKey, ObjectKey};
use prost::Message;
use proto_node::controlplane::lease::OnExpiry as WireOnExpiry;
use proto_node::controlplane::{Assignment, Lease};
use proto_node::vmi::VirtualMachineInstance;
use sha2::{Digest, Sha256};

use crate::object;

/// An assignment that can be acted on.
pub(super) struct Offered {
    pub(super) key: AssignmentKey,
    pub(super) token: u64,
    pub(super) digest: String,
    pub(super) lease: Option<LeaseTerms>,
    object: VirtualMachineInstance,
}

impl Offered {
    /// Reads an assignment; otherwise says of which name what is wrong.
    pub(super) fn read(
        control_plane: &str,
        assignment: &Assignment,
    ) -> Result<Self, (AssignmentKey, String)> {
        let mut object = assignment.object.clone().unwrap_or_default();
        object.status = None;
        let metadata = object.metadata.get_or_insert_default();
        metadata.generate_name.clear();
        metadata
            .annotations
            .retain(|name, _| !name.starts_with("kvmlet.io/"));
        let key = key(control_plane, &metadata.namespace, &metadata.name);
        metadata.namespace.clone_from(&key.namespace);
        let digest = Sha256::digest(object.encode_to_vec());
        let digest = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let lease = check_name(&key)
            .and_then(|()| assignment.lease.as_ref().map(terms).transpose())
            .map_err(|why| (key.clone(), why))?;
        Ok(Self {
            key,
            token: assignment.token,
            digest,
            lease,
            object,
        })
    }

    pub(super) fn offer(&self) -> agent_plan::Offer<'_> {
        agent_plan::Offer {
            token: self.token,
            digest: &self.digest,
        }
    }

    /// Makes its VMI.
    pub(super) fn apply(&self) -> Apply {
        let mut object = self.object.clone();
        let annotations = &mut object.metadata.get_or_insert_default().annotations;
        annotations.insert(TOKEN_ANNOTATION.to_owned(), self.token.to_string());
        Apply {
            object,
            idempotency_key: String::new(),
            dry_run: false,
            create_only: true,
            by: source(&self.key),
            manager: String::from("kvmlet-control-plane"),
            trace: CallerTrace::default(),
        }
    }

    /// Ends the VMI of an earlier placement.
    pub(super) fn delete_earlier(&self) -> Delete {
        Delete {
            target: target(&self.key),
            grace_period_seconds: None,
            uid: String::new(),
            resource_version: String::new(),
            by: source(&self.key),
            propagation: None,
            dry_run: false,
        }
    }
}

/// Names an assignment; an empty namespace is `default`.
pub(super) fn key(control_plane: &str, namespace: &str, name: &str) -> AssignmentKey {
    let namespace = if namespace.is_empty() {
        "default"
    } else {
        namespace
    };
    AssignmentKey {
        control_plane: control_plane.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// Refuses names that no VMI can have, before anything is remembered of them.
pub(super) fn check_name(key: &AssignmentKey) -> Result<(), String> {
    let is_legal = |text: &str, longest: usize| {
        let fits = (1..=longest).contains(&text.len());
        let legal =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        fits && text.bytes().all(legal)
    };
    if is_legal(&key.name, 253) && is_legal(&key.namespace, 63) {
        return Ok(());
    }
    Err(String::from(
        "metadata.name must be a DNS subdomain, and metadata.namespace a DNS label",
    ))
}

/// The VMI that an assignment is about.
pub(super) fn target(key: &AssignmentKey) -> ObjectRef {
    ObjectRef {
        kind: Kind::VirtualMachineInstance,
        namespace: key.namespace.clone(),
        name: key.name.clone(),
    }
}

/// Its key in the ledger.
pub(super) fn object_key(key: &AssignmentKey) -> ObjectKey {
    object::key(&target(key))
}

/// The source of an assigned object: its control plane.
pub(super) fn source(key: &AssignmentKey) -> ObjectSource {
    ObjectSource::ControlPlane {
        name: key.control_plane.clone(),
    }
}

fn terms(lease: &Lease) -> Result<LeaseTerms, String> {
    if lease.duration_seconds == 0 {
        return Err(String::from("lease.duration_seconds must be 1 or more"));
    }
    let on_expiry = match lease.on_expiry() {
        WireOnExpiry::Keep => OnExpiry::Keep,
        WireOnExpiry::Pause => OnExpiry::Pause,
        WireOnExpiry::Stop => OnExpiry::Stop,
        WireOnExpiry::Unspecified => {
            let text = format!(
                "lease.on_expiry {} must be KEEP, PAUSE or STOP",
                lease.on_expiry
            );
            return Err(text);
        }
    };
    Ok(LeaseTerms {
        duration: Millis::from_secs(lease.duration_seconds.into()),
        on_expiry,
        grace: Millis::from_secs(lease.grace_period_seconds.into()),
    })
}

#[cfg(test)]
mod tests {
    use proto_node::meta::ObjectMeta;

    use super::*;

    fn assignment(name: &str) -> Assignment {
        let metadata = ObjectMeta {
            name: name.to_owned(),
            ..ObjectMeta::default()
        };
        Assignment {
            token: 7,
            object: Some(VirtualMachineInstance {
                metadata: Some(metadata),
                ..VirtualMachineInstance::default()
            }),
            lease: None,
        }
    }

    #[test]
    fn hostile_names_are_refused_before_anything_is_remembered() {
        for name in ["", "a\0b", "Web", "a/b", &"n".repeat(254)] {
            assert!(
                Offered::read("north", &assignment(name)).is_err(),
                "{name:?}"
            );
        }
        assert!(Offered::read("north", &assignment("web-1.example")).is_ok());
    }

    #[test]
    fn what_a_control_plane_says_of_source_and_token_does_not_count() {
        let plain = assignment("web");
        let mut dressed = plain.clone();
        let metadata = dressed.object.get_or_insert_default();
        metadata
            .metadata
            .get_or_insert_default()
            .annotations
            .insert(TOKEN_ANNOTATION.to_owned(), String::from("99"));
        let read =
            |assignment| Offered::read("north", assignment).unwrap_or_else(|_| panic!("is fine"));
        assert_eq!(read(&plain).digest, read(&dressed).digest);
        let apply = read(&dressed).apply();
        let annotations = object::metadata(&apply.object).annotations;
        assert_eq!(annotations[TOKEN_ANNOTATION], "7");
    }

    #[test]
    fn a_lease_without_length_or_end_is_refused() {
        let mut bad = assignment("web");
        bad.lease = Some(Lease {
            duration_seconds: 0,
            on_expiry: WireOnExpiry::Stop.into(),
            grace_period_seconds: 0,
        });
        assert!(Offered::read("north", &bad).is_err());
        bad.lease = Some(Lease {
            duration_seconds: 5,
            on_expiry: 9,
            grace_period_seconds: 0,
        });
        assert!(Offered::read("north", &bad).is_err());
    }
}
