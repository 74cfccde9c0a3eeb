//! The spec of a VMI, as its actor keeps it.

use std::collections::BTreeSet;

use agent_domain::{Admitted, Attachment, NETWORK_WALLS_ANNOTATION, Remark, Vmi};
use agent_plan::{AdmittedCondition, ConditionStatus};
use proto_node::vmi::VirtualMachineInstance;

/// Says that of a guest's networks not all is judged that it sends.
const WALLS_INCOMPLETE: &str = "NetworkWallsIncomplete";

/// Which walls hold on networks of the configuration. On the pod network all of them do.
fn walls(vmi: &Vmi) -> Option<AdmittedCondition> {
    let interfaces = vmi.interfaces.iter();
    let of_configuration = interfaces.filter_map(|interface| match &interface.attachment {
        Attachment::Network(network) => Some(format!("{} on {network}", interface.name)),
        Attachment::Pod(_) => None,
    });
    let names: Vec<String> = of_configuration.collect();
    if names.is_empty() {
        return None;
    }
    let names = names.join(", ");
    let (reason, message) = if vmi.without_walls {
        let why = format!("nothing that the guest sends is judged: {NETWORK_WALLS_ANNOTATION}");
        ("WallsOff", why)
    } else {
        let why = "MAC addresses, servers of addresses, routers, VLANs and groups of links are judged, and not IP \
                   addresses, because the node does not know which are the guest's";
        ("AddressesUnknown", why.to_owned())
    };
    Some(AdmittedCondition {
        kind: WALLS_INCOMPLETE.to_owned(),
        status: ConditionStatus::True,
        reason: reason.to_owned(),
        message: format!("{names}: {message}"),
    })
}

/// What admission made of the spec.
pub(super) struct Spec {
    /// The generation of the object that it was read from.
    generation: i64,
    pub(super) vmi: Vmi,
    pub(super) conditions: Vec<AdmittedCondition>,
}

impl Spec {
    /// What follows from admission.
    pub(super) fn of(admitted: Admitted, generation: i64) -> Self {
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
            walls(&admitted.vmi),
        ];
        Spec {
            generation,
            vmi: admitted.vmi,
            conditions: conditions.into_iter().flatten().collect(),
        }
    }

    /// Takes over what changes of a spec while its guest runs: the states of its interfaces.
    pub(super) fn follow(&mut self, object: &VirtualMachineInstance, generation: i64) {
        if generation == self.generation {
            return;
        }
        match Vmi::restore(object.clone()) {
            Ok(admitted) => {
                self.generation = generation;
                for interface in &mut self.vmi.interfaces {
                    let mut now = admitted.vmi.interfaces.iter();
                    if let Some(now) = now.find(|now| now.name == interface.name) {
                        interface.link_down = now.link_down;
                    }
                }
            }
            Err(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                let errors = errors.join("; ");
                tracing::error!(
                    errors,
                    "a change of the spec cannot be read: the guest keeps its interfaces as they are"
                );
            }
        }
    }

    /// Interfaces, by name, whose link is to be down.
    pub(super) fn links_down(&self) -> BTreeSet<String> {
        let interfaces = self.vmi.interfaces.iter();
        let down = interfaces.filter(|interface| interface.link_down);
        down.map(|interface| interface.name.to_string()).collect()
    }
}
