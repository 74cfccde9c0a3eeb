//! What a preference requires of a machine.

use serde_json::Value;

use super::quantity_text::{canonical, units};
use super::topology::{Across, Topology, spread};
use super::tree::{Tree, number, text};

/// A requirement that is not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The fields that are too small, joined by commas as KubeVirt joins them.
    pub field: String,
    /// KubeVirt's sentence.
    pub message: String,
}

const CPU: &str = "spec.template.spec.domain.cpu";

/// Judges whether a machine has what its preference requires. `spec` is the VMI's, with the instance type applied.
///
/// # Errors
/// The first requirement that is not met.
pub fn check_requirements(
    kind: Option<&Value>,
    preference: Option<&Value>,
    spec: &Value,
) -> Result<(), Shortfall> {
    let Some(preference) = preference else {
        return Ok(());
    };
    if let Some(wanted) = preference.found(&["requirements", "cpu"]) {
        cpu(number(wanted.found(&["guest"])), kind, preference, spec)?;
    }
    if let Some(wanted) = preference.found(&["requirements", "memory", "guest"]) {
        memory(text(Some(wanted)), kind, spec)?;
    }
    if let Some(wanted) = preference.found(&["requirements", "architecture"]) {
        let given = text(spec.found(&["architecture"]));
        if text(Some(wanted)) != given {
            return short(
                "spec.template.spec.architecture",
                format!(
                    "preference requires architecture {} but {given} is being requested",
                    text(Some(wanted))
                ),
            );
        }
    }
    Ok(())
}

fn cpu(
    wanted: u32,
    kind: Option<&Value>,
    preference: &Value,
    spec: &Value,
) -> Result<(), Shortfall> {
    if let Some(kind) = kind {
        let given = number(kind.found(&["cpu", "guest"]));
        if given >= wanted {
            return Ok(());
        }
        return short(
            "spec.instancetype",
            format!(
                "insufficient CPU resources of {given} vCPU provided by instance type, preference requires {wanted} vCPU"
            ),
        );
    }
    let Some(cpu) = spec.found(&["domain", "cpu"]) else {
        return short(
            CPU,
            format!(
                "no CPU resources provided by VirtualMachine, preference requires {wanted} vCPU"
            ),
        );
    };
    let count = |name: &str| number(cpu.found(&[name]));
    let (members, said): (&[&str], &str) = match Topology::of(Some(preference)) {
        Topology::Threads => (&["threads"], "threads"),
        Topology::Cores => (&["cores"], "cores"),
        Topology::Sockets => (&["sockets"], "sockets"),
        Topology::Any => (
            &["cores", "sockets", "threads"],
            "cores, sockets and threads",
        ),
        Topology::Spread => {
            let (_, across) = spread(Some(preference));
            let members: &[&str] = match across {
                Across::SocketsCores => &["sockets", "cores"],
                Across::CoresThreads => &["cores", "threads"],
                Across::SocketsCoresThreads => &["sockets", "cores", "threads"],
            };
            (members, across.as_str())
        }
    };
    let product = members.iter().map(|name| count(name));
    let given = product.fold(1_u32, u32::saturating_mul);
    if given >= wanted {
        return Ok(());
    }
    let fields: Vec<String> = members.iter().map(|name| format!("{CPU}.{name}")).collect();
    short(
        &fields.join(", "),
        format!(
            "insufficient CPU resources of {given} vCPU provided by VirtualMachine, preference requires {wanted} vCPU provided as {said}"
        ),
    )
}

fn memory(wanted: &str, kind: Option<&Value>, spec: &Value) -> Result<(), Shortfall> {
    let (field, by, of_type) = match kind {
        Some(kind) => (
            "spec.instancetype",
            "instance type",
            text(kind.found(&["memory", "guest"])),
        ),
        None => ("spec.template.spec.domain.memory", "VirtualMachine", "0"),
    };
    let given = spec.found(&["domain", "memory", "guest"]);
    let given = given.map_or(of_type, |given| text(Some(given)));
    if units(given).unwrap_or(0) >= units(wanted).unwrap_or(0) {
        return Ok(());
    }
    short(
        field,
        format!(
            "insufficient Memory resources of {} provided by {by}, preference requires {}",
            canonical(given),
            canonical(wanted)
        ),
    )
}

fn short(field: &str, message: String) -> Result<(), Shortfall> {
    Err(Shortfall {
        field: field.to_owned(),
        message,
    })
}
