//! Secrets, ConfigMaps and what else holds data, against the rules of Kubernetes' own validation
//! (`pkg/apis/core/validation`, `pkg/apis/apps/validation`).

#![forbid(unsafe_code)]

use agent_objects::{
    AdmitContext, Given, Kinds, LAST_APPLIED, Object, ObjectKind, Preconditions, Propagation,
    Refusal, applied, create, data_of, delete,
};
use serde_json::{Value, json};

fn named(kind: &str, api_version: &str, mut rest: Value) -> Value {
    let members = rest.as_object_mut().expect("an object");
    members.insert(String::from("apiVersion"), api_version.into());
    members.insert(String::from("kind"), kind.into());
    let metadata = members.entry("metadata").or_insert_with(|| json!({}));
    metadata["name"] = "web".into();
    if kind != "Namespace" {
        metadata["namespace"] = "default".into();
    }
    rest
}

fn secret(rest: Value) -> Value {
    named("Secret", "v1", rest)
}

/// What is wrong with an object, and what it is admitted as.
fn admit(value: Value, before: Option<&Object>) -> (Object, Vec<String>) {
    let (kind, object) = Kinds::this_release().read(value).expect("has the form");
    let given = Given {
        uid: "uid-1",
        now: "2026-01-01T00:00:00Z",
        suffix: "x2b4z",
    };
    let mut object = match before {
        None => create(kind, object, &given).expect("has a name"),
        Some(_) => object,
    };
    let admission = kind.admit(
        &mut object,
        &AdmitContext {
            // Writes of these would be slowed by a look at what the node has; a start of a machine makes one, too.
            caps: Some(&|| panic!("a {} does not depend on the node", kind.kind)),
            before,
            find: &|_| None,
            finds_all: true,
        },
    );
    let Some(admission) = admission else {
        panic!("{} is not written by callers", kind.kind);
    };
    let errors = admission.errors.iter().map(ToString::to_string);
    (object, errors.collect())
}

fn errors(value: Value) -> Vec<String> {
    admit(value, None).1
}

#[test]
fn text_becomes_data_and_goes_before_it() {
    let value =
        secret(json!({"data": {"a": "MQ==", "b": "Mg=="}, "stringData": {"b": "zwei", "c": ""}}));
    let (object, errors) = admit(value, None);
    assert_eq!(errors, Vec::<String>::new());
    assert_eq!(object.text(&["type"]), "Opaque");
    assert_eq!(object.content.get("stringData"), None);
    let data = data_of(&object).expect("data");
    let text = |key: &str| String::from_utf8_lossy(&data[key]).into_owned();
    assert_eq!([text("a"), text("b"), text("c")], ["1", "zwei", ""]);
}

#[test]
fn each_type_of_secret_has_its_keys() {
    let base64 = |text: &str| match text {
        "{}" => "e30=",
        "x" => "eA==",
        _ => "",
    };
    for (kind, data, wanted) in [
        ("Opaque", json!({}), &[][..]),
        ("example.com/own", json!({}), &[]),
        (
            "kubernetes.io/dockercfg",
            json!({}),
            &["data[.dockercfg]: Required value"],
        ),
        (
            "kubernetes.io/dockercfg",
            json!({".dockercfg": base64("{}")}),
            &[],
        ),
        (
            "kubernetes.io/dockerconfigjson",
            json!({".dockerconfigjson": base64("x")}),
            &["data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": is no JSON"],
        ),
        (
            "kubernetes.io/basic-auth",
            json!({}),
            &[
                "data[username]: Required value",
                "data[password]: Required value",
            ],
        ),
        ("kubernetes.io/basic-auth", json!({"username": ""}), &[]),
        (
            "kubernetes.io/ssh-auth",
            json!({"ssh-privatekey": ""}),
            &["data[ssh-privatekey]: Required value"],
        ),
        (
            "kubernetes.io/ssh-auth",
            json!({"ssh-privatekey": base64("x")}),
            &[],
        ),
        (
            "kubernetes.io/tls",
            json!({"tls.crt": base64("x")}),
            &["data[tls.key]: Required value"],
        ),
        (
            "kubernetes.io/service-account-token",
            json!({}),
            &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
    ] {
        let reported = errors(secret(json!({"type": kind, "data": data})));
        assert_eq!(reported, wanted, "{kind}");
    }
}

#[test]
fn keys_and_sizes_are_bounded() {
    let reported = errors(secret(json!({"stringData": {"a/b": "x"}})));
    assert!(
        reported[0]
            .starts_with("data[a/b]: Invalid value: \"a/b\": a valid config key must consist of"),
        "{reported:?}"
    );
    let most = "x".repeat(1024 * 1024);
    assert_eq!(
        errors(secret(json!({"stringData": {"a": most}}))),
        Vec::<String>::new()
    );
    let reported = errors(secret(json!({"stringData": {"a": most, "b": "x"}})));
    assert_eq!(
        reported,
        ["data: Too long: may not be more than 1048576 bytes"]
    );
    let map = |rest| named("ConfigMap", "v1", rest);
    let reported = errors(map(
        json!({"data": {"a": most}, "binaryData": {"b": "eA=="}}),
    ));
    assert_eq!(reported, ["Too long: may not be more than 1048576 bytes"]);
    let reported = errors(map(json!({"data": {"a": ""}, "binaryData": {"a": ""}})));
    assert_eq!(
        reported,
        ["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"]
    );
}

#[test]
fn base64_is_read_as_go_reads_it() {
    let kinds = Kinds::this_release();
    let read = |text: &str| kinds.read(secret(json!({"data": {"a": text}})));
    assert!(read("c2Vj\r\ncmV0\n").is_ok());
    for (text, at) in [("c2Vj!", 4), ("c2V", 3)] {
        let Err(Refusal::Malformed(errors)) = read(text) else {
            panic!("{text} is read");
        };
        let wanted = format!("illegal base64 data at input byte {at}");
        assert_eq!(
            (errors[0].path.as_str(), &errors[0].message),
            ("data[a]", &wanted)
        );
    }
}

#[test]
fn what_is_immutable_stays_and_so_does_the_type() {
    let (before, _) = admit(
        secret(json!({"immutable": true, "stringData": {"a": "1"}})),
        None,
    );
    let change = |rest| admit(secret(rest), Some(&before)).1;
    assert_eq!(
        change(json!({"immutable": true, "type": "Opaque", "data": {"a": "MQ=="}})),
        Vec::<String>::new()
    );
    let rule = "Forbidden: field is immutable when `immutable` is set";
    let reported = change(json!({"type": "Opaque", "data": {"a": "Mg=="}}));
    assert_eq!(
        reported,
        [format!("immutable: {rule}"), format!("data: {rule}")]
    );
    let reported =
        change(json!({"immutable": true, "type": "example.com/x", "data": {"a": "MQ=="}}));
    assert_eq!(
        reported,
        ["type: Invalid value: \"example.com/x\": field is immutable"]
    );
}

#[test]
fn an_apply_writes_down_keys_and_takes_back_what_it_no_longer_wants() {
    let kinds = Kinds::this_release();
    let apply = |rest: Value, present: Option<&Object>| {
        let (kind, wanted) = kinds.read(secret(rest)).expect("a secret");
        kinds
            .read_as(kind, applied(wanted, present))
            .expect("a secret")
    };
    let first = apply(
        json!({"stringData": {"a": "top-secret", "b": "other"}}),
        None,
    );
    let noted = &first.metadata.annotations[LAST_APPLIED];
    assert!(noted.contains("\"a\":\"\""), "{noted}");
    for plain in ["top-secret", "dG9wLXNlY3JldA"] {
        assert!(!noted.contains(plain), "{noted}");
    }
    let second = apply(json!({"stringData": {"a": "top-secret"}}), Some(&first));
    let data = data_of(&second).expect("data");
    assert_eq!(data.keys().collect::<Vec<_>>(), ["a"]);
    let third = apply(json!({"stringData": {"a": "top-secret"}}), Some(&second));
    assert_eq!(third, second);
}

#[test]
fn texts_and_bytes_of_a_config_map_are_its_data() {
    let value = named(
        "ConfigMap",
        "v1",
        json!({"data": {"a": "text"}, "binaryData": {"b": "AP8="}}),
    );
    let data = data_of(&admit(value, None).0).expect("data");
    assert_eq!(data["a"], b"text");
    assert_eq!(data["b"], [0, 255]);
    let account = named(
        "ServiceAccount",
        "v1",
        json!({"automountServiceAccountToken": false}),
    );
    let account = admit(account, None).0;
    assert!(matches!(data_of(&account), Err(Refusal::Forbidden(_))));
}

fn kind(name: &str) -> &'static ObjectKind {
    Kinds::this_release().named(name).expect("a kind")
}

#[test]
fn a_namespace_has_a_name_of_one_label_and_waits_to_be_emptied() {
    let (space, reported) = admit(named("Namespace", "v1", json!({})), None);
    assert_eq!(reported, Vec::<String>::new());
    assert_eq!(space.metadata.finalizers, ["kubernetes"]);
    assert_eq!(space.metadata.labels["kubernetes.io/metadata.name"], "web");
    assert_eq!(space.text(&["status", "phase"]), "Active");
    let mut dotted = named("Namespace", "v1", json!({}));
    dotted["metadata"]["name"] = "a.b".into();
    let reported = errors(dotted);
    assert!(
        reported[0]
            .starts_with("metadata.name: Invalid value: \"a.b\": a lowercase RFC 1123 label"),
        "{reported:?}"
    );
    let mut home = space.clone();
    home.metadata.name = String::from("default");
    let any = (&Preconditions::default(), Propagation::Background);
    let refused = delete(kind("Namespace"), &home, any, "now");
    let words = "namespaces \"default\" is forbidden: this namespace may not be deleted";
    assert_eq!(refused, Err(Refusal::Forbidden(words.to_owned())));
}

#[test]
fn a_revision_has_an_object_and_a_number() {
    let revision = |rest| named("ControllerRevision", "apps/v1", rest);
    assert_eq!(
        errors(revision(
            json!({"data": {"spec": {"a": [1]}}, "revision": 3})
        )),
        Vec::<String>::new()
    );
    assert_eq!(
        errors(revision(json!({"revision": 1}))),
        ["data: Required value: data is mandatory"]
    );
    let reported = errors(revision(json!({"data": {}, "revision": -1})));
    assert_eq!(
        reported,
        ["revision: Invalid value: \"-1\": must be greater than or equal to 0"]
    );
}
