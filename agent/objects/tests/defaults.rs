//! What an object does not say is filled in before it is judged, once, and by nothing else.

#![forbid(unsafe_code)]

use agent_objects::{AdmitContext, Given, Kinds, Object, ObjectKind, create};
use serde_json::{Value, json};

const ALONE: AdmitContext<'_> = AdmitContext {
    caps: None,
    before: None,
    find: &|_| None,
    finds_all: true,
};

fn new(value: Value) -> (&'static ObjectKind, Object) {
    let (kind, object) = Kinds::this_release().read(value).expect("has the form");
    let given = Given {
        uid: "6bd10a0d-2c6a-4d3c-8f2e-3d1c8c1f5a11",
        now: "2026-01-01T00:00:00Z",
        suffix: "x2b4z",
    };
    (kind, create(kind, object, &given).expect("has a name"))
}

/// Objects that leave out what has a default, and the defaults, by path.
fn examples() -> [(Value, Vec<(&'static str, Value)>); 4] {
    let domain = json!({"devices": {}, "memory": {"guest": "64Mi"}});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"domain": domain}});
    [
        (
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "web"}}),
            vec![
                (
                    "/metadata/labels",
                    json!({"kubernetes.io/metadata.name": "web"}),
                ),
                ("/status", json!({"phase": "Active"})),
            ],
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web"}}),
            vec![("/type", json!("Opaque"))],
        ),
        (
            json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
                "metadata": {"name": "web"},
                "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
            }),
            vec![("/spec/replicas", json!(1))],
        ),
        (
            json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                "metadata": {"name": "web"},
                "spec": {"runStrategy": "Halted", "template": template},
            }),
            vec![
                ("/spec/template/spec/architecture", json!("amd64")),
                ("/spec/template/spec/domain/machine/type", json!("q35")),
            ],
        ),
    ]
}

#[test]
fn defaults_are_filled_in_before_an_object_is_judged_and_stay() {
    for (value, wanted) in examples() {
        let (kind, mut object) = new(value);
        let fill_in = kind.defaults.expect("has defaults");
        fill_in(&mut object, &ALONE);
        let once = object.clone();
        let form = once.to_json();
        for (path, value) in wanted {
            assert_eq!(form.pointer(path), Some(&value), "{}{path}", kind.kind);
        }
        let admission = kind.admit(&mut object, &ALONE).expect("is written here");
        assert_eq!(admission.errors, [], "{}", kind.kind);
        assert_eq!(object, once, "{}", kind.kind);
    }
}

#[test]
fn defaults_leave_alone_what_is_malformed() {
    for (value, _) in examples().into_iter().skip(2) {
        let (kind, mut object) = new(value);
        object.content.insert(String::from("spec"), json!("text"));
        let before = object.clone();
        let admission = kind.admit(&mut object, &ALONE).expect("is written here");
        assert!(!admission.errors.is_empty(), "{}", kind.kind);
        assert_eq!(object, before, "{}", kind.kind);
    }
}
