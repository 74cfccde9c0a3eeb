//! Where a value of a machine comes from.

use serde_json::Value;

use super::kit::{Kit, apply};
use super::matcher::Sort;

/// Which of a kit gives the field at a path, such as `spec.domain.devices.disks[0].cache`; nothing when the template does,
/// or nobody.
#[must_use]
pub fn origin(path: &str, template: &Value, kit: Kit<'_>) -> Option<Sort> {
    if has(template, path) {
        return None;
    }
    let of = |kit: Kit<'_>| {
        let mut made = template.clone();
        apply(kit, &mut made, "").is_ok() && has(&made, path)
    };
    let sized = Kit {
        preference: None,
        ..kit
    };
    if kit.instancetype.is_some() && of(sized) {
        return Some(Sort::Instancetype);
    }
    (kit.preference.is_some() && of(kit)).then_some(Sort::Preference)
}

/// Whether there is a value at a path.
fn has(tree: &Value, path: &str) -> bool {
    let mut value = tree;
    for segment in path.split('.') {
        let (name, indexes) = segment.split_once('[').unwrap_or((segment, ""));
        let Some(member) = value.get(name) else {
            return false;
        };
        value = member;
        let indexes = indexes.split('[').filter(|index| !index.is_empty());
        for index in indexes.map(|index| index.trim_end_matches(']')) {
            let Some(item) = index
                .parse::<usize>()
                .ok()
                .and_then(|index| value.get(index))
            else {
                return false;
            };
            value = item;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_traced_to_whoever_gave_them() {
        let template = json!({"spec": {"domain": {"devices": {"disks": [{"name": "a"}]}}}});
        let kind = json!({"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}});
        let preference = json!({"devices": {"preferredTPM": {}, "preferredDiskCache": "none"}});
        let kit = Kit {
            instancetype: Some(&kind),
            preference: Some(&preference),
        };
        for (path, wanted) in [
            ("spec.domain.devices.disks[0].name", None),
            ("spec.domain.memory.guest", Some(Sort::Instancetype)),
            ("spec.domain.devices.tpm", Some(Sort::Preference)),
            ("spec.domain.devices.disks[0].cache", Some(Sort::Preference)),
            ("spec.domain.devices.disks[1].cache", None),
            ("spec.domain.ioThreadsPolicy", None),
        ] {
            assert_eq!(origin(path, &template, kit), wanted, "{path}");
        }
    }
}
