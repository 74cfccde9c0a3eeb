//! The agent's loop as the daemon runs it: observe, plan, store, execute, store. It can be killed
//! after every step; what it kept in memory is lost then, what it stored is not.

use agent_plan::{
    Action, AddressDemand, Completed, Deletion, Observed, PciDemand, Plan, Record, Timestamp,
    Wanted, complete, plan,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::operation::Operations;
use super::world::{GRACE, World};

/// The guest's only NIC.
const NIC: &str = "default";

/// The part of an agent that owns one VMI.
#[derive(Default)]
pub(crate) struct Agent {
    /// As it was last read or stored; `None` right after a start.
    memory: Option<Record>,
    wake_at: Option<Timestamp>,
    operations: Operations,
    /// The last plan, for the invariants.
    pub(crate) last: Option<(Plan, Observed)>,
}

impl Agent {
    /// One round, if the agent is up. With faults it may be killed at any point of it.
    pub(crate) fn turn(&mut self, world: &mut World, faults: bool) {
        if !world.disk.object_exists {
            return;
        }
        let stored = world.disk.record.clone();
        let mut record = stored.clone();
        world.follow_clock(&mut record);
        if let Some((action, outcome)) = self.operations.ended(world, faults) {
            world.log(|| format!("agent    {} ended with {outcome:?}", action.name()));
            record = complete(&record, &action, &outcome, world.wall()).0;
        }
        self.memory = Some(record.clone());
        let mut observed = world.observe(record.launches.incarnation(), faults);
        observed.operation = self.operations.observe();
        let wanted = wanted(world, &record, faults);
        let planned = plan(&wanted, &record, &observed, world.wall());
        let starts = |action: &Action| matches!(action, Action::StartVmm { .. });
        world.intrusion |= wanted.closed.is_some() && planned.actions.iter().any(starts);
        self.wake_at = planned.wake_at;
        self.last = Some((planned.clone(), observed));
        let is_news = planned.record.is_ahead_of(&stored) || !planned.events.is_empty();
        if self.dies(world, faults) || (is_news && !self.store(world, &planned.record)) {
            return;
        }
        self.memory = Some(planned.record.clone());
        if self.execute(world, &planned.actions, faults) && planned.gone && !world.store_is_full() {
            world.disk.object_exists = false;
            world.gone = true;
            world.log(|| String::from("agent    the object is gone"));
        }
    }

    /// Carries out the actions in order; false when the agent did not get to their end.
    fn execute(&mut self, world: &mut World, actions: &[Action], faults: bool) -> bool {
        for action in actions {
            if self.dies(world, faults) {
                return false;
            }
            let outcome = self.operations.execute(world, action, faults);
            world.log(|| format!("agent    {} gave {outcome:?}", action.name()));
            if self.dies(world, faults) {
                return false;
            }
            let Some(mut record) = self.memory.clone() else {
                return false;
            };
            world.follow_clock(&mut record);
            let (after, events) = complete(&record, action, &outcome, world.wall());
            let before = self.memory.as_ref();
            let is_news =
                !events.is_empty() || before.is_none_or(|before| after.is_ahead_of(before));
            let goes_on = outcome.is_ok() && outcome != Ok(Completed::Begun);
            if (is_news && !self.store(world, &after)) || !goes_on {
                return false;
            }
        }
        true
    }

    /// Writes the record down; false when that failed, or when nobody knows.
    fn store(&mut self, world: &mut World, record: &Record) -> bool {
        let is_full = world.store_is_full();
        if is_full && world.random.chance(75) {
            world.log(|| String::from("agent    cannot store the record"));
            return false;
        }
        if record.phase() != world.disk.record.phase() {
            world.log(|| format!("agent    phase {}", record.phase().as_str()));
        }
        let mut record = record.clone();
        if world.older {
            drop_new_fields(&mut record);
        }
        if record.report.probes.unhealthy.is_some() {
            world.asked.unhealthy.get_or_insert(world.now);
        }
        let stored = &mut world.disk.record;
        stored.launches = record.launches.clone();
        stored.allocations = record.allocations.clone();
        stored.report = record.report.clone();
        self.memory = Some(record);
        // The sync failed after all of it was on disk.
        !is_full
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
        world.log(|| String::from("agent    is killed"));
        self.memory = None;
        self.wake_at = None;
        self.operations = Operations::default();
        world.older = world.weather.changes_release && world.random.chance(30);
        world.weather.seen.downgrades += u64::from(world.older);
        let record = &mut world.disk.record;
        if world.older {
            drop_new_fields(record);
        }
        match read_again(record) {
            Ok(again) => *record = again,
            Err(error) => world
                .murders
                .push(format!("a record is not what was stored: {error}")),
        }
    }
}

/// What an earlier release does not know is gone once it has written a record.
fn drop_new_fields(record: &mut Record) {
    record.report.clock = None;
    record.report.deletion = None;
    record.report.operation = None;
    record.report.links_down = None;
    if let Some(stop) = &mut record.report.stop {
        stop.ordered_at = None;
    }
}

/// As the ledger has it.
fn read_again(record: &Record) -> serde_json::Result<Record> {
    let launches = record.launches.iter();
    let launches = launches
        .map(|(incarnation, launch)| Ok((incarnation, part_again(&launch.cloned())?)))
        .collect::<serde_json::Result<_>>()?;
    Ok(Record {
        id: record.id.clone(),
        orders: part_again(&record.orders)?,
        launches,
        allocations: part_again(&record.allocations)?,
        report: part_again(&record.report)?,
    })
}

fn part_again<T: Serialize + DeserializeOwned>(part: &T) -> serde_json::Result<T> {
    serde_json::from_slice(&serde_json::to_vec(part)?)
}

fn wanted(world: &mut World, record: &Record, faults: bool) -> Wanted {
    let requested_at = world.disk.deletion_requested_at;
    Wanted {
        generation: 1,
        deletion: requested_at.map(|requested_at| Deletion {
            requested_at,
            grace: GRACE,
        }),
        admitted: Vec::new(),
        pci: PciDemand {
            interfaces: vec![AddressDemand {
                name: NIC.to_owned(),
                address: None,
            }],
            ..PciDemand::default()
        },
        links_down: world
            .cable_out
            .then(|| NIC.to_owned())
            .into_iter()
            .collect(),
        firmware: false,
        reservation: world.reservation(record),
        probes: world.probes(faults),
        closed: world.closed(),
    }
}
