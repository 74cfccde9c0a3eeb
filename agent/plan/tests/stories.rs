//! Whole lives of a VMI as text: what is seen, what is planned, what is reported. The goldens are for
//! readers as much as for the machine.

use std::collections::BTreeSet;
use std::fmt::Write;

use agent_domain::PciAddress;
use agent_plan::{
    Action, AdmittedCondition, BootId, Closed, Completed, ConditionStatus, Deletion, DurableStore,
    Enforcement, ExitObserved, ExitReason, Failure, FailureClass, Holding, MachineObserved,
    MachineState, Maintenance, Millis, Observation, Observed, OperationObserved, OperationState,
    Order, Orders, PauseObserved, PlanEvent, Progress, Record, Reservation, StopCause, SyncFailure,
    Timestamp, VmiId, VmmIdentity, VmmObserved, Wanted, Work, complete, order, order_stop, plan,
};

/// A VMI, its host as far as the story needs one, and the story so far.
struct Story {
    text: String,
    now: Timestamp,
    wanted: Wanted,
    record: Record,
    seen: Observed,
}

impl Story {
    fn new() -> Self {
        let id = VmiId {
            uid: String::from("u1"),
            namespace: String::from("default"),
            name: String::from("web"),
        };
        Self {
            text: String::new(),
            now: Timestamp(0),
            wanted: Wanted {
                generation: 1,
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
        }
    }

    /// What happened, in the words of the story.
    fn note(&mut self, what: &str) {
        writeln!(self.text, "# {what}").expect("text");
    }

    fn wait(&mut self, seconds: i64) {
        self.now = self.now.plus(Millis::from_secs(seconds));
    }

    fn vmm(&mut self, state: MachineState) {
        self.machine(state, None);
    }

    fn machine(&mut self, state: MachineState, pause: Option<PauseObserved>) {
        self.seen.vmms = Observation::Present(vec![VmmObserved {
            incarnation: self.record.launches.incarnation(),
            identity: identity(),
            machine: Observation::Present(MachineObserved {
                state,
                resets: 0,
                pause,
                sync_failures: Vec::new(),
                links_down: None,
            }),
            enforcement: Observation::Present(Enforcement::NotEnforced {
                why: String::from("no cgroup v2"),
            }),
        }]);
    }

    fn exit(&mut self, reason: ExitReason) {
        self.seen.vmms = Observation::Absent;
        let detail = String::new();
        self.seen.exit = Observation::Present(ExitObserved {
            reason,
            detail,
            at: self.now,
            uptime_ns: 1,
        });
    }

    /// Plans, and carries everything out with `outcome`.
    fn round(&mut self, outcome: impl Fn(&Action) -> Result<Completed, Failure>) {
        let before = self.record.phase();
        let planned = plan(&self.wanted, &self.record, &self.seen, self.now);
        self.record = planned.record.clone();
        if self.record.phase() != before {
            writeln!(self.text, "  phase {}", self.record.phase().as_str()).expect("text");
        }
        for event in &planned.events {
            self.text.push_str(&line_of(event));
        }
        for action in &planned.actions {
            let outcome = outcome(action);
            let failed = outcome
                .as_ref()
                .err()
                .map(|failure| format!(" -> {}", failure.reason))
                .unwrap_or_default();
            writeln!(self.text, "  {action:?}{failed}").expect("text");
            let (record, events) = complete(&self.record, action, &outcome, self.now);
            self.record = record;
            for event in events {
                self.text.push_str(&line_of(&event));
            }
            if outcome.is_err() {
                break;
            }
        }
        if let Some(at) = self
            .record
            .report
            .failures
            .retry_at
            .filter(|at| *at > self.now)
        {
            writeln!(self.text, "  not again before {} ms", at.0).expect("text");
        }
        if planned.gone {
            writeln!(self.text, "  the object may go").expect("text");
        }
        self.conditions();
    }

    fn conditions(&mut self) {
        for condition in &self.record.report.conditions {
            let (kind, status) = (&condition.kind, condition.status.as_str());
            writeln!(
                self.text,
                "  {kind}={status} {} {}",
                condition.reason, condition.message
            )
            .expect("text");
        }
    }

    fn bring_up(&mut self) {
        self.note("accepted");
        self.round(done);
        self.note("the VMM is configured");
        self.vmm(MachineState::Configured);
        self.round(done);
        self.note("the guest runs");
        self.vmm(MachineState::Running);
        let all = [
            Holding::Taps,
            Holding::Sandbox,
            Holding::Disks,
            Holding::RunDir,
        ];
        self.seen.holdings = Observation::Present(BTreeSet::from(all));
        self.round(done);
    }

    /// Asks for something, and plans.
    fn ask(&mut self, asked: Order) {
        match order(&self.record, asked, self.now) {
            Ok(orders) => {
                self.note(&format!("asked to {asked:?}"));
                self.record.orders = orders;
            }
            Err(misfit) => self.note(&format!("asked to {asked:?}, which is refused: {misfit}")),
        }
        self.round(done);
    }

    /// The node orders it to end.
    fn order_end(&mut self, cause: StopCause, grace: i64) {
        self.note(&format!("ordered to end within {grace} s: {cause:?}"));
        let grace = Millis::from_secs(grace);
        let orders = order_stop(&self.record, grace, cause, self.now);
        self.record.orders = orders.expect("it has not ended");
        self.round(done);
    }

    fn delete(&mut self, grace: i64) {
        self.note(&format!("deleted with {grace} s of grace"));
        self.wanted.deletion = Some(Deletion {
            requested_at: self.now,
            grace: Millis::from_secs(grace),
        });
        self.round(done);
    }
}

fn line_of(event: &PlanEvent) -> String {
    format!(
        "  event {} {}: {}\n",
        event.kind.as_str(),
        event.reason,
        event.message
    )
}

fn identity() -> VmmIdentity {
    VmmIdentity {
        boot_id: BootId(String::from("boot-1")),
        pid: 42,
        start_time_ticks: 7,
    }
}

fn done(action: &Action) -> Result<Completed, Failure> {
    match action {
        Action::StartVmm { .. } => Ok(Completed::Started(identity())),
        _ => Ok(Completed::Done),
    }
}

#[test]
fn a_guest_runs_and_powers_itself_off() {
    let mut story = Story::new();
    story.wanted.admitted.push(AdmittedCondition {
        kind: String::from("DevicesSubstituted"),
        status: ConditionStatus::True,
        reason: String::from("ProvidedAsVirtio"),
        message: String::from("disk root: sata is provided as virtio"),
    });
    story.bring_up();
    story.note("nothing changes");
    story.wait(60);
    story.round(done);
    story.note("the agent could not ask");
    story.seen.vmms = Observation::Unknown {
        why: String::from("/proc is not readable"),
        since: story.now,
    };
    story.round(done);
    story.note("the guest powered itself off");
    story.exit(ExitReason::GuestPoweroff);
    story.round(done);
    story.note("what only a VMM needs was released");
    story.seen.holdings = Observation::Present(BTreeSet::from([Holding::Disks, Holding::RunDir]));
    story.round(done);
    story.delete(30);
    story.seen.holdings = Observation::Absent;
    story.note("everything was released");
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_vmi_that_finds_no_room_says_so_once_and_starts_when_there_is_some() {
    let mut story = Story::new();
    story.note("the node is full");
    story.wanted.reservation = Reservation::Waits {
        why: String::from("wants 64Gi of memory; node1 has 2Gi free"),
    };
    story.round(done);
    story.note("a little less full");
    story.wait(30);
    story.wanted.reservation = Reservation::Waits {
        why: String::from("wants 64Gi of memory; node1 has 32Gi free"),
    };
    story.round(done);
    story.note("there is room");
    story.wait(30);
    story.wanted.reservation = Reservation::default();
    story.round(done);
    story.note("the agent is another, and has taken the room for somebody else");
    story.vmm(MachineState::Configured);
    story.wanted.reservation = Reservation::Waits {
        why: String::from("wants 64Gi"),
    };
    story.round(done);
    story.vmm(MachineState::Running);
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_stubborn_guest_is_deleted_by_button_then_command_then_signal() {
    let mut story = Story::new();
    story.bring_up();
    story.delete(30);
    story.note("29 s later");
    story.wait(29);
    story.round(done);
    story.note("the grace period is over");
    story.wait(1);
    story.round(done);
    story.note("5 s later the VMM is still there");
    story.wait(5);
    story.round(done);
    story.note("it is gone and left no exit record");
    story.seen.vmms = Observation::Absent;
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_vmm_that_got_its_order_late_has_its_time_to_end() {
    let mut story = Story::new();
    story.bring_up();
    story.wanted.deletion = Some(Deletion {
        requested_at: story.now,
        grace: Millis(0),
    });
    let planned = plan(&story.wanted, &story.record, &story.seen, story.now);
    let [stop @ Action::StopVmm { .. }] = &planned.actions[..] else {
        panic!("{:?}", planned.actions);
    };
    // Others ended before it for so long.
    story.wait(60);
    let (record, _) = complete(&planned.record, stop, &done(stop), story.now);
    story.record = record;
    let is_killed = |story: &Story| {
        let planned = plan(&story.wanted, &story.record, &story.seen, story.now);
        matches!(planned.actions[..], [Action::KillVmm { .. }])
    };
    story.wait(4);
    assert!(!is_killed(&story));
    story.wait(1);
    assert!(is_killed(&story));
}

#[test]
fn a_vmm_that_was_never_ordered_to_end_is_ordered_and_not_killed() {
    let mut story = Story::new();
    story.bring_up();
    story.wanted.deletion = Some(Deletion {
        requested_at: story.now,
        grace: Millis(0),
    });
    // The agent was stopped while the order waited for its turn: only what was planned is stored.
    let planned = plan(&story.wanted, &story.record, &story.seen, story.now);
    story.record = planned.record;
    story.wait(60);
    let first = |story: &Story| {
        let planned = plan(&story.wanted, &story.record, &story.seen, story.now);
        planned.actions.into_iter().next()
    };
    let ordered = first(&story).filter(|action| matches!(action, Action::StopVmm { .. }));
    let ordered = ordered.expect("it takes orders");
    // One that cannot be given the order is killed in its time likewise.
    let failed = Err(Failure {
        class: FailureClass::Retry,
        reason: String::from("VmmNotAnswering"),
        message: String::from("no answer"),
    });
    (story.record, _) = complete(&story.record, &ordered, &failed, story.now);
    story.wait(4);
    assert!(matches!(first(&story), Some(Action::StopVmm { .. })));
    story.wait(1);
    assert!(matches!(first(&story), Some(Action::KillVmm { .. })));
}

#[test]
fn a_missing_kernel_is_waited_for_and_a_bad_one_ends_the_vmi() {
    let mut story = Story::new();
    let fails = |class| {
        move |action: &Action| match action {
            Action::EnsureKernel => Err(Failure {
                class,
                reason: String::from("KernelNotFound"),
                message: String::from("/var/lib/kvmlet/images/k/vmlinuz is missing"),
            }),
            other => done(other),
        }
    };
    for pause in [0, 1, 1, 2] {
        story.note(&format!("{pause} s later"));
        story.wait(pause);
        story.round(fails(FailureClass::Retry));
    }
    story.note("much later, and it is no kernel");
    story.wait(400);
    story.round(fails(FailureClass::Fatal));
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_start_waits_for_an_operation_and_a_hung_one_fails_nothing() {
    let mut story = Story::new();
    let begun = |action: &Action| match action {
        Action::EnsureDisks => Ok(Completed::Begun),
        other => done(other),
    };
    story.note("an image has to be pulled");
    story.round(begun);
    let pulls = |done_bytes| {
        Observation::Present(OperationObserved {
            work: Work::Disks,
            state: OperationState::Running {
                since: Timestamp(0),
                progress: Some(Progress {
                    reason: String::from("Pulling"),
                    what: String::from("Pulling image \"debian:12\""),
                    done_bytes,
                    total_bytes: 100 << 20,
                    bytes_per_second: 10 << 20,
                }),
            },
        })
    };
    for (seconds, mebibytes) in [(1, 10), (1, 20), (2, 40)] {
        story.note(&format!("{seconds} s later"));
        story.wait(seconds);
        story.seen.operation = pulls(mebibytes << 20);
        story.round(done);
    }
    story.note("the file system of the next disk does not answer");
    story.wait(5);
    story.seen.operation = Observation::Unknown {
        why: String::from("/srv/nfs/data.img: its file system does not answer"),
        since: story.now,
    };
    story.round(done);
    story.note("an hour later");
    story.wait(3600);
    story.round(done);
    story.note("it answers again, and the disks are there");
    story.seen.operation = Observation::Present(OperationObserved {
        work: Work::Disks,
        state: OperationState::Done,
    });
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn whoever_is_deleted_during_an_operation_is_gone_at_once() {
    let mut story = Story::new();
    story.note("the machine is put together, and a disk does not answer");
    story.round(|action| match action {
        Action::ConfigureVmm { .. } => Ok(Completed::Begun),
        other => done(other),
    });
    story.vmm(MachineState::Unconfigured);
    story.seen.operation = Observation::Unknown {
        why: String::from("/srv/nfs/data.img: its file system does not answer"),
        since: story.now,
    };
    story.round(done);
    story.delete(30);
    story.note("nothing is under way any more");
    story.seen.operation = Observation::Absent;
    story.wait(1);
    story.round(done);
    story.seen.vmms = Observation::Absent;
    story.seen.holdings = Observation::Present(BTreeSet::from([Holding::RunDir]));
    story.note("its VMM is gone");
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_guest_that_ran_before_the_node_was_restarted_never_runs_again() {
    let mut story = Story::new();
    story.bring_up();
    story.note("the node was restarted");
    story.seen.boot_id = Observation::Present(BootId(String::from("boot-2")));
    story.seen.vmms = Observation::Absent;
    story.seen.holdings = Observation::Present(BTreeSet::from([Holding::Disks]));
    story.round(done);
    story.note("a minute later");
    story.wait(60);
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_vmi_that_never_ran_is_started_after_the_node_was_restarted() {
    let mut story = Story::new();
    story.note("accepted; power is cut while the VMM is started");
    story.round(done);
    story.note("the node was restarted");
    story.seen.boot_id = Observation::Present(BootId(String::from("boot-2")));
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn vmms_that_die_before_their_guest_runs_end_the_vmi_after_five() {
    let mut story = Story::new();
    for attempt in 1..=5 {
        story.note(&format!("attempt {attempt}"));
        story.wait(400);
        story.round(done);
        story.note("the VMM ended");
        story.exit(ExitReason::ConfigureFailed);
        story.round(done);
        story.seen.exit = Observation::Absent;
    }
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_vmm_that_was_killed_by_a_stranger_ends_the_vmi() {
    let mut story = Story::new();
    story.bring_up();
    story.note("the VMM is gone");
    story.seen.vmms = Observation::Absent;
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_guest_whose_vmm_the_kernel_killed_for_want_of_memory_has_failed_for_it() {
    let mut story = Story::new();
    story.bring_up();
    story.note("the host says that the kernel killed the VMM");
    story.exit(ExitReason::OomKilled);
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_guest_starts_paused_goes_on_is_paused_and_goes_on_again() {
    let mut story = Story::new();
    story.record.orders = Orders::at_start(true);
    story.note("accepted");
    story.round(done);
    story.note("the VMM has no machine yet");
    story.vmm(MachineState::Unconfigured);
    story.ask(Order::Unpause);
    story.note("the VMM is configured");
    story.vmm(MachineState::Configured);
    story.round(done);
    story.note("a minute later");
    story.wait(60);
    story.round(done);
    story.ask(Order::Pause);
    story.ask(Order::SoftReboot);
    story.ask(Order::Unpause);
    story.note("the guest runs");
    story.vmm(MachineState::Running);
    story.round(done);
    story.ask(Order::Unpause);
    story.ask(Order::Pause);
    story.note("the guest is held");
    story.machine(MachineState::Paused, Some(PauseObserved::Requested));
    story.round(done);
    story.note("somebody resumed it behind the agent's back");
    story.vmm(MachineState::Running);
    story.round(done);
    story.machine(MachineState::Paused, Some(PauseObserved::Requested));
    story.ask(Order::Unpause);
    story.note("the guest goes on");
    story.vmm(MachineState::Running);
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_guest_whose_disk_fails_waits_until_it_is_unpaused() {
    let mut story = Story::new();
    story.bring_up();
    let failed = || {
        Some(PauseObserved::IoError {
            detail: String::from("disk 00:03.0: no space left on device"),
        })
    };
    story.note("its disk fails");
    story.machine(MachineState::Paused, failed());
    story.round(done);
    story.note("a minute later");
    story.wait(60);
    story.round(done);
    story.ask(Order::Pause);
    story.ask(Order::Unpause);
    story.note("its disk fails again");
    story.round(done);
    story.ask(Order::Unpause);
    story.note("the guest goes on");
    story.vmm(MachineState::Running);
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_disk_whose_sync_failed_is_reported_until_a_new_vmm_runs_the_guest() {
    let mut story = Story::new();
    story.bring_up();
    let address = PciAddress { bus: 0, device: 1 };
    story
        .record
        .allocations
        .pci
        .disks
        .insert(String::from("root"), address);
    story.note("the node fails to sync its disk");
    story.vmm(MachineState::Running);
    let Observation::Present(vmms) = &mut story.seen.vmms else {
        panic!("no VMM");
    };
    let Observation::Present(machine) = &mut vmms[0].machine else {
        panic!("no machine");
    };
    machine.sync_failures.push(SyncFailure {
        store: DurableStore::Disk { bus: 0, device: 1 },
        error: String::from("Input/output error"),
    });
    story.round(done);
    story.note("its VMM falls silent");
    let Observation::Present(vmms) = &mut story.seen.vmms else {
        panic!("no VMM");
    };
    vmms[0].machine = Observation::Unknown {
        why: String::from("no answer"),
        since: story.now,
    };
    story.round(done);
    story.note("it answers, and its disk is well: it is another VMM");
    story.vmm(MachineState::Running);
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_variable_store_whose_sync_failed_is_reported_as_disks_are() {
    let mut story = Story::new();
    story.bring_up();
    story.note("the node fails to sync the variable store");
    story.vmm(MachineState::Running);
    let Observation::Present(vmms) = &mut story.seen.vmms else {
        panic!("no VMM");
    };
    let Observation::Present(machine) = &mut vmms[0].machine else {
        panic!("no machine");
    };
    machine.sync_failures.push(SyncFailure {
        store: DurableStore::Variables,
        error: String::from("Input/output error"),
    });
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_paused_guest_that_is_deleted_goes_on_to_shut_itself_down() {
    let mut story = Story::new();
    story.bring_up();
    story.ask(Order::Pause);
    story.machine(MachineState::Paused, Some(PauseObserved::Requested));
    story.delete(30);
    story.note("the guest goes on");
    story.vmm(MachineState::Running);
    story.round(done);
    story.note("the guest powered itself off");
    story.exit(ExitReason::GuestPoweroff);
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_stopped_guest_ends_and_its_object_stays() {
    let mut story = Story::new();
    story.bring_up();
    let grace = Millis::from_secs(30);
    story.ask(Order::Stop { grace });
    story.ask(Order::Pause);
    story.wait(10);
    story.note("10 s later, with less time");
    let grace = Millis::from_secs(5);
    story.ask(Order::Stop { grace });
    story.note("5 s later");
    story.wait(5);
    story.round(done);
    story.note("the guest was ended");
    story.exit(ExitReason::Stopped);
    story.round(done);
    story.note("what only a VMM needs was released");
    story.seen.holdings = Observation::Present(BTreeSet::from([Holding::Disks, Holding::RunDir]));
    story.round(done);
    let grace = Millis::from_secs(0);
    story.ask(Order::Stop { grace });
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_deletion_after_a_stop_gives_the_guest_what_it_asks_for_and_no_more_than_it_had() {
    // Stopped at 0 s with `stop`, deleted at 10 s with `delete`: when is the guest ended by force?
    for (stop, delete, ended_at) in [(30, 5, 15), (30, 30, 30), (60, 30, 40), (12, 30, 12)] {
        let mut story = Story::new();
        story.bring_up();
        let grace = Millis::from_secs(stop);
        story.ask(Order::Stop { grace });
        story.wait(10);
        story.delete(delete);
        let ends = |story: &mut Story| {
            plan(&story.wanted, &story.record, &story.seen, story.now)
                .actions
                .iter()
                .any(|action| matches!(action, Action::StopVmm { .. }))
        };
        story.now = Timestamp(ended_at * 1000 - 1);
        assert!(!ends(&mut story), "{stop} {delete}");
        story.now = Timestamp(ended_at * 1000);
        assert!(ends(&mut story), "{stop} {delete}");
    }
}

#[test]
fn a_cordoned_node_starts_nothing_lets_guests_run_and_starts_what_waited_when_it_is_open() {
    let mut node = Maintenance::default();
    node.cordon(Timestamp(0));
    let mut story = Story::new();
    story.note("the node is cordoned");
    story.wanted.closed = node.closed("node1");
    story.round(done);
    story.note("a minute later");
    story.wait(60);
    story.round(done);
    story.note("it is open, and full");
    story.wanted.closed = None;
    story.wanted.reservation = Reservation::Waits {
        why: String::from("wants 64Gi of memory; node1 has 2Gi free"),
    };
    story.round(done);
    story.note("there is room");
    story.wanted.reservation = Reservation::default();
    story.bring_up();
    story.note("the node is cordoned again");
    story.wanted.closed = node.closed("node1");
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_guest_of_a_drained_node_ends_in_order_and_says_why() {
    let mut story = Story::new();
    story.bring_up();
    story.wanted.closed = Some(Closed::going_down("node1"));
    story.order_end(StopCause::Drain, 30);
    story.note("the grace period is over");
    story.wait(30);
    story.round(done);
    story.note("the guest was ended");
    story.exit(ExitReason::Stopped);
    story.round(done);
    insta::assert_snapshot!(story.text);
}

#[test]
fn a_guest_of_a_node_that_goes_down_has_succeeded_when_it_heeds_the_button_and_failed_when_not() {
    let mut story = Story::new();
    story.bring_up();
    story.order_end(StopCause::NodeShutdown, 30);
    story.note("the guest powered itself off");
    story.exit(ExitReason::GuestPoweroff);
    story.round(done);

    story.note("---- another, which does not heed it");
    let text = std::mem::take(&mut story.text);
    story = Story::new();
    story.bring_up();
    story.text = text;
    story.order_end(StopCause::NodeShutdown, 30);
    story.wait(30);
    story.round(done);
    story.exit(ExitReason::Stopped);
    story.round(done);

    story.note("---- another, whose node did not wait for it");
    let text = std::mem::take(&mut story.text);
    story = Story::new();
    story.bring_up();
    story.text = text;
    story.order_end(StopCause::NodeShutdown, 30);
    story.seen.boot_id = Observation::Present(BootId(String::from("boot-2")));
    story.seen.vmms = Observation::Absent;
    story.round(done);

    story.note("---- another, which crashes meanwhile");
    let text = std::mem::take(&mut story.text);
    story = Story::new();
    story.bring_up();
    story.text = text;
    story.order_end(StopCause::NodeShutdown, 30);
    story.exit(ExitReason::TripleFault);
    story.round(done);
    insta::assert_snapshot!(story.text);
}
