//! KubeVirt's hook sidecars: refused, but for its own example, whose effect needs no hook.

use std::collections::BTreeMap;

use proto_machine::smbios::{BaseBoardInfo, check_text};
use serde_json::Value;

use super::identity::legal_text;
use super::review::Review;
use crate::error::{Bound, FieldError, Rule};

const SIDECARS: &str = "hooks.kubevirt.io/hookSidecars";
const MANUFACTURER: &str = "smbios.vm.kubevirt.io/baseBoardManufacturer";
/// KubeVirt's example, which sets the manufacturer of the base board and does nothing else.
const EXAMPLE: &str = "example-hook-sidecar";

/// Reads the annotations of hooks: what they make of the base board. Earlier releases looked at neither: guests
/// that they accepted stay.
pub(super) fn base_board(
    annotations: &BTreeMap<String, String>,
    review: &mut Review<'_>,
) -> BaseBoardInfo {
    let mut manufacturer = annotations.get(MANUFACTURER).cloned().unwrap_or_default();
    if review.is_new() {
        if let Some(text) = annotations.get(SIDECARS) {
            check_sidecars(text, review);
        }
        legal_text(&path_of(MANUFACTURER), &manufacturer, review);
    } else if check_text(&manufacturer).is_err() {
        manufacturer.clear();
    }
    BaseBoardInfo {
        manufacturer,
        ..BaseBoardInfo::default()
    }
}

fn path_of(annotation: &str) -> String {
    format!("metadata.annotations[{annotation}]")
}

fn check_sidecars(text: &str, review: &mut Review<'_>) {
    let path = path_of(SIDECARS);
    let sidecars = match serde_json::from_str(text) {
        Ok(Value::Array(sidecars)) => sidecars,
        Ok(_) => return review.unable(&path, text, "must be a JSON list of sidecars"),
        Err(error) => {
            let message = format!("must be a JSON list of sidecars: {error}");
            return review.unable(&path, text, message);
        }
    };
    for (index, sidecar) in sidecars.iter().enumerate() {
        let image = sidecar["image"].as_str().unwrap_or_default();
        if is_example(sidecar, image) {
            continue;
        }
        let fix = "a node's operator can have programs and servers asked about all machines: [hooks] in the agent's \
                   configuration, docs/hooks.md";
        let message = "containers beside a guest do not exist on this node";
        let error = FieldError::new(format!("{path}[{index}]"), Rule::NotSupported, message);
        review.push(error.value(image).fix(fix).beyond(Bound::Release));
    }
}

/// Whether a sidecar is KubeVirt's example as it comes.
fn is_example(sidecar: &Value, image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    let name = name.split([':', '@']).next().unwrap_or_default();
    let is_plain = ["command", "configMap", "pvc"]
        .iter()
        .all(|member| sidecar.get(member).is_none());
    name == EXAMPLE && is_plain
}
