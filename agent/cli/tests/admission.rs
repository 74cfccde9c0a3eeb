//! `kvmctl validate` against KubeVirt's own admission (v1.7, all feature gates open): VMs and VMIs that were changed at
//! random, with the answers of its webhooks, recorded by the program in `agent/domain/tests/kubevirt/recorder`.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/judged.rs"]
mod judged;
#[path = "support/packed.rs"]
mod packed;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use judged::Cause;

#[derive(Deserialize)]
struct Recorded {
    object: Value,
    causes: Vec<Cause>,
    /// Why the object has no form, in Go's words, which nobody needs to say after it.
    error: Option<String>,
}

fn recorded() -> Vec<Recorded> {
    packed::recorded("admission/recorded.jsonl.zst")
}

/// A path without indexes: so the schema's messages name fields.
fn without_indexes(path: &str) -> String {
    let parts = path.split('[');
    let parts = parts.map(|part| part.split_once(']').map_or(part, |(_, rest)| rest));
    parts.collect()
}

/// What the API server refuses by the definition of the kind, before or after KubeVirt's webhooks: what must be given, and
/// labels. An empty text counts as not given here.
fn is_of_the_api_server(cause: &Cause) -> bool {
    let needed = [" in body is required", " is a required field"];
    needed.iter().any(|end| cause.message.ends_with(end))
        || cause.field.ends_with("metadata.labels")
}

/// Where an object that KubeVirt takes is refused here on purpose.
const STRICTER: [&str; 3] = [
    // These fail when the guest is started: no device, no such port, a request above a limit of nothing.
    "contains HostDevices without deviceName or claimRequest",
    "Port field must be in range 0 < x < 65536.",
    "is greater than spec.domain.resources.limits.cpu '0'",
];

/// Where an object that KubeVirt refuses is taken here on purpose: a disk without a bus is a virtio disk, not one of SATA;
/// an empty word is one that is not given; selectors of labels that a single node has no use for are not judged to the end.
const MILDER: [&str; 8] = [
    " in body should be one of ",
    "IOThreads are not supported for disks on a sata bus",
    "sata hard-disks do not support read-only.",
    "setting a PCI address is only possible with bus type virtio.",
    "labelSelector.matchLabels: Invalid value",
    "for SATA devices",
    "Number of sockets in CPU topology is greater than the maximum sockets allowed",
    "must be the same or less than the physical size",
];

#[test]
fn what_kubevirt_refuses_is_refused_and_nothing_else() {
    let all = recorded();
    let judged = judged::judged(all.iter().map(|recorded| &recorded.object));
    assert_eq!(judged.len(), all.len());
    let (mut wrong, mut counts) = (Vec::new(), [0_usize; 3]);
    for (index, recorded) in all.iter().enumerate() {
        let judged = &judged[&index];
        let is_refused = judged.verdict == "refused";
        let by_kubevirt = recorded.error.is_some() || !recorded.causes.is_empty();
        let is_known = |words: &[&str], causes: &[Cause]| {
            let mut causes = causes.iter();
            causes.any(|cause| words.iter().any(|word| cause.message.contains(word)))
        };
        let is_right = match (by_kubevirt, is_refused) {
            (true, true) | (false, false) => true,
            (false, true) => {
                judged.causes.iter().any(is_of_the_api_server)
                    || is_known(&STRICTER, &judged.causes)
            }
            (true, false) => is_known(&MILDER, &recorded.causes),
        };
        counts[match (is_right, by_kubevirt == is_refused) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 2,
        }] += 1;
        if !is_right {
            let object = &recorded.object;
            wrong.push(format!(
                "{object}\nKubeVirt: {:?} {:?}\nhere: {judged:?}\n",
                recorded.error, recorded.causes
            ));
        }
    }
    assert!(wrong.is_empty(), "{counts:?}\n{}", wrong.join("\n"));
    // Few are left to the exceptions.
    assert!(counts[1] * 30 < counts[0], "{counts:?}");
}

/// How near our causes are to one of KubeVirt's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Nearness {
    Nothing,
    /// There is one of the same field.
    Field,
    /// The same words, or those of the API server for what is not given or not known.
    Words,
}

fn nearness(cause: &Cause, causes: &[Cause]) -> Nearness {
    // KubeVirt repeats itself in the paths of some disks, and leaves the domain out of others.
    let field = cause
        .field
        .replace("devices.disks.domain.devices.disks", "devices.disks")
        .replace("devices.disks.disk[", "devices.disks[");
    if let Some((path, _)) = cause.message.split_once(" in body ") {
        // The schema's messages have no other field. What it does not know is an unknown field here, as at the API server.
        let mut causes = causes.iter();
        return if causes.any(|ours| without_indexes(&ours.field).starts_with(path)) {
            Nearness::Words
        } else {
            Nearness::Nothing
        };
    }
    let is_disk = field.contains(".devices.disks[");
    let near = causes.iter().map(|ours| {
        let is_same = ours.message == cause.message;
        // A missing value is reported at the field or at its parent, and nowhere else.
        let is_missing = is_of_the_api_server(ours) && ours.field.starts_with(&field);
        // The name of a disk that is there for a volume is the volume's.
        let is_of_volume =
            is_disk && ours.field.contains(".volumes[") && (is_same || is_of_the_api_server(ours));
        let is_of_field = ours.field == field || field.is_empty();
        if is_missing || is_of_volume || is_same && is_of_field {
            Nearness::Words
        } else if is_of_field {
            Nearness::Field
        } else {
            Nearness::Nothing
        }
    });
    near.max().unwrap_or(Nearness::Nothing)
}

/// Causes that are not at the field that KubeVirt names, but at another or nowhere.
const ELSEWHERE: [&str; 19] = [
    // KubeVirt's path is that of another field, or of none.
    "has malformed PCI address",
    "spec.domain.hugepages.size",
    "GPUs without deviceName",
    "you have provided duplicate DHCPPrivateOptions",
    "{topologyKey, whenUnsatisfiable}: Duplicate value",
    "spec[0] must have a boot order > 0",
    // Later releases than the one that was recorded name the port itself.
    "Port field ",
    // They refuse any number of bindings but one, in one sentence.
    "cannot have both binding plugin and interface binding method",
    // Of a volume or a device, where KubeVirt speaks of the disk that it made for it, or the reverse.
    "must not have the same Name.",
    "DataVolume 'name' must be set",
    "Sound device requires a name field.",
    // The network of the probe is refused already; the bus is.
    "is only allowed if the Pod Network is attached",
    "IOThreads are not supported for disks on a ",
    // A zero or an empty text counts as not given.
    "must be in the range 1-100",
    "name part must",
    "can not be empty", // Word for word Kubernetes'
    "must have at least one node selector term",
    // What is not read for another error of form.
    "devices in body is required",
    "dataVolumeTemplates.spec in body is required",
];

#[test]
fn what_kubevirt_says_of_a_field_is_said_of_it() {
    let all = recorded();
    let judged = judged::judged(all.iter().map(|recorded| &recorded.object));
    let (mut counts, mut unsaid) = ([0_usize; 3], BTreeMap::<String, Vec<usize>>::new());
    for (index, recorded) in all.iter().enumerate() {
        for cause in &recorded.causes {
            let near = nearness(cause, &judged[&index].causes);
            counts[near as usize] += 1;
            let mut known = ELSEWHERE.iter().chain(&MILDER);
            if near == Nearness::Nothing && !known.any(|words| cause.message.contains(words)) {
                let what = format!("{}: {}", cause.field, cause.message);
                unsaid.entry(what).or_default().push(index);
            }
        }
    }
    assert!(unsaid.is_empty(), "{counts:?}: {unsaid:#?}");
    let [nothing, field, words] = counts;
    assert!(nothing * 20 < words && field * 50 < words, "{counts:?}");
}
