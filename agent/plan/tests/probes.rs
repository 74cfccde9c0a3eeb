//! The life of a VMI with probes, as its record and conditions tell it.

use agent_plan::{
    Action, BootId, Completed, Deletion, Enforcement, ExitObserved, ExitReason, MachineObserved,
    MachineState, Millis, Observation, Observed, PauseObserved, Phase, ProbeResult, ProbeResults,
    Record, Timestamp, VmiId, VmmIdentity, VmmObserved, Wanted, complete, may_be_probed, plan,
};

struct Guest {
    now: Timestamp,
    wanted: Wanted,
    record: Record,
    seen: Observed,
    actions: Vec<Action>,
    events: Vec<String>,
}

fn identity() -> VmmIdentity {
    VmmIdentity {
        boot_id: BootId(String::from("boot-1")),
        pid: 42,
        start_time_ticks: 7,
    }
}

impl Guest {
    /// One that runs since 1 s, with both probes and 20 s of grace.
    fn running() -> Self {
        let id = VmiId {
            uid: String::from("u1"),
            namespace: String::from("default"),
            name: String::from("web"),
        };
        let mut guest = Self {
            now: Timestamp(0),
            wanted: Wanted {
                generation: 1,
                probes: ProbeResults {
                    liveness: Some(ProbeResult::None),
                    readiness: Some(ProbeResult::None),
                    grace: Millis::from_secs(20),
                },
                ..Wanted::default()
            },
            record: Record::new(id, Timestamp(0)),
            seen: Observed {
                boot_id: Observation::Present(BootId(String::from("boot-1"))),
                vmms: Observation::Absent,
                exit: Observation::Absent,
                holdings: Observation::Absent,
                stands_still: Observation::Absent,
                operation: Observation::Absent,
            },
            actions: Vec::new(),
            events: Vec::new(),
        };
        guest.round();
        guest.wait(1);
        guest.machine(MachineState::Running);
        guest.round();
        guest
    }

    fn wait(&mut self, seconds: i64) {
        self.now = self.now.plus(Millis::from_secs(seconds));
    }

    fn machine(&mut self, state: MachineState) {
        let pause = (state == MachineState::Paused).then_some(PauseObserved::Requested);
        self.vmm(Observation::Present(MachineObserved {
            state,
            resets: 0,
            pause,
            sync_failures: Vec::new(),
            links_down: None,
        }));
    }

    fn vmm(&mut self, machine: Observation<MachineObserved>) {
        self.seen.vmms = Observation::Present(vec![VmmObserved {
            incarnation: self.record.launches.incarnation(),
            identity: identity(),
            machine,
            enforcement: Observation::Present(Enforcement::Enforced),
        }]);
    }

    fn round(&mut self) {
        let planned = plan(&self.wanted, &self.record, &self.seen, self.now);
        self.record = planned.record;
        let sent = planned.events.iter();
        self.events.extend(sent.map(|event| event.reason.clone()));
        for action in &planned.actions {
            let done = match action {
                Action::StartVmm { .. } => Completed::Started(identity()),
                _ => Completed::Done,
            };
            self.record = complete(&self.record, action, &Ok(done), self.now).0;
        }
        self.actions = planned.actions;
    }

    fn may_be_probed(&self) -> Option<Timestamp> {
        may_be_probed(&self.wanted, &self.record, &self.seen)
    }

    fn ready(&self) -> String {
        let ready = self.record.report.conditions.iter();
        let ready = ready.filter(|condition| condition.kind == "Ready");
        ready
            .map(|it| format!("{} {} {}", it.status.as_str(), it.reason, it.message))
            .collect()
    }
}

fn failed(why: &str) -> ProbeResult {
    let why = why.to_owned();
    ProbeResult::Failed { why }
}

#[test]
fn a_guest_is_ready_once_its_probe_says_so_and_stays_so_through_a_restart_of_the_agent() {
    let mut guest = Guest::running();
    let not_yet = "False ContainersNotReady The readiness probe has not succeeded yet";
    assert_eq!(guest.ready(), not_yet);
    guest.wanted.probes.readiness = Some(ProbeResult::Succeeded);
    guest.round();
    assert_eq!(guest.ready(), "True  ");
    // What the next agent knows.
    guest.wanted.probes.readiness = Some(ProbeResult::None);
    guest.round();
    assert_eq!(guest.ready(), "True  ");
    guest.wanted.probes.readiness = Some(failed("exit code 1: no"));
    guest.round();
    let no = "False ContainersNotReady The readiness probe failed: exit code 1: no";
    assert_eq!(guest.ready(), no);
    assert!(guest.actions.is_empty() && guest.record.report.end.is_none());
    guest.machine(MachineState::Paused);
    guest.record.orders.paused = true;
    guest.round();
    assert!(guest.ready().starts_with("False GuestNotRunning "));
}

#[test]
fn a_guest_that_fails_its_liveness_probe_has_its_grace_period_and_has_failed() {
    for heeds_the_button in [true, false] {
        let mut guest = Guest::running();
        guest.wanted.probes.liveness = Some(failed("no answer"));
        guest.round();
        let press = Action::PressPowerButton { incarnation: 1 };
        assert_eq!(guest.actions, [press]);
        assert_eq!(guest.events.last().map(String::as_str), Some("Killing"));
        assert_eq!(guest.may_be_probed(), None);
        assert!(guest.ready().starts_with("False PodTerminating "));
        guest.round();
        assert!(guest.actions.is_empty());
        let reason = if heeds_the_button {
            ExitReason::GuestPoweroff
        } else {
            // The result is not taken back: nobody asks any more.
            guest.wanted.probes.liveness = Some(ProbeResult::None);
            guest.wait(20);
            guest.round();
            let reason = String::from("GracePeriodOver");
            let stop = Action::StopVmm {
                incarnation: 1,
                reason,
            };
            assert_eq!(guest.actions, [stop]);
            ExitReason::Stopped
        };
        guest.seen.vmms = Observation::Absent;
        guest.seen.exit = Observation::Present(ExitObserved {
            reason,
            detail: String::new(),
            at: guest.now,
            uptime_ns: 1,
        });
        guest.round();
        assert_eq!(guest.record.phase(), Phase::Failed);
        let end = guest.record.report.end.clone().unwrap();
        assert_eq!(end.reason, "LivenessProbeFailed");
        assert!(
            end.message
                .contains("its liveness probe failed (no answer). "),
            "{}",
            end.message
        );
        // Never again.
        guest.seen.exit = Observation::Absent;
        guest.wait(1000);
        guest.round();
        assert!(guest.actions.is_empty());
    }
}

#[test]
fn who_is_paused_silent_or_about_to_end_is_neither_asked_nor_ended_for_his_answers() {
    let mut guest = Guest::running();
    assert_eq!(guest.may_be_probed(), Some(Timestamp(1000)));
    let untouched = |guest: &mut Guest| {
        assert_eq!(guest.may_be_probed(), None);
        guest.wanted.probes.liveness = Some(failed("late"));
        guest.round();
        assert_eq!(guest.record.report.probes.unhealthy, None);
        guest.wanted.probes.liveness = Some(ProbeResult::None);
    };
    guest.vmm(Observation::Unknown {
        why: String::from("silent"),
        since: guest.now,
    });
    untouched(&mut guest);
    guest.record.orders.paused = true;
    guest.machine(MachineState::Paused);
    untouched(&mut guest);
    guest.record.orders.paused = false;
    guest.machine(MachineState::Running);
    guest.round();
    assert!(guest.may_be_probed().is_some());
    guest.wanted.deletion = Some(Deletion {
        requested_at: guest.now,
        grace: Millis::from_secs(30),
    });
    untouched(&mut guest);
}

#[test]
fn a_deletion_shortens_the_grace_period_of_an_unhealthy_guest_and_never_prolongs_it() {
    for (grace, after) in [(3, 4), (3600, 20)] {
        let mut guest = Guest::running();
        guest.wanted.probes.liveness = Some(failed("no answer"));
        guest.round();
        guest.wait(1);
        guest.wanted.deletion = Some(Deletion {
            requested_at: guest.now,
            grace: Millis::from_secs(grace),
        });
        guest.round();
        guest.wait(after - 2);
        guest.round();
        assert!(guest.actions.is_empty(), "{:?}", guest.actions);
        guest.wait(1);
        guest.round();
        assert!(matches!(guest.actions[..], [Action::StopVmm { .. }]));
    }
}
