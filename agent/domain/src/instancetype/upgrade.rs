//! Instance types and preferences in the older versions of their API, `v1alpha1` and `v1alpha2`, which KubeVirt converted
//! up to v1.6. Their fields are some of those of `v1beta1` and mean the same; what they did not have was added later.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::matcher::Sort;

const GROUP: &str = "instancetype.kubevirt.io";

/// The version in which objects are stored, and copies of them written.
pub const STORED_VERSION: &str = "v1beta1";

/// The older ones, the oldest first.
const OLDER: [&str; 2] = ["v1alpha1", "v1alpha2"];

/// A member of a spec, and the members of that one; none where those are another API's.
struct Member {
    name: &'static str,
    members: &'static [&'static str],
}

const fn member(name: &'static str, members: &'static [&'static str]) -> Member {
    Member { name, members }
}

const TYPE: [Member; 6] = [
    member(
        "cpu",
        &[
            "dedicatedCPUPlacement",
            "guest",
            "isolateEmulatorThread",
            "model",
            "numa",
            "realtime",
        ],
    ),
    member("gpus", &[]),
    member("hostDevices", &[]),
    member("ioThreadsPolicy", &[]),
    member("launchSecurity", &[]),
    member("memory", &["guest", "hugepages"]),
];

const PREFERENCE: [Member; 7] = [
    member("clock", &["preferredClockOffset", "preferredTimer"]),
    member("cpu", &["preferredCPUTopology"]),
    member(
        "devices",
        &[
            "preferredAutoattachGraphicsDevice",
            "preferredAutoattachInputDevice",
            "preferredAutoattachMemBalloon",
            "preferredAutoattachPodInterface",
            "preferredAutoattachSerialConsole",
            "preferredBlockMultiQueue",
            "preferredCdromBus",
            "preferredDisableHotplug",
            "preferredDiskBlockSize",
            "preferredDiskBus",
            "preferredDiskCache",
            "preferredDiskDedicatedIoThread",
            "preferredDiskIO",
            "preferredInputBus",
            "preferredInputType",
            "preferredInterfaceModel",
            "preferredLunBus",
            "preferredNetworkInterfaceMultiQueue",
            "preferredRng",
            "preferredSoundModel",
            "preferredTPM",
            "preferredUseVirtioTransitional",
            "preferredVirtualGPUOptions",
        ],
    ),
    member(
        "features",
        &[
            "preferredAcpi",
            "preferredApic",
            "preferredHyperv",
            "preferredKvm",
            "preferredPvspinlock",
            "preferredSmm",
        ],
    ),
    member(
        "firmware",
        &[
            "preferredUseBios",
            "preferredUseBiosSerial",
            "preferredUseEfi",
            "preferredUseSecureBoot",
        ],
    ),
    member("machine", &["preferredMachineType"]),
    // The one thing that v1alpha2 has and v1alpha1 has not.
    member("volumes", &["preferredStorageClassName"]),
];

/// Fields of a spec that an older version of the API does not have, such as `cpu.maxSockets`.
#[must_use]
pub fn later_fields(sort: Sort, version: &str, spec: &Value) -> Vec<String> {
    let members = match (sort, version) {
        (Sort::Instancetype, _) => TYPE.as_slice(),
        (Sort::Preference, "v1alpha1") => PREFERENCE.split_last().map_or(&[][..], |(_, rest)| rest),
        (Sort::Preference, _) => PREFERENCE.as_slice(),
    };
    let mut later = Vec::new();
    for (name, value) in spec.as_object().into_iter().flatten() {
        let Some(known) = members.iter().find(|member| member.name == name) else {
            later.push(name.clone());
            continue;
        };
        let inner = value.as_object().into_iter().flatten();
        for (inner, _) in inner.filter(|_| !known.members.is_empty()) {
            if !known.members.contains(&inner.as_str()) {
                later.push(format!("{name}.{inner}"));
            }
        }
    }
    later
}

/// The instance type or preference that the data of a ControllerRevision is, in [`STORED_VERSION`]: `{apiVersion, kind,
/// metadata, spec}`. The first copies that KubeVirt made were of a spec alone, as bytes; theirs comes without metadata and
/// is of the kind in namespaces, whatever it was. As in KubeVirt, fields that an older version does not have are lost.
///
/// # Errors
/// KubeVirt's sentence about data that is neither.
pub fn upgrade(data: &Value) -> Result<Value, String> {
    if let Some(object) = of_spec_revision(data) {
        return Ok(object);
    }
    let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let undecodable = |why: String| {
        Err(format!(
            "failed to decode object in ControllerRevision: {why}"
        ))
    };
    if kind.is_empty() {
        return undecodable(format!("Object 'Kind' is missing in '{data}'"));
    }
    let known = version
        .strip_prefix(GROUP)
        .and_then(|it| it.strip_prefix('/'))
        .filter(|it| *it == STORED_VERSION || OLDER.contains(it));
    let (Some(known), Some(sort)) = (known, Sort::of_kind(kind)) else {
        return undecodable(format!(
            "no kind {kind:?} is registered for version {version:?}"
        ));
    };
    let mut object = data.clone();
    object["apiVersion"] = json!(format!("{GROUP}/{STORED_VERSION}"));
    if known != STORED_VERSION
        && let Some(spec) = object.get_mut("spec")
    {
        for path in later_fields(sort, known, spec) {
            remove(spec, &path);
        }
    }
    Ok(object)
}

fn remove(spec: &mut Value, path: &str) {
    let (holder, name) = match path.split_once('.') {
        Some((outer, inner)) => (spec.get_mut(outer), inner),
        None => (Some(spec), path),
    };
    if let Some(holder) = holder.and_then(Value::as_object_mut) {
        holder.shift_remove(name);
    }
}

/// The object of v1alpha1's `VirtualMachineInstancetypeSpecRevision` or `VirtualMachinePreferenceSpecRevision`: two members,
/// `apiVersion`, which may be empty, and `spec`, the bytes of the spec's JSON. Which it is the spec tells.
fn of_spec_revision(data: &Value) -> Option<Value> {
    let members = data.as_object()?;
    let is_known = |name: &String| matches!(name.as_str(), "apiVersion" | "spec");
    if !members.keys().all(is_known) {
        return None;
    }
    let bytes = STANDARD.decode(members.get("spec")?.as_str()?).ok()?;
    let spec: Map<String, Value> = serde_json::from_slice(&bytes).ok()?;
    let spec = Value::Object(spec);
    let mut sorts = [Sort::Preference, Sort::Instancetype].into_iter();
    let sort = sorts.find(|sort| later_fields(*sort, "v1alpha1", &spec).is_empty())?;
    let (kind, _) = sort.kinds();
    Some(json!({
        "apiVersion": format!("{GROUP}/{STORED_VERSION}"),
        "kind": kind,
        "spec": spec,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: &str = r#"{"cpu":{"guest":4},"memory":{"guest":"128Mi"}}"#;
    const PREFERS_CORES: &str = r#"{"cpu":{"preferredCPUTopology":"preferCores"}}"#;

    fn spec(text: &str) -> Value {
        serde_json::from_str(text).expect("JSON")
    }

    /// KubeVirt's own table of what it reads (`pkg/instancetype/compatibility` of v1.6).
    #[test]
    fn copies_of_every_version_are_read() {
        for (kinds, text) in [
            (Sort::Instancetype.kinds(), SIZE),
            (Sort::Preference.kinds(), PREFERS_CORES),
        ] {
            for version in ["v1alpha1", "v1alpha2", "v1beta1"] {
                for kind in [kinds.0, kinds.1] {
                    let data = json!({
                        "apiVersion": format!("instancetype.kubevirt.io/{version}"),
                        "kind": kind, "metadata": {"name": "a"}, "spec": spec(text),
                    });
                    let wanted = json!({
                        "apiVersion": "instancetype.kubevirt.io/v1beta1",
                        "kind": kind, "metadata": {"name": "a"}, "spec": spec(text),
                    });
                    assert_eq!(upgrade(&data), Ok(wanted), "{version} {kind}");
                }
            }
            let bytes = STANDARD.encode(text);
            for data in [
                json!({"apiVersion": "instancetype.kubevirt.io/v1alpha1", "spec": bytes}),
                json!({"apiVersion": "", "spec": bytes}),
                json!({"spec": bytes}),
            ] {
                let object = upgrade(&data).expect("it is one");
                assert_eq!(object["kind"], kinds.0, "{data}");
                assert_eq!(object["apiVersion"], "instancetype.kubevirt.io/v1beta1");
                assert_eq!(object["spec"], spec(text), "{data}");
            }
        }
    }

    #[test]
    fn what_is_no_copy_is_refused_in_kubevirts_words() {
        for (data, wanted) in [
            (
                json!({"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot"}),
                "failed to decode object in ControllerRevision: no kind \"VirtualMachineSnapshot\" is registered for version \
                 \"snapshot.kubevirt.io/v1beta1\"",
            ),
            (
                json!({"apiVersion": "instancetype.kubevirt.io/v2", "kind": "VirtualMachineInstancetype", "spec": {}}),
                "failed to decode object in ControllerRevision: no kind \"VirtualMachineInstancetype\" is registered for version \
                 \"instancetype.kubevirt.io/v2\"",
            ),
            (
                json!({"spec": {"running": true}}),
                "failed to decode object in ControllerRevision: Object 'Kind' is missing in '{\"spec\":{\"running\":true}}'",
            ),
        ] {
            assert_eq!(upgrade(&data), Err(wanted.to_owned()));
        }
        // Bytes that are the spec of neither.
        for text in ["{\"cpu\":{\"novel\":1}}", "[]", "{"] {
            let data = json!({"spec": STANDARD.encode(text)});
            assert!(upgrade(&data).is_err(), "{text}");
        }
    }

    #[test]
    fn fields_that_an_older_version_has_not_are_lost() {
        let data = |version: &str| {
            json!({
                "apiVersion": format!("instancetype.kubevirt.io/{version}"), "kind": "VirtualMachinePreference",
                "spec": {
                    "volumes": {"preferredStorageClassName": "fast"},
                    "firmware": {"preferredUseEfi": true, "preferredEfi": {}},
                    "requirements": {"cpu": {"guest": 2}},
                },
            })
        };
        let spec = |version: &str| upgrade(&data(version)).expect("a preference")["spec"].clone();
        let firmware = json!({"preferredUseEfi": true});
        assert_eq!(spec("v1alpha1"), json!({"firmware": firmware}));
        let volumes = json!({"preferredStorageClassName": "fast"});
        assert_eq!(
            spec("v1alpha2"),
            json!({"volumes": volumes, "firmware": firmware})
        );
        assert_eq!(spec("v1beta1"), data("v1beta1")["spec"]);
    }
}
