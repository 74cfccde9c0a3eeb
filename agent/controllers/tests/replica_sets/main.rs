//! The controller of replica sets against a store with faults, over many seeds. A failure prints the seed.

#![forbid(unsafe_code)]

#[path = "../common/fake.rs"]
mod fake;
#[path = "../common/seeds.rs"]
mod seeds;

use std::time::Duration;

use agent_controllers::ReplicaSets;
use agent_objects::{Object, ObjectId, Part, controller_of};
use serde_json::{Value, json};

use fake::{Fake, Random, VMI};
use seeds::seeds;

const SET: &str = "VirtualMachineInstanceReplicaSet";

/// Schedules of each property, unless a campaign asks for others.
const SEEDS: u64 = 400;

/// What happens in one schedule.
const STEPS: usize = 120;

struct World {
    store: Fake,
    controller: ReplicaSets,
    random: Random,
    now: Duration,
    events: Vec<(bool, &'static str)>,
}

impl World {
    fn new(seed: u64, replicas: usize) -> Self {
        let world = Self {
            store: Fake::new(seed),
            controller: ReplicaSets::default(),
            random: Random::new(seed.wrapping_mul(77)),
            now: Duration::from_secs(1),
            events: Vec::new(),
        };
        world.store.make(set(replicas));
        world
    }

    fn set(&self) -> Object {
        self.store.all(SET).pop().expect("the set is there")
    }

    /// Guests get on until nothing is left to do; the answer is how often the controller wrote and created meanwhile.
    fn writes_until_settled(&mut self) -> (usize, usize) {
        let before = self.store.counts();
        self.go_on(usize::MAX);
        let after = self.store.counts();
        (after.0 - before.0, after.1 - before.1)
    }

    fn change_set(&self, spec: &Value) {
        let id = self.set().id();
        self.store.change(&id, Part::Main, &json!({"spec": spec}));
    }

    /// Replicas that the set controls, have not ended and are not on their way out.
    fn active(&self) -> Vec<Object> {
        let uid = self.set().metadata.uid;
        let mut all = self.store.all(VMI);
        all.retain(|vmi| {
            controller_of(&vmi.metadata).is_some_and(|owner| owner.uid == uid)
                && !vmi.is_deleted()
                && !matches!(vmi.text(&["status", "phase"]), "Succeeded" | "Failed")
        });
        all
    }

    /// The controller looks once, and begins anew when it dies meanwhile.
    fn control(&mut self) -> bool {
        let Self {
            controller,
            store,
            events,
            now,
            ..
        } = self;
        let store = &*store;
        let (_, before) = store.counts();
        let report = |_: &Object, it: agent_controllers::ControllerEvent| {
            events.push((it.is_warning, it.reason))
        };
        let followed = controller.follow(store, *now);
        let worked = controller.work(store, (*now, "2026-01-01T00:00:00Z"), report);
        assert!(followed.is_ok(), "{followed:?}");
        let (_, after) = store.counts();
        assert!(after - before <= 20, "{} creations at once", after - before);
        if store.rises() {
            *controller = ReplicaSets::default();
        }
        worked.expect("the store can be read")
    }

    fn phase(&self, id: &ObjectId, phase: &str) {
        let ready = if phase == "Running" { "True" } else { "False" };
        let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        self.store
            .change(id, Part::Status, &json!({"status": status}));
    }

    /// A guest goes on: it starts, or its end is complete.
    fn guest_goes_on(&self, vmi: &Object) {
        if vmi.is_deleted() {
            let free = json!({"metadata": {"finalizers": null}});
            self.store.change(&vmi.id(), Part::Main, &free);
        } else if vmi.text(&["status", "phase"]).is_empty() {
            self.phase(&vmi.id(), "Scheduled");
        } else if vmi.text(&["status", "phase"]) == "Scheduled" {
            self.phase(&vmi.id(), "Running");
        }
    }

    fn any_vmi(&mut self) -> Option<Object> {
        let all = self.store.all(VMI);
        let index = self.random.below(all.len());
        all.get(index).cloned()
    }

    /// Anything but a change of what is wanted.
    fn step(&mut self) {
        match self.random.below(10) {
            0..=3 => {
                self.control();
            }
            4 | 5 => {
                let steps = self.random.below(6);
                self.store.catch_up(steps);
            }
            6 => {
                if let Some(vmi) = self.any_vmi() {
                    self.guest_goes_on(&vmi);
                }
            }
            7 => {
                let is_running = |vmi: &Object| vmi.text(&["status", "phase"]) == "Running";
                if let Some(vmi) = self.any_vmi().filter(is_running) {
                    self.phase(&vmi.id(), "Failed");
                }
            }
            8 => {
                self.now += Duration::from_millis(300);
            }
            _ => {
                let writes = self.random.below(5);
                self.store.die_after(writes);
            }
        }
    }

    /// Faults end, guests get on, and the controller has all the time it needs.
    fn settle(&mut self) {
        self.store.end_faults();
        self.go_on(usize::MAX);
    }

    /// Guests get on, and the controller has all the time it needs. There are never more replicas than `most`.
    fn go_on(&mut self, most: usize) {
        for _ in 0..200 {
            self.store.catch_up(usize::MAX);
            while self.control() {
                self.store.catch_up(usize::MAX);
                let count = self.active().len();
                assert!(count <= most, "{count} replicas, of at most {most}");
            }
            for vmi in self.store.all(VMI) {
                self.guest_goes_on(&vmi);
            }
            self.now += Duration::from_secs(2);
        }
        self.store.catch_up(usize::MAX);
        while self.control() {}
    }

    fn assert_settled(&mut self, seed: u64, replicas: usize) {
        let active = self.active();
        assert_eq!(active.len(), replicas, "seed {seed}");
        assert_eq!(
            self.store
                .all(VMI)
                .iter()
                .filter(|it| it.is_deleted())
                .count(),
            0,
            "seed {seed}"
        );
        let set = self.set();
        let count = |name: &str| set.at(&["status", name]).cloned();
        assert_eq!(count("replicas"), Some(json!(replicas)), "seed {seed}");
        assert_eq!(count("readyReplicas"), Some(json!(replicas)), "seed {seed}");
        assert_eq!(count("labelSelector"), Some(json!("app=web")));
        let before = self.store.counts();
        for _ in 0..20 {
            self.now += Duration::from_secs(60);
            self.store.catch_up(usize::MAX);
            while self.control() {}
        }
        assert_eq!(
            self.store.counts(),
            before,
            "seed {seed}: writes of nothing"
        );
    }
}

#[test]
fn never_more_replicas_than_wanted_and_none_is_killed_whatever_fails() {
    for seed in seeds(SEEDS) {
        let replicas = usize::try_from(seed % 14).expect("fits");
        let mut world = World::new(seed, replicas);
        for _ in 0..STEPS {
            world.step();
            let count = world.active().len();
            assert!(count <= replicas, "seed {seed}: {count} of {replicas}");
        }
        world.settle();
        world.assert_settled(seed, replicas);
        assert_eq!(world.store.killed(), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_set_comes_to_what_was_wanted_last_whatever_was_wanted_before() {
    for seed in seeds(SEEDS) {
        let mut world = World::new(seed, 3);
        let mut made = 0;
        for _ in 0..STEPS {
            world.step();
            match world.random.below(12) {
                0 => {
                    let replicas = world.random.below(12);
                    world.change_set(&json!({"replicas": replicas}));
                }
                1 => {
                    let is_paused = world.random.one_in(2);
                    world.change_set(&json!({"paused": is_paused}));
                }
                2 => {
                    made += 1;
                    world.store.make(vmi(&format!("alone-{made}"), "web"));
                }
                3 => {
                    if let Some(vmi) = world.any_vmi() {
                        let change = json!({"metadata": {"labels": {"app": "other"}}});
                        world.store.change(&vmi.id(), Part::Main, &change);
                    }
                }
                4 => {
                    if let Some(vmi) = world.any_vmi() {
                        world.store.remove(&vmi.id());
                    }
                }
                5 => {
                    let refuses = world.random.one_in(2);
                    world.store.refuse_creations(refuses);
                }
                _ => {}
            }
        }
        world.change_set(&json!({"replicas": 4, "paused": false}));
        world.settle();
        world.assert_settled(seed, 4);
        for vmi in world.store.all(VMI) {
            let is_selected = vmi
                .metadata
                .labels
                .get("app")
                .is_some_and(|app| app == "web");
            let is_owned = controller_of(&vmi.metadata).is_some();
            let has_ended = matches!(vmi.text(&["status", "phase"]), "Succeeded" | "Failed");
            assert!(is_selected == is_owned || has_ended, "seed {seed}: {vmi:?}");
        }
    }
}

/// A set of `before` replicas is to have `after`, and its controller dies before its write of this number; false when it
/// has not so many.
fn scaled(before: usize, after: usize, write: usize) -> bool {
    let mut world = settled(before);
    world.store.die_after(write);
    world.change_set(&json!({"replicas": after}));
    world.go_on(before.max(after));
    let has_died = !world.store.is_to_die();
    world.settle();
    world.assert_settled(1, after);
    let killed = world.store.killed().len();
    assert_eq!(
        killed,
        before.saturating_sub(after),
        "killed before write {write}"
    );
    has_died
}

#[test]
fn a_set_has_as_many_replicas_as_wanted_whichever_write_its_controller_dies_before() {
    for (before, after) in [(0, 3), (3, 0), (2, 5), (5, 2), (0, 14)] {
        let deaths = (0..)
            .take_while(|write| scaled(before, after, *write))
            .count();
        // Each replica is a write, and nobody writes without end.
        let replicas = before.abs_diff(after);
        assert!(
            (replicas..replicas * 8).contains(&deaths),
            "{deaths} writes"
        );
    }
}

fn settled(replicas: usize) -> World {
    let mut world = World::new(1, replicas);
    world.settle();
    world
}

#[test]
fn what_does_not_run_goes_before_what_runs_and_then_the_newest() {
    let mut world = settled(4);
    let mut all = world.active();
    all.sort_by_key(|vmi| vmi.metadata.creation_timestamp.clone());
    world.phase(&all[0].id(), "Scheduled");
    world.change_set(&json!({"replicas": 2}));
    world.store.catch_up(usize::MAX);
    while world.control() {}
    let mut left: Vec<String> = world
        .active()
        .into_iter()
        .map(|it| it.metadata.name)
        .collect();
    let mut wanted = vec![all[1].metadata.name.clone(), all[2].metadata.name.clone()];
    left.sort();
    wanted.sort();
    assert_eq!(left, wanted);
}

#[test]
fn a_paused_set_makes_and_deletes_nothing_and_says_so() {
    let mut world = settled(2);
    world.change_set(&json!({"paused": true, "replicas": 5}));
    let one = world.active().remove(0);
    world.phase(&one.id(), "Failed");
    let (_, created) = world.store.counts();
    world.settle();
    assert_eq!(world.store.counts().1, created);
    assert_eq!(world.store.all(VMI).len(), 2);
    let status = world.set().content["status"].clone();
    assert_eq!(status["replicas"], 1);
    assert_eq!(status["conditions"][0]["type"], "ReplicaPaused");
    assert!(world.events.contains(&(false, "SuccessfulPaused")));
    world.change_set(&json!({"paused": false}));
    world.settle();
    world.assert_settled(1, 5);
    assert_eq!(world.set().at(&["status", "conditions"]), None);
    assert!(world.events.contains(&(false, "SuccessfulResumed")));
}

#[test]
fn a_refused_replica_is_a_condition_and_is_asked_for_ever_less_often() {
    let mut world = settled(0);
    world.store.refuse_creations(true);
    world.change_set(&json!({"replicas": 1}));
    for _ in 0..600 {
        world.store.catch_up(usize::MAX);
        while world.control() {
            world.store.catch_up(usize::MAX);
        }
        world.now += Duration::from_secs(1);
    }
    let (_, created) = world.store.counts();
    assert!(created < 20, "{created} attempts in ten minutes");
    let condition = world.set().content["status"]["conditions"][0].clone();
    assert_eq!(condition["type"], "ReplicaFailure");
    assert_eq!(condition["reason"], "FailedCreate");
    assert!(world.events.contains(&(true, "FailedCreate")));
    // What is wanted differently is tried at once.
    world.store.refuse_creations(false);
    world.change_set(&json!({"replicas": 2}));
    world.store.catch_up(usize::MAX);
    while world.control() {
        world.store.catch_up(usize::MAX);
    }
    assert_eq!(world.active().len(), 2);
    assert_eq!(world.set().at(&["status", "conditions"]), None);
}

#[test]
fn guests_that_end_at_once_are_replaced_ever_less_often() {
    let mut world = settled(2);
    for _ in 0..3600 {
        world.store.catch_up(usize::MAX);
        while world.control() {
            world.store.catch_up(usize::MAX);
        }
        for vmi in world.store.all(VMI) {
            if vmi.is_deleted() {
                world.guest_goes_on(&vmi);
            } else {
                world.phase(&vmi.id(), "Failed");
            }
        }
        world.now += Duration::from_secs(1);
    }
    let (_, created) = world.store.counts();
    assert!(created < 120, "{created} replicas in an hour");
    world.settle();
    world.assert_settled(1, 2);
}

#[test]
fn more_replicas_than_a_burst_come_in_bursts() {
    let mut world = World::new(1, 25);
    world.store.end_faults();
    world.store.catch_up(usize::MAX);
    world.control();
    assert_eq!(world.active().len(), 10);
    // Nothing of it is in view yet.
    world.now += Duration::from_secs(60);
    world.control();
    assert_eq!(world.active().len(), 10);
    world.settle();
    world.assert_settled(1, 25);
}

#[test]
fn twenty_sets_go_from_none_to_ten_and_back_with_a_write_for_each_replica_and_few_for_each_set() {
    const SETS: usize = 20;
    let mut world = World::new(1, 0);
    world.store.end_faults();
    for number in 1..SETS {
        let text = set(0).to_string().replace("web", &format!("web-{number}"));
        let value = serde_json::from_str(&text).expect("a set");
        world.store.make(value);
    }
    let (first, created) = world.writes_until_settled();
    assert_eq!((first, created), (SETS, 0), "each set has a status");
    for (replicas, deleted) in [(10, 0), (0, 10)] {
        for set in world.store.all(SET) {
            let change = json!({"spec": {"replicas": replicas}});
            world.store.change(&set.id(), Part::Main, &change);
        }
        let (writes, created) = world.writes_until_settled();
        assert_eq!(created, SETS * replicas);
        let of_replicas = SETS * (replicas + deleted);
        let of_status = writes - of_replicas;
        assert!(
            (SETS..=SETS * 4).contains(&of_status),
            "{of_status} writes of the status of {SETS} sets for {replicas} replicas"
        );
        let all = world.store.all(VMI);
        assert_eq!(all.len(), SETS * replicas);
    }
    // Nothing changes, nothing is written.
    assert_eq!(world.writes_until_settled(), (0, 0));
}

#[test]
fn a_set_that_goes_is_left_alone() {
    let mut world = settled(2);
    let id = world.set().id();
    let held = json!({"metadata": {"finalizers": ["example.io/held"]}});
    world.store.change(&id, Part::Main, &held);
    world.store.remove(&id);
    let one = world.active().remove(0);
    world.store.remove(&one.id());
    world.settle();
    assert_eq!(world.store.all(VMI).len(), 1);
}

/// A set as a user writes it.
fn set(replicas: usize) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": SET,
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"domain": {"devices": {}}},
            },
        },
    })
}

/// A VMI as a user makes it.
fn vmi(name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": VMI,
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {"domain": {"devices": {}}},
    })
}
