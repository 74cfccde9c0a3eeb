//! The agent's loop as the daemon runs it: observe, plan, store, execute, store. It can be killed
//! after every step; what it kept in memory is lost then, what it stored is not.

use agent_plan::{Action, Deletion, PciDemand, Plan, Record, Timestamp, Wanted, complete, plan};

use super::world::{GRACE, World};

/// The part of an agent that owns one VMI.
#[derive(Default)]
pub(crate) struct Agent {
    /// As it was last read or stored; `None` right after a start.
    memory: Option<Record>,
    wake_at: Option<Timestamp>,
    /// The last plan, for the invariants.
    pub(crate) last: Option<Plan>,
}

impl Agent {
    /// One round, if the agent is up. With faults it may be killed at any point of it.
    pub(crate) fn turn(&mut self, world: &mut World, faults: bool) {
        if !world.disk.object_exists {
            return;
        }
        let record = world.disk.record.clone();
        self.memory = Some(record.clone());
        let observed = world.observe(record.incarnation, faults);
        let deletion = world
            .disk
            .deletion_requested_at
            .map(|requested_at| Deletion {
                requested_at,
                grace: GRACE,
            });
        let wanted = Wanted {
            generation: 1,
            deletion,
            admitted: Vec::new(),
            pci: PciDemand::default(),
            firmware: false,
            room: world.room(&record),
            probes: world.probes(faults),
            closed: world.closed(),
        };
        let planned = plan(&wanted, &record, &observed, world.now);
        let starts = |action: &Action| matches!(action, Action::StartVmm { .. });
        world.intrusion |= wanted.closed.is_some() && planned.actions.iter().any(starts);
        self.wake_at = planned.wake_at;
        self.last = Some(planned.clone());
        if self.dies(world, faults) {
            return;
        }
        self.store(world, &planned.record);
        for action in &planned.actions {
            if self.dies(world, faults) {
                return;
            }
            let outcome = world.execute(action, faults);
            world.say(|| format!("agent    {} gave {outcome:?}", action.name()));
            if self.dies(world, faults) {
                return;
            }
            let Some(record) = &self.memory else { return };
            let (record, _) = complete(record, action, &outcome, world.now);
            self.store(world, &record);
            if outcome.is_err() {
                return;
            }
        }
        if planned.gone {
            world.disk.object_exists = false;
            world.gone = true;
            world.say(|| String::from("agent    the object is gone"));
        }
    }

    fn store(&mut self, world: &mut World, record: &Record) {
        if record.phase() != world.disk.record.phase() {
            world.say(|| format!("agent    phase {}", record.phase().as_str()));
        }
        let mut record = record.clone();
        record.orders = world.disk.record.orders.clone();
        world.disk.record = record.clone();
        self.memory = Some(record);
    }

    fn dies(&mut self, world: &mut World, faults: bool) -> bool {
        let dies = faults && world.random.chance(4);
        if dies {
            self.kill(world);
        }
        dies
    }

    /// The agent is killed, and started again.
    pub(crate) fn kill(&mut self, world: &mut World) {
        world.kills += 1;
        world.say(|| String::from("agent    is killed"));
        self.memory = None;
        self.wake_at = None;
    }
}
