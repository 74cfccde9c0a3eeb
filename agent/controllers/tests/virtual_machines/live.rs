//! What reaches a guest that runs of a change to its machine, and what waits for a restart.

use agent_domain::RunStrategy;
use agent_objects::{MachineRequest, Object, Part};
use serde_json::{Value, json};

use crate::stories::{calm, conditions};
use crate::world::World;

/// A machine whose guest runs.
fn running() -> World {
    let mut world = calm(RunStrategy::Manual);
    assert!(world.request(MachineRequest::Start { paused: false }));
    run(&mut world);
    assert!(world.is_running());
    world
}

pub fn run(world: &mut World) {
    for _ in 0..8 {
        world.catch_up();
        world.guest_goes_on();
    }
    world.catch_up();
}

pub fn change(world: &mut World, change: &Value) {
    let id = world.machine().id();
    world.store.change(&id, Part::Main, change);
    world.catch_up();
}

fn change_template(world: &mut World, spec: &Value) {
    change(world, &json!({"spec": {"template": {"spec": spec}}}));
}

/// The message of RestartRequired.
pub fn restart(machine: &Object) -> Option<String> {
    let all = machine.at(&["status", "conditions"])?.as_array()?;
    let required = all.iter().find(|it| it["type"] == "RestartRequired")?;
    Some(required["message"].as_str()?.to_owned())
}

fn place(world: &World, name: &str) -> Option<Value> {
    let vmi = world.vmi().expect("runs");
    vmi.at(&["spec", name]).cloned()
}

#[test]
fn a_guest_follows_where_its_machine_may_run_unless_it_waits_for_a_restart() {
    let mut world = running();
    let uid = world.vmi().expect("runs").metadata.uid;
    let tolerations = json!([{"key": "a", "operator": "Exists"}]);
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}],
    }}});
    let places = json!({"nodeSelector": {"disk": "fast", "zone": "a"}, "tolerations": tolerations, "affinity": affinity});
    change_template(&mut world, &places);
    for (name, wanted) in places.as_object().expect("an object") {
        assert_eq!(place(&world, name).as_ref(), Some(wanted), "{name}");
    }
    assert_eq!(restart(&world.machine()), None);
    change_template(
        &mut world,
        &json!({"nodeSelector": {"zone": null}, "tolerations": null, "affinity": null}),
    );
    assert_eq!(place(&world, "nodeSelector"), Some(json!({"disk": "fast"})));
    assert_eq!(place(&world, "tolerations"), None);
    assert_eq!(place(&world, "affinity"), None);

    change_template(&mut world, &json!({"hostname": "db"}));
    assert!(restart(&world.machine()).is_some());
    change_template(&mut world, &json!({"nodeSelector": {"disk": "slow"}}));
    assert_eq!(place(&world, "nodeSelector"), Some(json!({"disk": "fast"})));
    change_template(&mut world, &json!({"hostname": null}));
    assert_eq!(restart(&world.machine()), None);
    assert_eq!(place(&world, "nodeSelector"), Some(json!({"disk": "slow"})));
    assert_eq!(world.vmi().expect("runs").metadata.uid, uid);
    world.settle();
    world.assert_settled();
}

#[test]
fn a_guest_has_the_annotations_by_which_it_is_evicted_and_backed_up() {
    let mut world = running();
    change_template(&mut world, &json!({"hostname": "db"}));
    let of_guest = |world: &World, name: &str| {
        let vmi = world.vmi().expect("runs");
        vmi.metadata.annotations.get(name).cloned()
    };
    let (evict, skip) = (
        "descheduler.alpha.kubernetes.io/evict",
        "kubevirt.io/skip-backup-hooks",
    );
    let template = json!({evict: "true", "other": "1"});
    change(
        &mut world,
        &json!({
            "metadata": {"annotations": {skip: "true"}},
            "spec": {"template": {"metadata": {"annotations": template}}},
        }),
    );
    assert_eq!(of_guest(&world, evict).as_deref(), Some("true"));
    assert_eq!(of_guest(&world, skip).as_deref(), Some("true"));
    assert_eq!(of_guest(&world, "other"), None);
    change(
        &mut world,
        &json!({
            "metadata": {"annotations": {skip: null}},
            "spec": {"template": {"metadata": {"annotations": {evict: null}}}},
        }),
    );
    assert_eq!(of_guest(&world, evict), None);
    assert_eq!(of_guest(&world, skip), None);
}

#[test]
fn a_machine_whose_strategy_alone_changes_is_observed_as_it_is() {
    let mut world = running();
    world.switch(RunStrategy::Always);
    world.catch_up();
    let generations = |world: &World| {
        let machine = world.machine();
        ["observedGeneration", "desiredGeneration"]
            .map(|name| machine.at(&["status", name]).and_then(Value::as_i64))
    };
    assert_eq!(world.machine().metadata.generation, 2);
    assert_eq!(generations(&world), [Some(2), Some(2)]);
    change_template(&mut world, &json!({"hostname": "db"}));
    assert_eq!(generations(&world), [Some(1), Some(3)]);
}

/// An instance type for all namespaces.
pub fn instancetype(name: &str, guest: &str) -> Value {
    json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": name},
        "spec": {"cpu": {"guest": 2}, "memory": {"guest": guest}},
    })
}

#[test]
fn another_instance_type_takes_a_restart_only_where_it_makes_another_guest() {
    let mut world = calm(RunStrategy::Manual);
    for (name, guest) in [("small", "1Gi"), ("same", "1Gi"), ("large", "2Gi")] {
        world.store.make(instancetype(name, guest));
    }
    let named = |name: &str| json!({"spec": {"instancetype": {"name": name}}});
    change(&mut world, &named("small"));
    assert!(world.request(MachineRequest::Start { paused: false }));
    run(&mut world);
    assert!(world.is_running());
    change(&mut world, &named("large"));
    let memory = "memory updated in template spec. Memory-hotplug is not available for this VM configuration";
    assert_eq!(restart(&world.machine()).as_deref(), Some(memory));
    change(&mut world, &named("same"));
    assert_eq!(restart(&world.machine()), None);
    let no_failure = conditions(&world.machine());
    assert!(!no_failure.iter().any(|it| it.starts_with("Failure")));
    change(&mut world, &named("missing"));
    let changed = "a non-live-updatable field was changed in the template spec";
    assert_eq!(restart(&world.machine()).as_deref(), Some(changed));
    change(&mut world, &named("small"));
    assert_eq!(restart(&world.machine()), None);
}

#[test]
fn what_is_not_live_takes_a_restart_and_labels_wait_in_silence() {
    let mut world = running();
    let changed = "a non-live-updatable field was changed in the template spec";
    let port = json!({"tcpSocket": {"port": 22}});
    let key = json!([{"sshPublicKey": {
        "source": {"secret": {"secretName": "keys"}},
        "propagationMethod": {"noCloud": {}},
    }}]);
    for (name, value) in [
        ("evictionStrategy", json!("None")),
        ("terminationGracePeriodSeconds", json!(5)),
        ("accessCredentials", key),
        ("livenessProbe", port.clone()),
        ("readinessProbe", port),
    ] {
        change_template(&mut world, &json!({ name: value }));
        assert_eq!(
            restart(&world.machine()).as_deref(),
            Some(changed),
            "{name}"
        );
        assert_eq!(place(&world, name), None);
        change_template(&mut world, &json!({ name: null }));
        assert_eq!(restart(&world.machine()), None, "{name}");
    }
    let metadata = json!({"labels": {"tier": "front"}, "annotations": {"other": "1"}});
    change(
        &mut world,
        &json!({"spec": {"template": {"metadata": metadata}}}),
    );
    assert_eq!(restart(&world.machine()), None);
    let guest = world.vmi().expect("runs").metadata;
    assert!(!guest.labels.contains_key("tier") && !guest.annotations.contains_key("other"));
}
