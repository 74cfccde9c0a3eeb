//! The error of a machine whose preference asks for secure boot, which takes system management mode.

use proto_node::vmi::{PreferenceMatcher, VirtualMachine};
use serde_json::Value;

use crate::error::FieldError;
use crate::instancetype::{FindKit, Sort, named};

/// The field of a VMI.
const FIELD: &str = "domain.firmware.bootloader.efi.secureBoot";

/// The common preference with UEFI and without secure boot. Not every release of them has it, and not every node has them.
const OTHER: &str = "linux.efi";

/// Whether an error of a VMI is about secure boot: its own field, or the machine that lacks the mode.
pub(super) fn is_cause(error: &FieldError) -> bool {
    let is_of_machine = error.path == "spec.domain" && error.message.contains("SecureBoot");
    is_of_machine || error.path.ends_with(FIELD)
}

/// The preference without secure boot that a machine could name instead, if one is needed and there.
pub(super) fn other(
    machine: &VirtualMachine,
    preference: &Value,
    find: FindKit<'_>,
) -> Option<&'static str> {
    asked_by(preference, &Value::Null)?;
    let mut machine = machine.clone();
    machine.status = None;
    let spec = machine.spec.as_mut()?;
    spec.preference = Some(PreferenceMatcher {
        name: OTHER.to_owned(),
        ..PreferenceMatcher::default()
    });
    let named = named(spec, Sort::Preference).ok().flatten()?;
    let found = find(&machine, &named, Sort::Preference)?;
    // An operator may have replaced it.
    asked_by(&found, &Value::Null).is_none().then_some(OTHER)
}

/// The way out for a machine whose preference asks for secure boot where its template does not.
pub(super) fn way_out(
    (name, preference): (&str, &Value),
    template: &Value,
    other: Option<&str>,
) -> Option<String> {
    let field = asked_by(preference, template)?;
    let use_other = other.map(|other| format!("use another, such as `--preference {other}`, or "));
    Some(format!(
        "preference {name:?} asks for it by {field}, and this release has no secure boot: {}set spec.template.spec.{FIELD} \
         to false",
        use_other.unwrap_or_default()
    ))
}

/// The field by which a preference has a template boot securely. UEFI means secure boot unless that is set to false.
fn asked_by(preference: &Value, template: &Value) -> Option<&'static str> {
    let given = |name: &str| {
        let bootloader = template.pointer("/spec/domain/firmware/bootloader")?;
        bootloader.get(name).filter(|value| !value.is_null())
    };
    let preferred = |name: &str| {
        let firmware = preference.get("firmware")?;
        firmware.get(name).filter(|value| !value.is_null())
    };
    let secure = preferred("preferredUseSecureBoot").and_then(Value::as_bool);
    if let Some(efi) = given("efi") {
        let is_open = efi.get("secureBoot").is_none_or(Value::is_null);
        return (is_open && secure == Some(true)).then_some("preferredUseSecureBoot");
    }
    if given("bios").is_some() || preferred("preferredUseBios") == Some(&Value::Bool(true)) {
        return None;
    }
    if let Some(efi) = preferred("preferredEfi") {
        return match efi.get("secureBoot").and_then(Value::as_bool) {
            Some(true) => Some("preferredEfi.secureBoot"),
            Some(false) => None,
            None => Some("preferredEfi without secureBoot: false"),
        };
    }
    if preferred("preferredUseEfi") != Some(&Value::Bool(true)) {
        return None;
    }
    match secure {
        Some(true) => Some("preferredUseSecureBoot"),
        Some(false) => None,
        None => Some("preferredUseEfi without preferredUseSecureBoot: false"),
    }
}
