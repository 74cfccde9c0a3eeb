//! A kit of instance type and preference, applied to a template.

use serde_json::Value;

use super::{defaults, preference, size};

/// What a machine is made of beside its template: the specs of its instance type and its preference.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kit<'a> {
    /// The instance type's.
    pub instancetype: Option<&'a Value>,
    /// The preference's.
    pub preference: Option<&'a Value>,
}

impl Kit<'_> {
    /// Whether there is nothing to apply.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.instancetype.is_none() && self.preference.is_none()
    }
}

/// Applies a kit to a template, `{metadata, spec}`. A template that says what its instance type says, too, stays as it
/// is; the answer is the paths of what both say, those of the spec below `field`.
///
/// # Errors
/// The paths.
pub fn apply(kit: Kit<'_>, template: &mut Value, field: &str) -> Result<(), Vec<String>> {
    if kit.is_empty() {
        return Ok(());
    }
    let mut made = template.clone();
    defaults::attach_volumes(&mut made);
    if let Some(preference) = kit.preference {
        preference::attach(preference, &mut made);
    }
    if let Some(kind) = kit.instancetype {
        let conflicts = size::apply(kind, kit.preference, &mut made, field);
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
    }
    if let Some(preference) = kit.preference {
        preference::apply(preference, &mut made);
    }
    *template = made;
    Ok(())
}

/// KubeVirt's sentence about a field that an instance type says, too.
#[must_use]
pub fn conflict_text(path: &str) -> String {
    format!("VM field(s) {path} conflicts with selected instance type")
}
