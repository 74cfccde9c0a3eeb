//! A kind that only this test has: its message is compiled here, its entry stands here, and everything else of the
//! crate takes it as it takes all others.

#![forbid(unsafe_code)]

use std::sync::LazyLock;

use agent_domain::{FieldError, NodeCaps, Rule};
use agent_objects::{
    Admission, AdmitContext, Column, ColumnType, FieldSelector, Given, Kinds, LabelSelector,
    Object, ObjectKind, Part, Preconditions, Propagation, Refusal, Write, Writer, Written, applied,
    collect, create, delete, patched, update,
};
use proto_node::Schema;
use serde_json::{Value, json};

const PROTO: &str = r#"
syntax = "proto3";
package example.v1;
import "kvmlet/meta/v1/meta.proto";
import "kvmlet/node/v1/options.proto";
message Gadget {
  string api_version = 1;
  string kind = 2;
  kvmlet.meta.v1.ObjectMeta metadata = 3;
  GadgetSpec spec = 4;
  GadgetStatus status = 5;
}
message GadgetSpec {
  optional int32 size = 1;
  string colour = 2;
  string weight = 3 [(kvmlet.node.v1.rules) = {format: FORMAT_QUANTITY}];
}
message GadgetStatus {
  string phase = 1;
}
"#;

const GADGET: ObjectKind = ObjectKind {
    group: "example.io",
    versions: &["v1", "v1beta1"],
    kind: "Gadget",
    plural: "gadgets",
    singular: "gadget",
    short_names: &["gd"],
    message: "example.v1.Gadget",
    columns: &[Column {
        name: "SIZE",
        shown: ColumnType::Integer,
        json_path: ".spec.size",
        wide: false,
    }],
    has_status: true,
    lasting: &["spec.colour"],
    writer: Writer::Objects(judge),
    ..ObjectKind::PLAIN
};

fn judge(object: &Object, _: &AdmitContext<'_>) -> Admission {
    let mut admission = Admission::default();
    if object.text(&["spec", "colour"]).is_empty() {
        let error = FieldError::new("spec.colour", Rule::Required, "a gadget has a colour");
        admission.errors.push(error);
    }
    admission
}

/// The table, made once: tests run beside each other.
fn kinds() -> &'static Kinds {
    static KINDS: LazyLock<Kinds> = LazyLock::new(compiled);
    &KINDS
}

fn compiled() -> Kinds {
    // Other processes run tests of this file at the same time.
    let name = format!("gadget-proto-{}", std::process::id());
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("gadget.proto"), PROTO).expect("a file");
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto/node/proto");
    let mut compiler =
        protox::Compiler::new([directory.as_path(), ours.as_ref()]).expect("directories");
    compiler.include_imports(true);
    compiler.open_file("gadget.proto").expect("a .proto file");
    let schema = Schema::of_descriptors(&compiler.encode_file_descriptor_set());
    std::fs::remove_dir_all(&directory).expect("it is no more needed");
    Kinds::new(
        Box::leak(Box::new(schema.expect("descriptors"))),
        vec![GADGET],
    )
}

fn gadget() -> Value {
    json!({
        "apiVersion": "example.io/v1beta1", "kind": "Gadget",
        "metadata": {"generateName": "thing-", "labels": {"app": "web"}, "uid": "mine"},
        "spec": {"size": 0, "colour": "red", "weight": 5}, "status": {"phase": "Made"},
    })
}

fn created(kinds: &Kinds) -> Object {
    let (kind, object) = kinds.read(gadget()).expect("a gadget");
    let given = Given {
        uid: "uid-1",
        now: "2026-01-01T00:00:00Z",
        suffix: "x2b4z",
    };
    let mut object = create(kind, object, &given).expect("is legal");
    object.metadata.resource_version = String::from("7");
    object
}

fn patch(
    kinds: &Kinds,
    present: &Object,
    change: &Value,
    part: Part,
    preconditions: &Preconditions,
) -> Result<Written, Refusal> {
    let offered = patched((kinds, &GADGET), present, change, preconditions)?;
    update(&GADGET, present, offered, part)
}

fn changed(written: Result<Written, Refusal>) -> Object {
    match written {
        Ok(Written::Changed(object)) => object,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_object_has_what_the_server_gives_and_nothing_that_is_the_servers() {
    let kinds = kinds();
    let object = created(kinds);
    assert_eq!(object.api_version, "example.io/v1");
    assert_eq!(object.metadata.name, "thing-x2b4z");
    assert_eq!(object.metadata.namespace, "default");
    assert_eq!(object.metadata.uid, "uid-1");
    assert_eq!(object.metadata.generation, 1);
    assert_eq!(object.content.get("status"), None);
    assert_eq!(
        object.content["spec"],
        json!({"size": 0, "colour": "red", "weight": "5"})
    );
    let wire = kinds.to_wire(&GADGET, &object).expect("bytes");
    assert_eq!(kinds.from_wire(&GADGET, &wire), Ok(object));
}

#[test]
fn what_a_kind_does_not_have_is_refused_with_its_path() {
    let kinds = kinds();
    let mut wrong = gadget();
    wrong["spec"]["sise"] = json!(1);
    wrong["spec"]["colour"] = json!(3);
    let output = kinds.read(wrong).expect_err("is wrong").to_string();
    assert_eq!(
        output,
        "spec.colour: spec.colour in body must be of type string: \"integer\", spec.sise: unknown field \"spec.sise\""
    );
    let elsewhere = json!({"apiVersion": "example.io/v2", "kind": "Gadget"});
    assert!(matches!(
        kinds.read(elsewhere),
        Err(Refusal::UnknownKind { .. })
    ));
}

#[test]
fn its_own_admission_judges_it() {
    let kinds = kinds();
    let Some(Writer::Objects(judge)) = kinds.find("Gadget").map(|kind| kind.writer) else {
        panic!("no admission");
    };
    let caps = NodeCaps {
        node_name: String::from("node"),
        architecture: String::from("amd64"),
        max_vcpus: 1,
        memory_bytes: 1 << 30,
        networks: Default::default(),
        paths: Default::default(),
        pod_network: None,
        labels: Default::default(),
        refuse_substitution: false,
        firmware: Default::default(),
    };
    let context = AdmitContext {
        caps: Some(&|| caps.clone()),
        before: None,
        find: &|_| None,
        finds_all: true,
    };
    let mut object = created(kinds);
    assert_eq!(judge(&object, &context).errors, []);
    object.content["spec"] = json!({});
    assert_eq!(judge(&object, &context).errors.len(), 1);
}

#[test]
fn patches_of_object_and_status_keep_to_their_part() {
    let kinds = kinds();
    let object = created(kinds);
    let any = Preconditions::default();
    let of = |change: &Value, part| patch(kinds, &object, change, part, &any);
    let both = json!({"spec": {"size": 3}, "status": {"phase": "Sold"}, "metadata": {"labels": {"app": null}}});
    let main = changed(of(&both, Part::Main));
    assert_eq!(main.metadata.generation, 2);
    assert_eq!(main.at(&["spec", "size"]), Some(&json!(3)));
    assert_eq!(main.content.get("status"), None);
    assert!(main.metadata.labels.is_empty());
    let status = changed(of(&both, Part::Status));
    assert_eq!(status.metadata, object.metadata);
    assert_eq!(status.content["spec"], object.content["spec"]);
    assert_eq!(status.text(&["status", "phase"]), "Sold");
    let nothing = of(&json!({"spec": {"size": 0}}), Part::Main);
    assert_eq!(nothing, Ok(Written::Unchanged));
    assert!(of(&json!({"metadata": {"name": "other"}}), Part::Main).is_err());
}

#[test]
fn another_uid_or_version_is_a_conflict() {
    let kinds = kinds();
    let object = created(kinds);
    for (uid, version) in [("uid-2", ""), ("", "6"), ("uid-1", "8")] {
        let wanted = Preconditions {
            uid: uid.to_owned(),
            resource_version: version.to_owned(),
        };
        let change = json!({"spec": {"size": 1}});
        let patched = patch(kinds, &object, &change, Part::Main, &wanted);
        assert!(matches!(patched, Err(Refusal::Conflict(_))), "{patched:?}");
        let deleted = delete(&GADGET, &object, (&wanted, Propagation::Background), "now");
        assert!(matches!(deleted, Err(Refusal::Conflict(_))), "{deleted:?}");
    }
    let mut offered = object.clone();
    offered.metadata.resource_version = String::from("6");
    let updated = update(&GADGET, &object, offered, Part::Main);
    assert!(matches!(updated, Err(Refusal::Conflict(_))), "{updated:?}");
}

#[test]
fn finalizers_hold_a_deleted_object_until_the_last_is_gone() {
    let kinds = kinds();
    let mut object = created(kinds);
    let any = Preconditions::default();
    let gone = delete(&GADGET, &object, (&any, Propagation::Background), "now");
    assert!(matches!(gone, Ok(Written::Gone(_))), "{gone:?}");
    object.metadata.finalizers = vec![String::from("example.io/held")];
    let marked = changed(delete(
        &GADGET,
        &object,
        (&any, Propagation::Background),
        "t1",
    ));
    assert_eq!(marked.metadata.deletion_timestamp, "t1");
    let again = delete(&GADGET, &marked, (&any, Propagation::Background), "t2");
    assert_eq!(again, Ok(Written::Unchanged));
    let of = |change: &Value| patch(kinds, &marked, change, Part::Main, &any);
    let more = json!({"metadata": {"finalizers": ["example.io/held", "example.io/more"]}});
    assert!(of(&more).is_err());
    let freed = of(&json!({"metadata": {"finalizers": null}}));
    assert!(matches!(freed, Ok(Written::Gone(_))), "{freed:?}");
}

#[test]
fn an_apply_that_wants_less_takes_back_what_it_set_before() {
    let kinds = kinds();
    let mut wanted = created(kinds);
    wanted.content["spec"] = json!({"size": 3, "colour": "red", "weight": "5"});
    let first = Object::from_json(applied(wanted.clone(), None)).expect("an object");
    let mut scaled = first.clone();
    scaled.content["spec"]["size"] = json!(9);
    wanted.content["spec"] = json!({"colour": "blue"});
    let value = applied(wanted.clone(), Some(&scaled));
    assert_eq!(value["spec"], json!({"colour": "blue"}));
    // What the first apply did not set is left as somebody else set it.
    let bare = json!({"colour": "red"});
    wanted.content["spec"] = bare.clone();
    let mut first = Object::from_json(applied(wanted.clone(), None)).expect("an object");
    first.content["spec"]["size"] = json!(9);
    let value = applied(wanted, Some(&first));
    assert_eq!(value["spec"], json!({"colour": "red", "size": 9}));
}

#[test]
fn it_is_selected_by_labels_and_fields() {
    let kinds = kinds();
    let object = created(kinds);
    let labels = LabelSelector::parse("app in (web)").expect("a selector");
    assert!(labels.matches(&object.metadata.labels));
    let fields = |text| FieldSelector::parse(text, kinds, &GADGET);
    let size = fields("spec.size=0").expect("a selector");
    assert!(size.matches(&object.to_json()) && size.can_match(&json!({})));
    let colour = fields("spec.colour=blue").expect("a selector");
    assert!(!colour.can_match(&object.to_json()));
    assert!(fields("spec=1").is_err());
}

#[test]
fn it_is_collected_when_its_owner_is_gone() {
    let kinds = kinds();
    let mut owner = created(kinds);
    owner.metadata.name = String::from("owner");
    let mut owned = created(kinds);
    owned.metadata.uid = String::from("uid-2");
    owned.metadata.owner_references = vec![proto_node::meta::OwnerReference {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.metadata.name.clone(),
        uid: owner.metadata.uid.clone(),
        ..Default::default()
    }];
    let is_gone = |uid: &str| uid == "uid-1";
    let nothing_is_gone = |_: &str| false;
    assert_eq!(collect([&owner, &owned], nothing_is_gone), []);
    let writes = collect([&owned], is_gone);
    assert!(
        matches!(writes.as_slice(), [Write::Delete { id, .. }] if *id == owned.id()),
        "{writes:?}"
    );
    // Another object of the owner's name is not the owner.
    owner.metadata.uid = String::from("uid-3");
    assert_eq!(collect([&owner, &owned], is_gone), writes);
    // An owner that was never here may be elsewhere.
    assert_eq!(collect([&owned], nothing_is_gone), []);
}
