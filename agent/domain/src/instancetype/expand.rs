//! A VirtualMachine with all that its instance type, its preference and KubeVirt's defaults give it.

use serde_json::Value;

use super::defaults;
use super::kit::{Kit, apply, conflict_text};
use super::tree::Tree;

/// Expands a machine, `{metadata, spec, status}`, as KubeVirt's subresource `expand-spec` does. A machine that names neither
/// an instance type nor a preference stays as it is; of others the names go, so that they can be applied as they are.
///
/// # Errors
/// KubeVirt's sentence about what both the machine and its instance type say.
pub fn expand(kit: Kit<'_>, machine: &mut Value) -> Result<(), String> {
    if kit.is_empty() {
        return Ok(());
    }
    let template = machine.made(&["spec", "template"]);
    let mut made = template.clone();
    defaults::attach_network(made.made(&["spec"]));
    apply(kit, &mut made, "spec.template.spec")
        .map_err(|paths| conflict_text(&paths.join(", ")))?;
    defaults::fill_in_defaults(made.made(&["spec"]));
    *template = made;
    for (holder, members) in [
        ("spec", ["instancetype", "preference"]),
        ("status", ["instancetypeRef", "preferenceRef"]),
    ] {
        if let Some(Value::Object(holder)) = machine.get_mut(holder) {
            holder.retain(|member, _| !members.contains(&member.as_str()));
        }
    }
    Ok(())
}
