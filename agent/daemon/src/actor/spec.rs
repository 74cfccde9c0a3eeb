//! The spec of a VMI, as its actor keeps it.

use std::collections::{BTreeMap, BTreeSet};

use agent_domain::{Admitted, Attachment, NETWORK_WALLS_ANNOTATION, Remark, Vmi};
use agent_plan::{AdmittedCondition, ConditionStatus, JudgedAddresses};
use proto_node::vmi::VirtualMachineInstance;

/// Says that of a guest's networks not all is judged that it sends.
const WALLS_INCOMPLETE: &str = "NetworkWallsIncomplete";

/// Which walls hold on networks of the configuration; none where all of them do, as they do on the pod network.
fn walls(vmi: &Vmi, judged: &BTreeMap<String, JudgedAddresses>) -> Option<AdmittedCondition> {
    let interfaces = vmi.interfaces.iter();
    let incomplete = interfaces.filter_map(|interface| {
        let Attachment::Network(network) = &interface.attachment else {
            return None;
        };
        let judged = judged.get(interface.name.as_str()).copied();
        let open = open_families(judged.filter(|_| !vmi.without_walls).unwrap_or_default())?;
        Some((format!("{} on {network}", interface.name), open))
    });
    let incomplete: Vec<(String, &str)> = incomplete.collect();
    if incomplete.is_empty() {
        return None;
    }
    let (reason, names, message) = if vmi.without_walls {
        let names: Vec<String> = incomplete.into_iter().map(|(name, _)| name).collect();
        let why = format!("nothing that the guest sends is judged: {NETWORK_WALLS_ANNOTATION}");
        ("WallsOff", names, why)
    } else {
        let names = incomplete
            .into_iter()
            .map(|(name, open)| format!("{name} ({open})"));
        let why = "MAC addresses, servers of addresses, routers, VLANs and groups of links are judged, and not these IP \
                   addresses, because the node does not know which are the guest's";
        ("AddressesUnknown", names.collect(), why.to_owned())
    };
    let names = names.join(", ");
    Some(AdmittedCondition {
        kind: WALLS_INCOMPLETE.to_owned(),
        status: ConditionStatus::True,
        reason: reason.to_owned(),
        message: format!("{names}: {message}"),
    })
}

/// The families in which a guest may send from any address; none if in neither.
fn open_families(judged: JudgedAddresses) -> Option<&'static str> {
    match (judged.ipv4, judged.ipv6) {
        (false, false) => Some("IPv4 and IPv6"),
        (false, true) => Some("IPv4"),
        (true, false) => Some("IPv6"),
        (true, true) => None,
    }
}

/// What admission made of the spec.
pub(super) struct Spec {
    /// The generation of the object that it was read from.
    generation: i64,
    pub(super) vmi: Vmi,
    conditions: Vec<AdmittedCondition>,
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
        ];
        Spec {
            generation,
            vmi: admitted.vmi,
            conditions: conditions.into_iter().flatten().collect(),
        }
    }

    /// Conditions that follow from the spec, and from which addresses rules judge on which interfaces.
    pub(super) fn conditions(
        &self,
        judged: &BTreeMap<String, JudgedAddresses>,
    ) -> Vec<AdmittedCondition> {
        let mut conditions = self.conditions.clone();
        conditions.extend(walls(&self.vmi, judged));
        conditions
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
