//! What a machine reports on its way, and what it is made of.

use agent_domain::RunStrategy;
use agent_objects::{MachineRequest, Object, Part};
use serde_json::json;

use crate::fake::VMI;
use crate::world::World;

/// A machine on a store without faults.
pub fn calm(strategy: RunStrategy) -> World {
    let mut world = World::new(1, strategy);
    world.store.end_faults();
    world.catch_up();
    world
}

fn word(world: &World) -> String {
    world
        .machine()
        .text(&["status", "printableStatus"])
        .to_owned()
}

/// Type, status and reason of the conditions.
pub fn conditions(machine: &Object) -> Vec<String> {
    let all = machine
        .at(&["status", "conditions"])
        .and_then(|it| it.as_array());
    let text = |condition: &serde_json::Value| {
        let of = |name: &str| {
            condition
                .get(name)
                .and_then(|it| it.as_str())
                .unwrap_or("-")
                .to_owned()
        };
        format!("{} {} {}", of("type"), of("status"), of("reason"))
    };
    all.into_iter().flatten().map(text).collect()
}

#[test]
fn a_machine_says_how_far_its_guest_is() {
    let mut world = calm(RunStrategy::Always);
    assert_eq!(word(&world), "Starting");
    world.guest_goes_on();
    world.catch_up();
    assert_eq!(word(&world), "Starting");
    world.guest_goes_on();
    world.catch_up();
    assert_eq!(word(&world), "Running");
    let machine = world.machine();
    assert_eq!(machine.at(&["status", "created"]), Some(&json!(true)));
    assert_eq!(machine.at(&["status", "ready"]), Some(&json!(true)));
    assert_eq!(
        machine.at(&["status", "observedGeneration"]),
        Some(&json!(1))
    );
    assert_eq!(machine.text(&["status", "runStrategy"]), "Always");
    assert_eq!(conditions(&machine), ["Ready True -"]);
    assert!(world.request(MachineRequest::Stop { grace: None }));
    world.catch_up();
    assert_eq!(word(&world), "Stopping");
    world.guest_goes_on();
    world.guest_goes_on();
    world.catch_up();
    assert_eq!(word(&world), "Stopped");
    let machine = world.machine();
    assert_eq!(machine.text(&["spec", "runStrategy"]), "Halted");
    assert_eq!(conditions(&machine), ["Ready False VMINotExists"]);
    assert_eq!(
        world.events,
        [(false, "SuccessfulCreate"), (false, "SuccessfulDelete")]
    );
}

#[test]
fn no_volume_is_said_to_be_fit_for_a_snapshot_whether_the_machine_runs_or_not() {
    for strategy in [RunStrategy::Halted, RunStrategy::Always] {
        let mut world = calm(strategy);
        let volumes = json!([
            {"name": "root", "containerDisk": {"image": "registry.example/debian:12"}},
            {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}},
        ]);
        let change = json!({"spec": {"template": {"spec": {"volumes": volumes}}}});
        world
            .store
            .change(&world.machine().id(), Part::Main, &change);
        world.catch_up();
        // The example of KubeVirt's user guide.
        let wanted = ["root", "seed"].map(|name| {
            let reason = format!("Snapshot is not supported for this volumeSource type [{name}]");
            json!({"name": name, "enabled": false, "reason": reason})
        });
        let machine = world.machine();
        assert_eq!(
            machine.at(&["status", "volumeSnapshotStatuses"]),
            Some(&json!(wanted)),
            "{strategy:?}"
        );
    }
}

#[test]
fn conditions_of_the_vmi_are_the_machines() {
    let mut world = calm(RunStrategy::Always);
    let vmi = world.vmi().expect("is made");
    let of = |conditions: serde_json::Value| json!({"status": {"phase": "Scheduling", "conditions": conditions}});
    let waits = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "8Gi wanted, 2Gi free"}]);
    world.store.change(&vmi.id(), Part::Status, &of(waits));
    world.catch_up();
    assert_eq!(word(&world), "ErrorUnschedulable");
    let machine = world.machine();
    assert_eq!(
        conditions(&machine),
        [
            "Ready False VMIConditionMissing",
            "PodScheduled False Unschedulable"
        ]
    );
    assert_eq!(
        machine.at(&["status", "conditions"]).expect("has some")[1]["message"],
        "8Gi wanted, 2Gi free"
    );
    for (reason, wanted) in [
        ("FailedPvcNotFound", "ErrorPvcNotFound"),
        ("ErrImagePull", "ErrImagePull"),
        ("ImagePullBackOff", "ImagePullBackOff"),
        ("FailedCreate", "Starting"),
    ] {
        let failed = json!([{"type": "Synchronized", "status": "False", "reason": reason}]);
        world.store.change(&vmi.id(), Part::Status, &of(failed));
        world.catch_up();
        assert_eq!(word(&world), wanted);
    }
    let paused = json!([{"type": "Paused", "status": "True", "reason": "PausedByUser"}]);
    let paused = json!({"status": {"phase": "Running", "conditions": paused}});
    world.store.change(&vmi.id(), Part::Status, &paused);
    world.catch_up();
    assert_eq!(word(&world), "Paused");
}

#[test]
fn a_vmi_is_made_of_the_template_and_controlled_by_the_machine() {
    let world = calm(RunStrategy::Always);
    let (machine, vmi) = (world.machine(), world.vmi().expect("is made"));
    assert_eq!(vmi.metadata.name, "web");
    assert_eq!(vmi.metadata.labels["app"], "web");
    assert_eq!(vmi.metadata.annotations["kubevirt.io/vm-generation"], "1");
    let owner = &vmi.metadata.owner_references[0];
    assert_eq!(
        (owner.kind.as_str(), owner.uid.as_str(), owner.controller),
        ("VirtualMachine", machine.metadata.uid.as_str(), Some(true))
    );
}

#[test]
fn starts_that_fail_early_are_tried_ever_less_often_until_one_runs() {
    let mut world = calm(RunStrategy::Always);
    let mut is_reported = false;
    for _ in 0..1800 {
        world.guest_goes_on();
        world.guest_ends("Failed");
        world.catch_up();
        is_reported |= word(&world) == "CrashLoopBackOff";
        world.elapsed += std::time::Duration::from_secs(1);
    }
    assert!(world.starts < 16, "{} starts in half an hour", world.starts);
    assert!(is_reported);
    let failures = world.machine().content["status"]["startFailure"].clone();
    assert!(
        failures["consecutiveFailCount"].as_i64() > Some(5),
        "{failures}"
    );
    world.settle();
    world.assert_settled();
    assert_eq!(world.machine().at(&["status", "startFailure"]), None);
}

#[test]
fn a_guest_that_ever_ran_ends_the_count_and_its_crash_is_no_failed_start() {
    let failures = |world: &World| {
        let machine = world.machine();
        let count = machine.at(&["status", "startFailure", "consecutiveFailCount"]);
        count.and_then(serde_json::Value::as_i64)
    };
    for strategy in [RunStrategy::Always, RunStrategy::RerunOnFailure] {
        let mut world = calm(strategy);
        let end_early = |world: &mut World| {
            world.guest_goes_on();
            world.guest_ends("Failed");
            for _ in 0..2 {
                world.catch_up();
                world.guest_goes_on();
            }
            world.catch_up();
        };
        end_early(&mut world);
        assert_eq!(failures(&world), Some(1), "{strategy:?}");
        assert_eq!(word(&world), "CrashLoopBackOff");
        // The wait is over. The next guest runs, however shortly.
        world.elapsed += std::time::Duration::from_secs(15);
        world.catch_up();
        world.guest_goes_on();
        world.catch_up();
        assert_eq!(failures(&world), Some(1), "it does not run yet");
        world.guest_goes_on();
        world.catch_up();
        assert_eq!((failures(&world), world.starts), (None, 2));
        // Each crash of one that ran is answered at once, as often as it comes.
        for crash in 1..=8 {
            let before = world.elapsed;
            world.guest_ends("Failed");
            for _ in 0..2 {
                world.catch_up();
                assert_eq!(failures(&world), None, "{strategy:?}: crash {crash}");
                assert_ne!(word(&world), "CrashLoopBackOff");
                world.guest_goes_on();
            }
            world.catch_up();
            assert_eq!(world.starts, 2 + crash, "{strategy:?}");
            let waited = world.elapsed.saturating_sub(before);
            assert!(waited < std::time::Duration::from_secs(1), "{waited:?}");
            world.guest_goes_on();
            world.catch_up();
            assert!(world.is_running());
        }
        // What fails before it runs is counted anew.
        world.guest_ends("Failed");
        world.catch_up();
        world.guest_goes_on();
        world.catch_up();
        end_early(&mut world);
        assert_eq!(failures(&world), Some(1), "{strategy:?}");
    }
}

#[test]
fn a_crash_loop_is_stopped_by_whoever_asks_for_it() {
    for strategy in [RunStrategy::Always, RunStrategy::RerunOnFailure] {
        let mut world = calm(strategy);
        world.guest_goes_on();
        world.guest_ends("Failed");
        world.catch_up();
        world.guest_goes_on();
        world.catch_up();
        assert!(world.vmi().is_none());
        assert_eq!(word(&world), "CrashLoopBackOff");
        assert!(
            world.request(MachineRequest::Stop { grace: None }),
            "{strategy:?}"
        );
        world.settle();
        world.assert_settled();
        assert!(world.vmi().is_none());
        assert_eq!(world.starts, 1);
    }
}

#[test]
fn a_refused_start_is_a_condition_and_is_tried_again() {
    let mut world = World::new(1, RunStrategy::RerunOnFailure);
    world.store.end_faults();
    world.store.refuse_creations(true);
    for _ in 0..300 {
        world.catch_up();
        world.elapsed += std::time::Duration::from_secs(1);
    }
    assert!(world.store.counts().1 < 20);
    assert_eq!(word(&world), "Stopped");
    assert!(conditions(&world.machine()).contains(&String::from("Failure True FailedCreate")));
    assert!(world.events.contains(&(true, "FailedCreate")));
    world.store.refuse_creations(false);
    world.settle();
    assert!(world.is_running());
    assert_eq!(conditions(&world.machine()), ["Ready True -"]);
}

#[test]
fn a_machine_that_is_started_paused_is_so_once() {
    for strategy in [RunStrategy::Manual, RunStrategy::Halted] {
        let mut world = calm(strategy);
        assert!(world.request(MachineRequest::Start { paused: true }));
        world.catch_up();
        let vmi = world.vmi().expect("is made");
        assert_eq!(vmi.text(&["spec", "startStrategy"]), "Paused");
        world.guest_goes_on();
        world.guest_goes_on();
        world.catch_up();
        assert!(world.request(MachineRequest::Restart { grace: None }));
        world.settle();
        let vmi = world.vmi().expect("is made");
        assert_eq!(vmi.text(&["spec", "startStrategy"]), "");
    }
}

#[test]
fn a_vmi_of_the_same_name_is_adopted_or_in_the_way() {
    let vmi = |owner: serde_json::Value| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": VMI,
            "metadata": {"name": "web", "namespace": "default", "ownerReferences": owner},
            "spec": {"domain": {"devices": {}}},
        })
    };
    let other = json!([{"apiVersion": "example.io/v1", "kind": "Pool", "name": "p", "uid": "u9", "controller": true}]);
    let mut world = World::new(1, RunStrategy::Manual);
    world.store.end_faults();
    world.store.make(vmi(other));
    assert!(world.store.all(VMI).len() == 1);
    world.switch(RunStrategy::Always);
    world.catch_up_beside_others();
    let failure = String::from("Failure True FailedCreate");
    assert!(conditions(&world.machine()).contains(&failure));
    assert_eq!(world.machine().at(&["status", "created"]), None);

    let mut world = World::new(1, RunStrategy::Manual);
    world.store.end_faults();
    world.store.make(vmi(json!([])));
    world.catch_up_beside_others();
    let adopted = world.vmi().expect("stays");
    assert_eq!(
        adopted.metadata.owner_references[0].uid,
        world.machine().metadata.uid
    );
    assert_eq!(
        world.machine().at(&["status", "created"]),
        Some(&json!(true))
    );
}

#[test]
fn a_machine_that_is_orphaned_leaves_its_vmi() {
    let mut world = calm(RunStrategy::Always);
    world.guest_goes_on();
    world.guest_goes_on();
    world.catch_up();
    let machine = world.machine();
    world.store.remove_alone(&machine.id());
    world.catch_up();
    assert_eq!(world.machine().metadata.finalizers, ["orphan"]);
    let vmi = world.vmi().expect("stays");
    assert!(!vmi.is_deleted());
    assert_eq!(vmi.metadata.finalizers.len(), 1);
}

/// Names of the copies of the machine, of each start that is remembered.
fn revisions(world: &World) -> Vec<String> {
    let all = world.store.all("ControllerRevision").into_iter();
    let mut names: Vec<String> = all.map(|revision| revision.metadata.name).collect();
    names.sort_unstable();
    names
}

#[test]
fn what_only_a_restart_changes_is_said_until_it_is_changed() {
    let mut world = calm(RunStrategy::Manual);
    assert!(world.request(MachineRequest::Start { paused: false }));
    let runs = |world: &mut World| {
        for _ in 0..4 {
            world.catch_up();
            world.guest_goes_on();
        }
        world.catch_up();
    };
    let change = |world: &mut World, spec: serde_json::Value| {
        let change = json!({"spec": {"template": {"spec": spec}}});
        let id = world.machine().id();
        world.store.change(&id, Part::Main, &change);
        world.catch_up();
    };
    let is_required = |world: &World| {
        let required = String::from("RestartRequired True RestartRequired");
        conditions(&world.machine()).contains(&required)
    };
    runs(&mut world);
    let uid = world.machine().metadata.uid;
    assert_eq!(revisions(&world), [format!("revision-start-vm-{uid}-1")]);
    // Where a guest may run, and when it is to, is no matter of the guest.
    change(&mut world, json!({"nodeSelector": {"disk": "fast"}}));
    assert!(!is_required(&world));
    let memory = |size: &str| json!({"domain": {"memory": {"guest": size}}});
    change(&mut world, memory("1Gi"));
    assert!(is_required(&world));
    change(&mut world, json!({"domain": {"memory": null}}));
    assert!(!is_required(&world));
    change(&mut world, memory("2Gi"));
    assert!(is_required(&world));
    assert!(world.request(MachineRequest::Restart { grace: None }));
    for _ in 0..8 {
        world.catch_up();
        world.guest_goes_on();
    }
    runs(&mut world);
    assert!(world.is_running() && !is_required(&world));
    // Those of changes between two starts are not made, and the one before this start is gone.
    let generation = world.machine().metadata.generation;
    assert_eq!(
        revisions(&world),
        [format!("revision-start-vm-{uid}-{generation}")]
    );
    assert!(world.request(MachineRequest::Stop { grace: None }));
    change(&mut world, memory("3Gi"));
    for _ in 0..4 {
        world.guest_goes_on();
        world.catch_up();
    }
    assert!(world.vmi().is_none() && !is_required(&world));
}

#[test]
fn a_guest_that_runs_follows_the_states_of_its_templates_interfaces() {
    let mut world = calm(RunStrategy::Manual);
    let change = |world: &mut World, states: [&str; 2]| {
        let interface =
            |(name, state): (&str, &str)| json!({"name": name, "bridge": {}, "state": state});
        let interfaces: Vec<_> = ["lan", "wan"]
            .into_iter()
            .zip(states)
            .map(interface)
            .collect();
        let spec = json!({"domain": {"devices": {"interfaces": interfaces}}});
        let id = world.machine().id();
        let change = json!({"spec": {"template": {"spec": spec}}});
        world.store.change(&id, Part::Main, &change);
        world.catch_up();
    };
    let states = |world: &World| {
        let vmi = world.vmi().expect("runs");
        let state = |index: usize| {
            let all = vmi.at(&["spec", "domain", "devices", "interfaces"]);
            let state = all.and_then(|all| all.get(index)?.get("state")?.as_str());
            state.unwrap_or("-").to_owned()
        };
        [state(0), state(1)]
    };
    let is_restart_required = |world: &World| {
        let all = conditions(&world.machine());
        all.iter().any(|it| it.starts_with("RestartRequired True"))
    };
    change(&mut world, ["up", "down"]);
    assert!(world.request(MachineRequest::Start { paused: false }));
    for _ in 0..4 {
        world.catch_up();
        world.guest_goes_on();
    }
    world.catch_up();
    assert!(world.is_running() && !is_restart_required(&world));
    let uid = world.vmi().map(|vmi| vmi.metadata.uid);
    assert_eq!(states(&world), ["up", "down"]);
    change(&mut world, ["down", "up"]);
    assert_eq!(states(&world), ["down", "up"]);
    assert!(!is_restart_required(&world));
    change(&mut world, ["up", "absent"]);
    assert_eq!(states(&world), ["up", "down"]);
    assert!(is_restart_required(&world));
    change(&mut world, ["up", "up"]);
    assert_eq!(states(&world), ["up", "up"]);
    assert!(!is_restart_required(&world));
    assert_eq!(world.vmi().map(|vmi| vmi.metadata.uid), uid);
}

#[test]
fn a_machine_that_is_stopped_before_its_first_start_is_not_started() {
    let mut world = World::new(1, RunStrategy::RerunOnFailure);
    world.store.end_faults();
    assert!(world.request(MachineRequest::Start { paused: false }));
    assert!(world.request(MachineRequest::Stop { grace: None }));
    world.settle();
    assert!(world.vmi().is_none() && world.starts == 0);
    assert!(world.request(MachineRequest::Start { paused: false }));
    world.settle();
    assert!(world.is_running() && world.starts == 1);
}

/// The controller does what is due at this moment.
fn at_once(world: &mut World) {
    world.store.catch_up(usize::MAX);
    while world.control() {
        world.store.catch_up(usize::MAX);
    }
}

#[test]
fn a_start_is_one_write_where_the_store_can_and_its_steps_are_reported_in_one() {
    // A store of an odd seed has no transactions.
    for (seed, writes_of_start) in [(2, 1), (1, 2)] {
        let mut world = World::new(seed, RunStrategy::Manual);
        world.store.end_faults();
        world.catch_up();
        let writes = |world: &World| world.store.counts().0;
        let before = writes(&world);
        assert!(world.request(MachineRequest::Start { paused: false }));
        at_once(&mut world);
        assert!(world.vmi().is_some());
        assert_eq!(writes(&world) - before, writes_of_start, "seed {seed}");
        assert_eq!(revisions(&world).len(), 1);
        for _ in 0..2 {
            world.guest_goes_on();
            at_once(&mut world);
        }
        assert!(world.is_running());
        assert_eq!(writes(&world) - before, writes_of_start, "seed {seed}");
        world.elapsed += std::time::Duration::from_millis(50);
        at_once(&mut world);
        assert_eq!(writes(&world) - before, writes_of_start + 1, "seed {seed}");
        assert_eq!(word(&world), "Running");
    }
}

#[test]
fn a_machine_that_is_halted_right_after_its_start_is_stopped_at_once() {
    let mut world = calm(RunStrategy::Manual);
    assert!(world.request(MachineRequest::Start { paused: false }));
    at_once(&mut world);
    world.switch(RunStrategy::Halted);
    at_once(&mut world);
    assert!(world.vmi().is_some_and(|vmi| vmi.is_deleted()));
}
