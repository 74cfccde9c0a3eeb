//! A machine, its controller and its guests, with what may be started by whom.

use std::time::Duration;

use agent_controllers::VirtualMachines;
use agent_controllers::virtual_machine::{MACHINE, Moment};
use agent_domain::RunStrategy;
use agent_objects::{MachineRequest, Object, ObjectId, Part, change_state};
use serde_json::{Value, json};

use crate::fake::{FINALIZER, Fake, Random, VMI};
use crate::model::{Due, Model};

/// A machine as a user writes it.
pub fn machine(strategy: RunStrategy) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": MACHINE,
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "runStrategy": strategy.as_str(),
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"domain": {"devices": {}}},
            },
        },
    })
}

pub struct World {
    pub store: Fake,
    controller: VirtualMachines,
    pub random: Random,
    pub elapsed: Duration,
    pub events: Vec<(bool, &'static str)>,
    seed: u64,
    model: Model,
    /// Uid of the VMI that was there last.
    last_uid: String,
    /// What the model says when faults end.
    due: Due,
    pub starts: usize,
}

impl World {
    pub fn new(seed: u64, strategy: RunStrategy) -> Self {
        let world = Self {
            store: Fake::new(seed),
            controller: VirtualMachines::default(),
            random: Random::new(seed.wrapping_mul(131).wrapping_add(7)),
            elapsed: Duration::from_secs(1),
            events: Vec::new(),
            seed,
            model: Model::new(strategy),
            last_uid: String::new(),
            due: Due::Unknown,
            starts: 0,
        };
        world.store.make(machine(strategy));
        world
    }

    pub fn machine(&self) -> Object {
        self.store.all(MACHINE).pop().expect("the machine is there")
    }

    pub fn vmi(&self) -> Option<Object> {
        let mut all = self.store.all(VMI);
        assert!(all.len() < 2, "seed {}: two VMIs", self.seed);
        all.pop()
    }

    pub fn phase_of(vmi: &Object) -> &str {
        vmi.text(&["status", "phase"])
    }

    pub fn is_running(&self) -> bool {
        let vmi = self.vmi();
        vmi.is_some_and(|vmi| Self::phase_of(&vmi) == "Running" && !vmi.is_deleted())
    }

    /// No guest runs, or is to run.
    pub fn is_down(&self) -> bool {
        let machine = self.machine();
        let is_manual = self.model.strategy() == RunStrategy::Manual;
        let is_idle = machine.at(&["status", "stateChangeRequests"]).is_none();
        let has_run = !machine.text(&["status", "runStrategy"]).is_empty();
        is_idle
            && match self.vmi() {
                None => is_manual || has_run,
                Some(vmi) => is_manual && matches!(Self::phase_of(&vmi), "Succeeded" | "Failed"),
            }
    }

    /// The controller looks once, and begins anew when it dies meanwhile.
    pub fn control(&mut self) -> bool {
        let moment = Moment {
            elapsed: self.elapsed,
            date: 1_800_000_000 + i64::try_from(self.elapsed.as_secs()).expect("fits"),
        };
        let followed = self.controller.follow(&self.store, self.elapsed);
        let before = self.vmi().filter(|vmi| !vmi.is_deleted());
        let events = &mut self.events;
        let report = |_: &Object, it: agent_controllers::ControllerEvent| {
            events.push((it.is_warning, it.reason))
        };
        let worked = self.controller.work(&self.store, moment, report);
        assert!(followed.is_ok(), "{followed:?}");
        if self.store.rises() {
            self.controller = VirtualMachines::default();
        }
        if let Some(before) = before {
            self.check_removal(&before);
        }
        self.check_start();
        worked.expect("the store can be read")
    }

    /// A new VMI must be one that somebody wanted.
    fn check_start(&mut self) {
        let Some(vmi) = self.vmi() else { return };
        if vmi.metadata.uid == self.last_uid {
            return;
        }
        let started = self.model.start();
        assert!(
            started.is_ok(),
            "seed {}: a start nobody asked for: {started:?}\n{:?}",
            self.seed,
            self.machine()
        );
        self.last_uid.clone_from(&vmi.metadata.uid);
        self.starts += 1;
    }

    /// A VMI that the controller deletes must be one that is to go.
    fn check_removal(&self, before: &Object) {
        let is_kept = |vmi: &Object| vmi.metadata.uid == before.metadata.uid && !vmi.is_deleted();
        let machines = self.store.all(MACHINE);
        let is_of_living = machines.iter().any(|machine| !machine.is_deleted());
        if !is_of_living || self.vmi().as_ref().is_some_and(is_kept) {
            return;
        }
        assert!(
            self.model.may_remove(Self::phase_of(before)),
            "seed {}: the end of a VMI that nobody asked for: {:?}\n{before:?}",
            self.seed,
            self.model
        );
    }

    /// Somebody asks for something; whether it fits.
    pub fn request(&mut self, request: MachineRequest) -> bool {
        let (machine, vmi) = (self.machine(), self.vmi());
        let Ok(change) = change_state(&machine, vmi.as_ref(), request) else {
            return false;
        };
        self.store.change(&machine.id(), change.part, &change.patch);
        if let (Some(_), Some(vmi)) = (change.end_within, &vmi) {
            self.store.remove(&vmi.id());
        }
        self.model.request(request, vmi.as_ref());
        true
    }

    /// The user changes the strategy.
    pub fn switch(&mut self, strategy: RunStrategy) {
        // A halted machine that is to start paused is about to be turned on.
        let machine = self.machine();
        let is_asked = machine.at(&["status", "stateChangeRequests"]).is_some();
        if is_asked && machine.text(&["spec", "runStrategy"]) == "Halted" {
            return;
        }
        let recorded = machine.text(&["status", "runStrategy"]);
        self.model.switch(strategy, self.vmi().as_ref(), recorded);
        let change = json!({"spec": {"runStrategy": strategy.as_str()}});
        self.store.change(&self.machine().id(), Part::Main, &change);
    }

    /// Somebody deletes the VMI beneath the machine.
    pub fn delete_vmi(&mut self) {
        if let Some(vmi) = self.vmi() {
            self.model.delete_vmi();
            self.store.remove(&vmi.id());
        }
    }

    pub fn set_phase(&self, id: &ObjectId, phase: &str) {
        let ready = if phase == "Running" { "True" } else { "False" };
        let mut status =
            json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        if phase == "Running" {
            status["phaseTransitionTimestamps"] =
                json!([{"phase": "Running", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"}]);
        }
        self.store
            .change(id, Part::Status, &json!({"status": status}));
    }

    /// A guest goes on: it starts, or its end is complete.
    pub fn guest_goes_on(&mut self) {
        let Some(vmi) = self.vmi() else { return };
        let id = vmi.id();
        match (vmi.is_deleted(), Self::phase_of(&vmi)) {
            (false, "") => self.set_phase(&id, "Scheduled"),
            (false, "Scheduled") => self.set_phase(&id, "Running"),
            (false, _) => {}
            (true, "Succeeded" | "Failed") => {
                let mut finalizers = vmi.metadata.finalizers;
                finalizers.retain(|name| name != FINALIZER);
                let left = if finalizers.is_empty() {
                    Value::Null
                } else {
                    json!(finalizers)
                };
                let change = json!({"metadata": {"finalizers": left}});
                self.store.change(&id, Part::Main, &change);
            }
            (true, _) => {
                let how = if self.random.one_in(2) {
                    "Succeeded"
                } else {
                    "Failed"
                };
                self.set_phase(&id, how);
            }
        }
    }

    /// A guest ends by itself, or crashes.
    pub fn guest_ends(&mut self, how: &str) {
        let Some(vmi) = self.vmi() else { return };
        if matches!(Self::phase_of(&vmi), "Scheduled" | "Running") && !vmi.is_deleted() {
            self.model.guest_ends(how);
            self.set_phase(&vmi.id(), how);
        }
    }

    /// The agent begins anew with nothing in memory.
    pub fn restart_agent(&mut self) {
        self.controller = VirtualMachines::default();
    }

    /// Anything but a request.
    pub fn step(&mut self) {
        if self.random.one_in(10) {
            let how = if self.random.one_in(2) {
                "Succeeded"
            } else {
                "Failed"
            };
            self.guest_ends(how);
        } else {
            self.step_without_ends();
        }
    }

    pub fn step_without_ends(&mut self) {
        match self.random.below(9) {
            0..=3 => {
                self.control();
            }
            4 | 5 => {
                let steps = self.random.below(6);
                self.store.catch_up(steps);
            }
            6 => self.guest_goes_on(),
            7 => {
                let seconds = u64::try_from(self.random.below(30)).expect("fits");
                self.elapsed += Duration::from_secs(seconds);
            }
            _ => {
                let writes = self.random.below(5);
                self.store.die_after(writes);
            }
        }
    }

    /// Faults end, guests get on, and the controller has all the time it needs.
    pub fn settle(&mut self) {
        self.store.end_faults();
        self.due = self.model.due(self.vmi().as_ref());
        self.go_on();
    }

    /// Guests get on, and the controller has all the time it needs.
    pub fn go_on(&mut self) {
        for _ in 0..150 {
            self.catch_up();
            self.guest_goes_on();
            self.elapsed += Duration::from_secs(7);
        }
        self.catch_up();
    }

    /// The controller does all there is to do, also about a machine that it leaves alone for a moment after a start.
    pub fn catch_up(&mut self) {
        for _ in 0..2 {
            self.store.catch_up(usize::MAX);
            while self.control() {
                self.store.catch_up(usize::MAX);
            }
            self.elapsed += Duration::from_millis(50);
        }
    }

    /// The same, where VMIs are not all the machine's.
    pub fn catch_up_beside_others(&mut self) {
        self.last_uid = self.vmi().map(|vmi| vmi.metadata.uid).unwrap_or_default();
        self.catch_up();
    }

    /// Whether the model knows how this ends.
    pub fn is_known(&self) -> bool {
        self.due != Due::Unknown
    }

    pub fn strategy(&self) -> RunStrategy {
        self.model.strategy()
    }

    pub fn assert_settled(&mut self) {
        let seed = self.seed;
        let machine = self.machine();
        let wanted = machine.text(&["spec", "runStrategy"]).to_owned();
        assert_eq!(wanted, self.model.strategy().as_str(), "seed {seed}");
        let vmi = self.vmi();
        let due = &self.due;
        let context = format!("seed {seed}: {due:?} is due: {:?}\n{vmi:?}", self.model);
        let uid = vmi.as_ref().map(|vmi| vmi.metadata.uid.as_str());
        match due {
            Due::Running => assert!(self.is_running(), "{context}"),
            Due::Kept(kept) => assert_eq!(uid, Some(kept.as_str()), "{context}"),
            Due::Gone => assert_eq!(uid, None, "{context}"),
            Due::Unknown => {}
        }
        let word = machine.text(&["status", "printableStatus"]).to_owned();
        let known = match vmi.as_ref().map(Self::phase_of) {
            Some("Running") => ["Running", "Running"],
            _ => ["Stopped", "CrashLoopBackOff"],
        };
        if machine.content.contains_key("status") {
            assert!(
                known.contains(&word.as_str()),
                "seed {seed}: {word}: {vmi:?}"
            );
            let created = machine.at(&["status", "created"]).is_some();
            assert_eq!(created, vmi.is_some(), "seed {seed}");
        }
        assert_eq!(
            machine.at(&["status", "stateChangeRequests"]),
            None,
            "seed {seed}"
        );
        let before = self.store.counts();
        for _ in 0..20 {
            self.elapsed += Duration::from_secs(60);
            self.catch_up();
        }
        assert_eq!(
            self.store.counts(),
            before,
            "seed {seed}: writes of nothing"
        );
    }

    /// The machine goes once its VMI has, whatever fails.
    pub fn delete_machine(&mut self) {
        let id = self.machine().id();
        self.store.remove(&id);
        for _ in 0..200 {
            let is_there = self.vmi().is_some();
            self.catch_up();
            let machines = self.store.all(MACHINE);
            assert!(
                !machines.is_empty() || self.vmi().is_none(),
                "seed {}",
                self.seed
            );
            if machines.is_empty() {
                return;
            }
            if is_there {
                let word = machines[0].text(&["status", "printableStatus"]);
                assert_eq!(word, "Terminating", "seed {}", self.seed);
            }
            self.guest_goes_on();
            self.elapsed += Duration::from_secs(1);
        }
        panic!("seed {}: the machine does not go", self.seed);
    }
}
