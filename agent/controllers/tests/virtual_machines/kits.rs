//! The copies that a machine has of its instance type and preference: which there are, and what they keep.

use std::collections::BTreeMap;

use agent_domain::RunStrategy;
use agent_objects::{MachineRequest, Object, Part, controller_of};
use serde_json::{Value, json};

use crate::live::{change, instancetype, restart, run};
use crate::stories::calm;
use crate::world::World;

/// `{"cpu":{"guest":2},"memory":{"guest":"1Gi"}}`
const BYTES: &str = "eyJjcHUiOnsiZ3Vlc3QiOjJ9LCJtZW1vcnkiOnsiZ3Vlc3QiOiIxR2kifX0=";

/// `{"machine":{"preferredMachineType":"q35"}}`
const PREFERENCE_BYTES: &str = "eyJtYWNoaW5lIjp7InByZWZlcnJlZE1hY2hpbmVUeXBlIjoicTM1In19";

fn revisions(world: &World) -> Vec<Object> {
    let mut all = world.store.all("ControllerRevision");
    all.retain(|it| !it.metadata.name.starts_with("revision-start-vm-"));
    all
}

fn names(world: &World) -> Vec<String> {
    let all = revisions(world).into_iter();
    all.map(|it| it.metadata.name).collect()
}

/// A revision that a machine of this uid has.
fn revision(name: &str, owner: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {
            "name": name, "namespace": "default",
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web", "uid": owner,
                "controller": true,
            }],
        },
        "data": data,
    })
}

/// Why a machine is not started.
fn failure(world: &World) -> Option<String> {
    let machine = world.machine();
    let all = machine.at(&["status", "conditions"])?.as_array()?.clone();
    let failed = all.iter().find(|it| it["type"] == "Failure")?;
    let text = |name: &str| failed[name].as_str().unwrap_or_default().to_owned();
    Some(format!("{}: {}", text("reason"), text("message")))
}

fn guest_memory(world: &World) -> String {
    let vmi = world.vmi().expect("it runs");
    vmi.text(&["spec", "domain", "memory", "guest"]).to_owned()
}

#[test]
fn a_copy_says_what_it_is_of_and_an_edit_of_the_original_changes_nothing() {
    let mut world = calm(RunStrategy::Manual);
    let original = world.store.make(instancetype("small", "1Gi"));
    let named = json!({"spec": {"instancetype": {"name": "small"}}});
    change(&mut world, &named);
    let uid = original.metadata.uid.as_str();
    let name = format!("web-small-v1beta1-{uid}-1");
    assert_eq!(names(&world), [name.as_str()]);
    let copy = revisions(&world).remove(0);
    let labels: BTreeMap<String, String> = [
        ("generation", "1"),
        ("kind", "VirtualMachineClusterInstancetype"),
        ("name", "small"),
        ("uid", uid),
        ("version", "v1beta1"),
    ]
    .map(|(label, value)| {
        let label = format!("instancetype.kubevirt.io/object-{label}");
        (label, value.to_owned())
    })
    .into();
    assert_eq!(copy.metadata.labels, labels);
    let owner = controller_of(&copy.metadata).expect("a controller");
    let machine = world.machine();
    assert_eq!(
        (owner.kind.as_str(), &owner.uid),
        ("VirtualMachine", &machine.metadata.uid)
    );
    let noted = machine.text(&["status", "instancetypeRef", "controllerRevisionRef", "name"]);
    assert_eq!(noted, name);

    assert!(world.request(MachineRequest::Start { paused: false }));
    run(&mut world);
    assert_eq!(guest_memory(&world), "1Gi");
    let edit = json!({"spec": {"memory": {"guest": "4Gi"}}});
    world.store.change(&original.id(), Part::Main, &edit);
    world.catch_up();
    assert_eq!(restart(&world.machine()), None);
    assert!(world.request(MachineRequest::Restart { grace: None }));
    run(&mut world);
    assert_eq!(guest_memory(&world), "1Gi");
    assert_eq!(names(&world), [name]);
}

/// Makes a machine that notes a copy of an older release, with its original gone.
fn with_old_copy(sort: &str, data: &Value) -> World {
    let mut world = calm(RunStrategy::Manual);
    let mut spec = json!({"template": {"spec": {"domain": {"memory": {"guest": "1Gi"}}}}});
    if sort == "instancetype" {
        spec = json!({});
    }
    spec[sort] = json!({"name": "small"});
    change(&mut world, &json!({ "spec": spec }));
    let owner = world.machine().metadata.uid;
    world.store.make(revision("old", &owner, data));
    let noted = json!({"status": {format!("{sort}Ref"): {
        "name": "small", "kind": format!("virtualmachinecluster{sort}"),
        "controllerRevisionRef": {"name": "old"},
    }}});
    let id = world.machine().id();
    world.store.change(&id, Part::Status, &noted);
    world.go_on();
    world
}

#[test]
fn copies_of_older_versions_are_replaced_and_mean_the_same() {
    let object = |version: &str| {
        json!({
            "apiVersion": format!("instancetype.kubevirt.io/{version}"),
            "kind": "VirtualMachineClusterInstancetype",
            "metadata": {"name": "small", "uid": "u", "generation": 3},
            "spec": {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}},
        })
    };
    for (sort, data, name) in [
        (
            "instancetype",
            json!({"spec": BYTES}),
            "web-small-v1beta1--0",
        ),
        (
            "instancetype",
            json!({"apiVersion": "instancetype.kubevirt.io/v1alpha1", "spec": BYTES}),
            "web-small-v1beta1--0",
        ),
        ("instancetype", object("v1alpha1"), "web-small-v1beta1-u-3"),
        ("instancetype", object("v1alpha2"), "web-small-v1beta1-u-3"),
        // Without the labels of today: KubeVirt makes it anew, too.
        ("instancetype", object("v1beta1"), "web-small-v1beta1-u-3"),
        (
            "preference",
            json!({"spec": PREFERENCE_BYTES}),
            "web-small-v1beta1--0",
        ),
    ] {
        let mut world = with_old_copy(sort, &data);
        assert_eq!(failure(&world), None, "{data}");
        assert_eq!(names(&world), [name], "{data}");
        let copy = revisions(&world).remove(0);
        assert_eq!(
            copy.text(&["data", "apiVersion"]),
            "instancetype.kubevirt.io/v1beta1"
        );
        let label = |label: &str| {
            let label = format!("instancetype.kubevirt.io/object-{label}");
            copy.metadata.labels.get(&label).cloned()
        };
        assert_eq!(label("version").as_deref(), Some("v1beta1"));
        assert_eq!(label("name").as_deref(), Some("small"));
        let machine = world.machine();
        let owner = controller_of(&copy.metadata).map(|owner| owner.uid.clone());
        assert_eq!(owner.as_ref(), Some(&machine.metadata.uid));
        let noted = format!("{sort}Ref");
        let noted = machine.text(&["status", &noted, "controllerRevisionRef", "name"]);
        assert_eq!(noted, name);
        assert!(world.request(MachineRequest::Start { paused: false }));
        run(&mut world);
        assert_eq!(guest_memory(&world), "1Gi", "{data}");
        assert_eq!(restart(&world.machine()), None);
        assert_eq!(names(&world), [name]);
    }
}

#[test]
fn a_copy_that_the_user_asks_for_stays_and_is_of_the_right_sort() {
    let preference = json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachinePreference",
        "metadata": {"name": "small"}, "spec": {},
    });
    let missing = json!({"spec": {"running": true}});
    for (data, wanted) in [
        (json!({"spec": BYTES}), None),
        (
            preference,
            Some(
                "FailedFindInstancetype: unexpected type in ControllerRevision: *v1beta1.VirtualMachinePreference",
            ),
        ),
        (
            missing,
            Some(
                "FailedFindInstancetype: failed to decode object in ControllerRevision: Object 'Kind' is missing in \
                 '{\"spec\":{\"running\":true}}'",
            ),
        ),
    ] {
        let mut world = calm(RunStrategy::Manual);
        let owner = world.machine().metadata.uid;
        world.store.make(revision("mine", &owner, &data));
        let named = json!({"name": "small", "revisionName": "mine"});
        change(&mut world, &json!({"spec": {"instancetype": named}}));
        assert_eq!(failure(&world).as_deref(), wanted);
        assert_eq!(names(&world), ["mine"]);
    }
}

#[test]
fn another_object_in_the_place_of_a_copy_is_reported_and_not_used() {
    let mut world = calm(RunStrategy::Manual);
    let original = world.store.make(instancetype("small", "1Gi"));
    let owner = world.machine().metadata.uid;
    let name = format!("web-small-v1beta1-{}-1", original.metadata.uid);
    let mut data = original.to_json();
    data["spec"]["memory"]["guest"] = json!("9Gi");
    let other = world.store.make(revision(&name, &owner, &data));
    change(
        &mut world,
        &json!({"spec": {"instancetype": {"name": "small"}}}),
    );
    world.go_on();
    let wanted = format!(
        "FailedCreate: error encountered while storing instancetype.kubevirt.io controllerRevisions: found existing \
         ControllerRevision with unexpected data: {name}"
    );
    assert_eq!(failure(&world).as_deref(), Some(wanted.as_str()));
    assert!(world.request(MachineRequest::Start { paused: false }));
    world.go_on();
    assert!(world.vmi().is_none());
    // Whoever put it there takes it away.
    world.store.remove(&other.id());
    world.go_on();
    assert_eq!(failure(&world), None);
    assert_eq!(guest_memory(&world), "1Gi");
}

#[test]
fn what_an_earlier_machine_of_the_name_has_left_is_waited_for_to_go() {
    let mut world = calm(RunStrategy::Manual);
    let original = world.store.make(instancetype("small", "1Gi"));
    let name = format!("web-small-v1beta1-{}-1", original.metadata.uid);
    let left = world
        .store
        .make(revision(&name, "uid-of-another", &original.to_json()));
    change(
        &mut world,
        &json!({"spec": {"instancetype": {"name": "small"}}}),
    );
    let noted = |world: &World| {
        let machine = world.machine();
        let path = ["status", "instancetypeRef", "controllerRevisionRef", "name"];
        machine.text(&path).to_owned()
    };
    assert_eq!(noted(&world), "");
    world.store.remove(&left.id());
    world.go_on();
    assert_eq!(noted(&world), name);
    let owner = revisions(&world).remove(0);
    let owner = controller_of(&owner.metadata).map(|owner| owner.uid.clone());
    assert_eq!(owner, Some(world.machine().metadata.uid));
}
