//! A node: its power, its clock, its disk, its guests, and the agent on it.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_plan::{
    BootId, BootTime, LeaseStep, Millis, OnExpiry, Phase, Stage, Timestamp, end_of_another_boot,
    keep_lease,
};
use agent_sources::AnsweredAssignments;
use proto_node::controlplane::session_response::Body as ResponseBody;

use super::super::random::Random;
use super::store::Disk;
use super::tally::ClusterTally;
use super::wire::{Session, Wire};

/// The grace periods of VMIs themselves, which are longer than some leases.
const OWN_GRACE_MS: i64 = 90_000;

/// Words of the control plane that are remembered, to come again.
const OLD_MESSAGES: usize = 50;

/// One node.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) disk: Disk,
    pub(super) tally: ClusterTally,
    pub(super) wire: Option<Wire>,
    pub(super) agent: Agent,
    pub(super) old_messages: Vec<ResponseBody>,
    /// When the last heartbeat was sent that was answered, by this node's clock; of this boot.
    pub(super) answered: Option<BootTime>,
    pub(super) now_ms: u64,
    /// What its agent did and must not have.
    pub(super) crime: Option<String>,
    boot: u32,
    booted_ms: u64,
    off_until_ms: u64,
    agent_back_ms: u64,
    /// Its clock runs by so much in a thousand.
    rate: u64,
    /// The last wire that was made.
    pub(super) wires: u64,
    verbose: bool,
}

/// What an agent has in its memory.
#[derive(Default)]
pub(super) struct Agent {
    pub(super) assignments: AnsweredAssignments,
    pub(super) renewals: BTreeMap<String, BootTime>,
    pub(super) session: Option<Session>,
    pub(super) dials_ms: u64,
}

impl Node {
    pub(super) fn new(name: &str, random: &mut Random, verbose: bool) -> Self {
        Self {
            name: name.to_owned(),
            disk: Disk::default(),
            tally: ClusterTally::default(),
            wire: None,
            agent: Agent::default(),
            old_messages: Vec::new(),
            answered: None,
            now_ms: 0,
            crime: None,
            boot: 1,
            booted_ms: 0,
            off_until_ms: 0,
            agent_back_ms: 0,
            rate: 960 + random.below(80),
            wires: 0,
            verbose,
        }
    }

    pub(super) fn log(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>9} ms  node {} {}", self.now_ms, self.name, what());
        }
    }

    pub(super) fn has_power(&self, now_ms: u64) -> bool {
        now_ms >= self.off_until_ms
    }

    pub(super) fn boot_id(&self) -> BootId {
        BootId(format!("{}-{}", self.name, self.boot))
    }

    pub(super) const fn boot(&self) -> u32 {
        self.boot
    }

    /// The node's own clock.
    pub(super) fn clock(&self) -> Duration {
        Duration::from_millis((self.now_ms - self.booted_ms) * self.rate / 1000)
    }

    pub(super) fn at(&self, clock: Duration) -> BootTime {
        BootTime {
            boot_id: self.boot_id(),
            at: Millis(i64::try_from(clock.as_millis()).unwrap_or(i64::MAX)),
        }
    }

    /// The same as a record has it.
    pub(super) fn wall(&self) -> Timestamp {
        Timestamp(self.at(self.clock()).at.0)
    }

    /// Something that a control plane said before, and that does not hold any more or still does: not one that it
    /// took back without this node having heard of that.
    pub(super) fn old_message(&self, random: &mut Random) -> Option<ResponseBody> {
        let count = u64::try_from(self.old_messages.len())
            .ok()
            .filter(|it| *it > 0)?;
        let word = self
            .old_messages
            .get(usize::try_from(random.below(count)).ok()?)?;
        let ResponseBody::Assignment(it) = word else {
            return Some(word.clone());
        };
        let metadata = it.object.as_ref()?.metadata.as_ref()?;
        let known = self.disk.assignments.get(&metadata.name)?;
        let was_followed = known.token > it.token || known.stage == Stage::Withdrawn;
        was_followed.then(|| word.clone())
    }

    pub(super) fn remember(&mut self, word: &ResponseBody) {
        if matches!(
            word,
            ResponseBody::Assignment(_) | ResponseBody::Withdrawal(_)
        ) && self.old_messages.len() < OLD_MESSAGES
        {
            self.old_messages.push(word.clone());
        }
    }

    pub(super) fn calm(&mut self, now_ms: u64) {
        // Later than its last turn, which it spent without power.
        self.off_until_ms = self.off_until_ms.min(now_ms + 1);
        self.agent_back_ms = self.agent_back_ms.min(now_ms);
        self.wire = None;
        self.disk.draining = false;
    }

    /// A person has it drained, or opens it again, when its agent answers.
    pub(super) fn drain(&mut self, draining: bool, now_ms: u64) {
        if self.has_power(now_ms) && now_ms >= self.agent_back_ms {
            self.log(|| format!("is drained: {draining}"));
            self.disk.draining = draining;
        }
    }

    /// Time passes: guests go on, leases run, the agent does its work.
    pub(super) fn turn(&mut self, now_ms: u64, random: &mut Random, faults: bool) {
        let had_power = self.has_power(self.now_ms);
        self.now_ms = now_ms;
        if !self.has_power(now_ms) {
            return;
        }
        if !had_power {
            self.boot += 1;
            self.booted_ms = now_ms;
            self.settle();
        }
        if faults && random.below(700) == 0 {
            return self.lose_power(random);
        }
        self.guests(random, faults);
        if now_ms < self.agent_back_ms {
            return;
        }
        if faults && random.below(60) == 0 {
            self.die(random);
            return;
        }
        self.keep_leases();
        self.guests_end();
        self.talk(random, faults);
    }

    fn lose_power(&mut self, random: &mut Random) {
        self.log(|| String::from("loses its power"));
        self.tally.cuts += 1;
        self.off_until_ms = self.now_ms + 5000 + random.below(90_000);
        self.agent_back_ms = 0;
        self.agent = Agent::default();
        self.wire = None;
        self.answered = None;
        self.disk.vmis.values_mut().for_each(|vmi| vmi.runs = false);
    }

    /// The agent is killed, and is back in a moment.
    pub(super) fn die(&mut self, random: &mut Random) {
        self.log(|| String::from("its agent is killed"));
        self.tally.kills += 1;
        self.agent = Agent::default();
        self.wire = None;
        self.agent_back_ms = self.now_ms + random.below(3000);
        // Its first deed when it is back; nothing of it is lost when it is killed again.
        self.settle();
    }

    /// Before any guest is started: what was assigned in another boot is not for this one.
    fn settle(&mut self) {
        let (boot_id, now) = (self.boot_id(), self.wall());
        let boot = self.boot;
        for vmi in self.disk.vmis.values_mut() {
            let has_run = vmi.record.phase() == Phase::Running;
            if vmi.boot != boot && has_run {
                vmi.enter(Phase::Failed, now);
            }
        }
        for (name, assignment) in &self.disk.assignments {
            let is_old = assignment.stage != Stage::Withdrawn && assignment.boot_id != boot_id;
            let vmi = self.disk.vmis.get_mut(name);
            if let Some(vmi) = vmi.filter(|vmi| is_old && vmi.token == assignment.token) {
                let orders = end_of_another_boot(&vmi.record, now);
                vmi.record.orders = orders.unwrap_or_else(|| vmi.record.orders.clone());
            }
        }
    }

    /// Guests end by themselves, or as they were asked to.
    fn guests(&mut self, random: &mut Random, faults: bool) {
        let now = self.wall();
        for vmi in self.disk.vmis.values_mut().filter(|vmi| vmi.runs) {
            let heeds = vmi.ends_by().is_some() && random.below(40) == 0;
            if heeds || (faults && random.below(3000) == 0) {
                vmi.enter(Phase::Succeeded, now);
            }
        }
    }

    /// The planner's part: starts what may run, ends what has to, and lets go of what is gone.
    fn guests_end(&mut self) {
        let now = self.wall();
        let (boot, draining, grace) = (self.boot, self.disk.draining, self.own_grace());
        let mut gone = Vec::new();
        for (name, vmi) in &mut self.disk.vmis {
            if draining && vmi.runs {
                vmi.evict(now, grace);
            }
            let is_final = vmi.record.phase().is_final();
            match vmi.ends_by() {
                None if vmi.record.phase() == Phase::Pending && !draining => {
                    vmi.boot = boot;
                    vmi.enter(Phase::Running, now);
                }
                Some(by) if !is_final && (by <= now || !vmi.runs) => {
                    vmi.enter(Phase::Succeeded, now)
                }
                _ => {}
            }
            if vmi.record.phase().is_final() && vmi.deletes_by.is_some() {
                gone.push(name.clone());
            }
        }
        for name in gone {
            self.log(|| format!("{name} is gone"));
            self.disk.vmis.remove(&name);
        }
    }

    fn keep_leases(&mut self) {
        let (now, wall) = (self.at(self.clock()), self.wall());
        for (name, assignment) in &mut self.disk.assignments {
            if let (Some(lease), Some(since)) =
                (&mut assignment.lease, self.agent.renewals.get(name))
            {
                lease.renew(lease.terms, since);
            }
            let step = assignment.lease.as_ref().map(|lease| lease.step(&now));
            let vmi = self.disk.vmis.get_mut(name);
            let (Some(vmi), Some(step)) = (vmi, step) else {
                continue;
            };
            if matches!(step, LeaseStep::Nothing(_)) {
                continue;
            }
            let kept = keep_lease(assignment, vmi.token, &vmi.record, (&now, wall));
            self.tally.expired += u64::from(kept.is_some());
            if let Some((orders, _)) = kept {
                vmi.record.orders = orders;
            }
        }
    }

    pub(super) fn own_grace(&self) -> Millis {
        Millis(OWN_GRACE_MS)
    }

    /// What holds of a node at any time.
    pub(super) fn check(&self, late_ms: i64) -> Result<(), String> {
        if let Some(crime) = &self.crime {
            return Err(format!("node {}: {crime}", self.name));
        }
        let now = self.wall();
        for (name, vmi) in self.disk.vmis.iter().filter(|(_, vmi)| vmi.runs) {
            if vmi.ends_by().is_some_and(|by| by.0 + late_ms < now.0) {
                return Err(format!(
                    "{name} on {} has outlived its grace period",
                    self.name
                ));
            }
            let lease = self
                .disk
                .assignments
                .get(name)
                .and_then(|it| it.lease.as_ref());
            let Some(terms) = lease.map(|lease| lease.terms) else {
                continue;
            };
            let granted = self.answered.as_ref().map_or(0, |at| at.at.0);
            let over = granted + terms.duration.0 + terms.grace.0 + late_ms;
            if terms.on_expiry == OnExpiry::Stop && now.0 > over {
                return Err(format!(
                    "{name} on {} has outlived its lease, which was last granted at {granted} ms of {} ms",
                    self.name, now.0
                ));
            }
        }
        Ok(())
    }
}
