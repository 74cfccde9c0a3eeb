//! The simulated world: one node, what is on its disk, and what happens of itself.

use std::collections::{BTreeMap, BTreeSet};

use agent_domain::PciAddress;
use agent_plan::{
    BootId, Closed, ExitObserved, ExitReason, Holding, MachineState, Millis, Observation, Orders,
    PauseObserved, ProbeResult, ProbeResults, Record, Reservation, ResourceDemand, Timestamp,
    VmiId, VmmIdentity,
};

use super::random::Random;
use super::tally::Tally;
use super::weather::Weather;

/// Where virtual time begins.
pub(crate) const EPOCH: Timestamp = Timestamp(1_700_000_000_000);

/// How long things go wrong.
pub(crate) const STORM: Millis = Millis::from_secs(120);

/// The grace period that the VMI was given.
pub(crate) const GRACE: Millis = Millis::from_secs(30);

/// A VMM process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) identity: VmmIdentity,
    pub(crate) incarnation: u64,
    pub(crate) state: MachineState,
    /// The guest heeds the power button, and is on its way.
    pub(crate) powering_off_at: Option<Timestamp>,
    /// It has written its exit record and ends then.
    pub(crate) exits_at: Option<Timestamp>,
    /// Its control socket answers.
    pub(crate) answers: bool,
    /// Until then it does not, whatever happens.
    pub(crate) silent_until: Timestamp,
    /// It runs in a cgroup of its own.
    pub(crate) enforced: bool,
    /// Why it is paused, when it is.
    pub(crate) pause: Option<PauseObserved>,
    /// NICs whose cable is out.
    pub(crate) links_down: BTreeSet<PciAddress>,
}

impl Process {
    /// The host fails a disk of a running guest, and the guest waits.
    fn suffer_io_error(&mut self) {
        if self.state == MachineState::Running {
            self.state = MachineState::Paused;
            self.pause = Some(PauseObserved::IoError {
                detail: String::from("a full disk"),
            });
        }
    }
}

/// An effect that was reported and happens later.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    pub(crate) due: Timestamp,
    pub(crate) action: agent_plan::Action,
}

/// What the ledger holds.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) record: Record,
    pub(crate) object_exists: bool,
    /// By the wall clock of that moment, as objects have it.
    pub(crate) deletion_requested_at: Option<Timestamp>,
}

/// Since when a guest is to end, by a clock that nobody sets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) deletion: Option<Timestamp>,
    pub(crate) stop: Option<Timestamp>,
    pub(crate) unhealthy: Option<Timestamp>,
}

/// Everything outside the agent's memory.
pub(crate) struct World {
    /// True time, which no clock of the node shows.
    pub(crate) now: Timestamp,
    pub(crate) weather: Weather,
    pub(crate) asked: Asked,
    /// The orders that were accepted.
    pub(crate) promised: Orders,
    /// The cable of the guest's only NIC is to be out.
    pub(crate) cable_out: bool,
    /// The agent is of an earlier release.
    pub(crate) older: bool,
    pub(crate) random: Random,
    pub(crate) disk: Disk,
    pub(crate) boot: u32,
    pub(crate) processes: Vec<Process>,
    pub(crate) late: Vec<Late>,
    pub(crate) exits: BTreeMap<u64, ExitObserved>,
    pub(crate) holdings: BTreeSet<Holding>,
    /// Incarnations whose VMM was started at some time; the host starts none of them again.
    pub(crate) started: BTreeSet<u64>,
    /// The highest incarnation in any action for the host.
    pub(crate) fence: u64,
    /// Every incarnation whose guest ever executed an instruction.
    pub(crate) booted: BTreeSet<u64>,
    /// Guests that were ended although nobody had asked for it.
    pub(crate) murders: Vec<String>,
    pub(crate) effects: u64,
    pub(crate) kills: u64,
    operations: u64,
    cancelled: u64,
    pub(crate) gone: bool,
    pub(crate) verbose: bool,
    next_pid: u32,
    pub(super) deletes_at: Option<Timestamp>,
    stubborn: bool,
    /// Guests end, VMMs are killed and the node reboots; otherwise only the agent and its messages suffer.
    rough: bool,
    pub(crate) starts_paused: bool,
    /// From when on the node has room for the VMI.
    room_at: Timestamp,
    /// People cordon the node now and then.
    is_cordoned: bool,
    /// A VMM was planned while the node started no guests.
    pub(crate) intrusion: bool,
}

impl World {
    pub(crate) fn new(seed: u64, verbose: bool) -> Self {
        let mut random = Random::new(seed);
        let id = VmiId {
            uid: String::from("uid-1"),
            namespace: String::from("default"),
            name: String::from("web"),
        };
        let deletes_at = random.chance(60).then(|| {
            let after = i64::try_from(random.below(150_000)).unwrap_or(0);
            EPOCH.plus(Millis(after))
        });
        let stubborn = random.chance(30);
        let rough = random.chance(50);
        let mut record = Record::new(id, EPOCH);
        let starts_paused = random.chance(20);
        record.orders = Orders::at_start(starts_paused);
        let disk = Disk {
            record,
            object_exists: true,
            deletion_requested_at: None,
        };
        let room_after = if random.chance(40) {
            i64::try_from(random.below(150_000)).unwrap_or(0)
        } else {
            0
        };
        let is_cordoned = random.chance(30);
        let weather = Weather::new(&mut random, EPOCH);
        Self {
            now: EPOCH,
            weather,
            asked: Asked::default(),
            promised: disk.record.orders.clone(),
            cable_out: false,
            older: false,
            random,
            disk,
            boot: 1,
            processes: Vec::new(),
            late: Vec::new(),
            exits: BTreeMap::new(),
            holdings: BTreeSet::new(),
            started: BTreeSet::new(),
            fence: 0,
            booted: BTreeSet::new(),
            murders: Vec::new(),
            effects: 0,
            kills: 0,
            operations: 0,
            cancelled: 0,
            gone: false,
            verbose,
            next_pid: 100,
            deletes_at,
            stubborn,
            rough,
            starts_paused,
            room_at: EPOCH.plus(Millis(room_after)),
            is_cordoned,
            intrusion: false,
        }
    }

    /// Whether there is room for the VMI. Others take it again and again, until calm.
    pub(crate) fn reservation(&self, record: &Record) -> Reservation {
        if let Some(demand) = &record.allocations.reservation {
            return Reservation::Granted(demand.clone());
        }
        let quiet = self.now >= EPOCH.plus(STORM);
        if self.now < self.room_at || (!quiet && self.now.0 / 7000 % 3 == 0) {
            return Reservation::Waits {
                why: String::from("wants 1Gi"),
            };
        }
        Reservation::Granted(ResourceDemand {
            memory_bytes: 1,
            ..ResourceDemand::default()
        })
    }

    /// What probes have come to: in the storm a guest may fail its liveness probe.
    pub(crate) fn probes(&mut self, faults: bool) -> ProbeResults {
        let failed = faults && self.random.below(2000) == 0;
        if failed {
            self.log(|| String::from("guest    fails its liveness probe"));
        }
        let why = String::from("simulated");
        ProbeResults {
            liveness: failed.then_some(ProbeResult::Failed { why }),
            readiness: None,
            grace: GRACE,
        }
    }

    /// Whether the node starts guests: in the storm it is cordoned and opened again.
    pub(crate) fn closed(&self) -> Option<Closed> {
        let since_start = self.now.0 - EPOCH.0;
        let is_closed = self.is_cordoned && since_start < STORM.0 && since_start / 11_000 % 2 == 0;
        is_closed.then(|| Closed {
            reason: "NodeCordoned",
            message: String::from("the node is cordoned"),
        })
    }

    pub(crate) fn log(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>9} ms  {}", self.now.0 - EPOCH.0, what());
        }
    }

    pub(crate) fn boot_id(&self) -> BootId {
        BootId(format!("boot-{}", self.boot))
    }

    /// Time passes, and what is due happens; with faults also what nobody wants.
    pub(crate) fn let_things_happen(&mut self, faults: bool) {
        let step = 1 + self.random.below(if faults { 1500 } else { 3000 });
        self.now = self.now.plus(Millis(i64::try_from(step).unwrap_or(1)));
        self.delete_when_due();
        if faults {
            self.requests();
        }
        self.late_effects();
        self.guests();
        if faults {
            self.misfortunes();
        }
    }

    /// From here on nothing goes wrong any more.
    pub(crate) fn calm(&mut self) {
        self.log(|| String::from("---      calm"));
        self.clear_up();
        for process in &mut self.processes {
            process.answers = true;
        }
    }

    fn late_effects(&mut self) {
        let now = self.now;
        let (due, later): (Vec<Late>, Vec<Late>) =
            self.late.drain(..).partition(|late| late.due <= now);
        self.late = later;
        for late in due {
            self.log(|| format!("late     {:?}", late.action));
            // Nobody waits for the answer.
            drop(self.carry_out(&late.action));
        }
    }

    fn guests(&mut self) {
        let now = self.now;
        let mut records = Vec::new();
        for process in &mut self.processes {
            if process.powering_off_at.is_some_and(|at| at <= now)
                && process.state == MachineState::Running
            {
                process.state = MachineState::Exited;
                process.exits_at = Some(now.plus(Millis(500)));
                records.push((process.incarnation, ExitReason::GuestPoweroff));
            }
        }
        for (incarnation, reason) in records {
            self.leave_record(incarnation, reason);
        }
        self.processes
            .retain(|process| process.exits_at.is_none_or(|at| at > now));
    }

    pub(crate) fn leave_record(&mut self, incarnation: u64, reason: ExitReason) {
        let at = self.now;
        self.log(|| format!("vmm {incarnation}    leaves its exit record: {reason:?}"));
        self.exits.entry(incarnation).or_insert(ExitObserved {
            reason,
            detail: String::new(),
            at,
            uptime_ns: 1,
        });
    }

    fn misfortunes(&mut self) {
        self.change_weather();
        if !self.rough {
            return;
        }
        if self.random.chance(1) && self.random.chance(40) {
            self.reboot();
        }
        for index in 0..self.processes.len() {
            if self.random.chance(1) {
                self.processes[index].powering_off_at = Some(self.now);
            }
            if self.random.chance(2) {
                self.processes[index].suffer_io_error();
            }
        }
        if self.random.chance(1) && !self.processes.is_empty() {
            let lost = self.processes.remove(0);
            self.log(|| format!("vmm {}    is killed by a stranger", lost.incarnation));
        }
    }

    fn reboot(&mut self) {
        self.boot += 1;
        self.boot_anew();
        self.processes.clear();
        self.late.clear();
        // What lives in memory is gone; disks and records are not.
        self.holdings.remove(&Holding::Taps);
        self.holdings.remove(&Holding::Sandbox);
        self.log(|| String::from("node     reboots"));
    }

    pub(crate) fn start_process(&mut self, incarnation: u64) -> VmmIdentity {
        self.next_pid += 1;
        let identity = VmmIdentity {
            boot_id: self.boot_id(),
            pid: self.next_pid,
            start_time_ticks: 1,
        };
        self.started.insert(incarnation);
        self.holdings.insert(Holding::Sandbox);
        self.processes.push(Process {
            identity: identity.clone(),
            incarnation,
            state: MachineState::Unconfigured,
            powering_off_at: None,
            exits_at: None,
            answers: true,
            silent_until: self.now,
            enforced: true,
            pause: None,
            links_down: BTreeSet::new(),
        });
        identity
    }

    /// Whether the guest takes notice of the power button.
    pub(crate) const fn heeds_the_button(&self) -> bool {
        !self.stubborn
    }

    pub(crate) fn unknown<T>(&self) -> Observation<T> {
        Observation::Unknown {
            why: String::from("no answer"),
            since: self.now,
        }
    }

    pub(crate) const fn tally_begun(&mut self) {
        self.operations += 1;
    }

    pub(crate) const fn tally_cancelled(&mut self) {
        self.cancelled += 1;
    }

    pub(crate) fn tally(&self) -> Tally {
        let running = self
            .processes
            .iter()
            .any(|process| process.state == MachineState::Running);
        Tally {
            effects: self.effects,
            kills: self.kills,
            operations: self.operations,
            cancelled: self.cancelled,
            reboots: u64::from(self.boot - 1),
            boots: u64::try_from(self.booted.len()).unwrap_or(u64::MAX),
            gone: u64::from(self.gone),
            running: u64::from(running),
            ended: u64::from(!self.gone && self.disk.record.report.end.is_some()),
            weather: self.weather.seen,
        }
    }
}
