//! What holds of every plan, whatever the world looks like.

use std::collections::BTreeSet;

use agent_plan::{
    Action, BootId, Closed, Completed, ConditionStatus, Deletion, Enforcement, ExitObserved,
    ExitReason, Holding, Launch, MachineObserved, MachineState, Millis, Observation, Observed,
    OperationObserved, OperationState, Orders, PauseObserved, Phase, ProbeResult, ProbeResults,
    Progress, Record, Reservation, ResourceDemand, StandsStill, StopCause, StopOrder, Timestamp,
    VmiId, VmmIdentity, VmmObserved, Wanted, Work, complete, plan,
};
use proptest::option;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp(1_000_000_000);

fn unknown<T>() -> Observation<T> {
    Observation::Unknown {
        why: String::from("no answer"),
        since: Timestamp(0),
    }
}

fn boot(number: u8) -> BootId {
    BootId(format!("boot-{number}"))
}

fn identity(boot_number: u8, pid: u32) -> VmmIdentity {
    VmmIdentity {
        boot_id: boot(boot_number),
        pid,
        start_time_ticks: 7,
    }
}

fn observation<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Observation<T>> {
    prop_oneof![
        1 => Just(unknown()),
        2 => Just(Observation::Absent),
        4 => value.prop_map(Observation::Present),
    ]
}

fn machine() -> impl Strategy<Value = MachineObserved> {
    let state = prop_oneof![
        Just(MachineState::Unconfigured),
        Just(MachineState::Configured),
        Just(MachineState::Running),
        Just(MachineState::Paused),
        Just(MachineState::Exited),
    ];
    let pause = prop_oneof![
        Just(PauseObserved::Requested),
        Just(PauseObserved::IoError {
            detail: String::from("a full disk"),
        }),
        Just(PauseObserved::DeviceBusy {
            detail: String::from("00:01.0"),
        }),
        Just(PauseObserved::Watchdog),
        Just(PauseObserved::Panicked),
    ];
    (state, pause).prop_map(|(state, pause)| MachineObserved {
        state,
        resets: 0,
        pause: (state == MachineState::Paused).then_some(pause),
        sync_failures: Vec::new(),
        links_down: None,
    })
}

fn orders() -> impl Strategy<Value = (Orders, u64)> {
    let stop = option::of((0_i64..100_000, prop_oneof![Just(0_i64), Just(30)]));
    let held = any::<(bool, bool)>();
    (held, 0_u64..2, option::of(Just(())), stop).prop_map(|(held, done, asked, stop)| {
        let orders = Orders {
            paused: held.0,
            lease_paused: held.1,
            unpauses: done + u64::from(asked.is_some()),
            stop: stop.map(|(ago, grace)| StopOrder {
                requested_at: Timestamp(NOW.0 - ago),
                grace: Millis::from_secs(grace),
                cause: StopCause::Drain,
            }),
            ..Orders::default()
        };
        (orders, done)
    })
}

fn vmm() -> impl Strategy<Value = VmmObserved> {
    (
        0_u64..4,
        100_u32..103,
        observation(machine()),
        any::<bool>(),
    )
        .prop_map(|(incarnation, pid, machine, enforced)| {
            let enforcement = if enforced {
                Enforcement::Enforced
            } else {
                Enforcement::NotEnforced {
                    why: String::from("no cgroup"),
                }
            };
            VmmObserved {
                incarnation,
                identity: identity(1, pid),
                machine,
                enforcement: Observation::Present(enforcement),
            }
        })
}

fn exit() -> impl Strategy<Value = ExitObserved> {
    prop_oneof![
        Just(ExitReason::GuestPoweroff),
        Just(ExitReason::Stopped),
        Just(ExitReason::KvmError),
        Just(ExitReason::ConfigureFailed),
        Just(ExitReason::OomKilled),
        Just(ExitReason::Other),
    ]
    .prop_map(|reason| ExitObserved {
        reason,
        detail: String::new(),
        at: NOW,
        uptime_ns: 5,
    })
}

fn holdings() -> impl Strategy<Value = BTreeSet<Holding>> {
    proptest::collection::btree_set(
        prop_oneof![
            Just(Holding::Taps),
            Just(Holding::Sandbox),
            Just(Holding::Disks),
            Just(Holding::RunDir)
        ],
        1..4,
    )
}

fn operation() -> impl Strategy<Value = OperationObserved> {
    let work = (0_u64..4).prop_flat_map(|incarnation| {
        prop_oneof![
            Just(Work::BootFiles),
            Just(Work::Disks),
            Just(Work::Machine { incarnation }),
            Just(Work::PowerButton { incarnation }),
        ]
    });
    let progress = option::of(Just(Progress {
        what: String::from("Pulling image \"a\""),
        done_bytes: 5,
        total_bytes: 10,
        ..Progress::default()
    }));
    (work, any::<bool>(), progress).prop_map(|(work, is_done, progress)| OperationObserved {
        work,
        state: if is_done {
            OperationState::Done
        } else {
            OperationState::Running {
                since: NOW,
                progress,
            }
        },
    })
}

fn observed() -> impl Strategy<Value = Observed> {
    (
        prop_oneof![1 => Just(unknown()), 6 => (1_u8..3).prop_map(|number| Observation::Present(boot(number)))],
        observation(proptest::collection::vec(vmm(), 1..3)),
        observation(exit()),
        observation(holdings()),
        observation((0_u64..3).prop_map(|at| StandsStill { words: "No bootable device.", at })),
        observation(operation()),
    )
        .prop_map(|(boot_id, vmms, exit, holdings, stands_still, operation)| Observed { boot_id, vmms, exit, holdings, stands_still, operation })
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let deletion = option::of((0_i64..100_000, prop_oneof![Just(0_i64), Just(30)]));
    (
        deletion,
        any::<bool>(),
        prop_oneof![4 => Just(granted()), 1 => Just(waits())],
        (option::of(probe_result()), option::of(probe_result())),
        prop_oneof![4 => Just(None), 1 => Just(Some(Closed::going_down("node1")))],
    )
        .prop_map(
            |(deletion, firmware, reservation, (liveness, readiness), closed)| Wanted {
                generation: 1,
                deletion: deletion.map(|(ago, grace)| Deletion {
                    requested_at: Timestamp(NOW.0 - ago),
                    grace: Millis::from_secs(grace),
                }),
                admitted: Vec::new(),
                pci: agent_plan::PciDemand::default(),
                links_down: BTreeSet::new(),
                firmware,
                reservation,
                probes: ProbeResults {
                    liveness,
                    readiness,
                    grace: Millis::from_secs(30),
                },
                closed,
            },
        )
}

fn probe_result() -> impl Strategy<Value = ProbeResult> {
    let why = String::from("no answer");
    prop_oneof![
        Just(ProbeResult::None),
        Just(ProbeResult::Succeeded),
        Just(ProbeResult::Failed { why })
    ]
}

fn granted() -> Reservation {
    Reservation::Granted(ResourceDemand {
        memory_bytes: 1 << 30,
        ..ResourceDemand::default()
    })
}

fn waits() -> Reservation {
    Reservation::Waits {
        why: String::from("wants 1Gi of memory"),
    }
}

fn record() -> impl Strategy<Value = Record> {
    let launch = (
        1_u8..3,
        option::of(100_u32..103),
        option::of(Just(NOW)),
        any::<bool>(),
    );
    (0_u64..3, option::of(launch), 0_u32..3, orders()).prop_map(
        |(incarnation, launch, vmm_deaths, (orders, unpauses_done))| {
            let id = VmiId {
                uid: String::from("u"),
                namespace: String::from("default"),
                name: String::from("web"),
            };
            let mut record = Record::new(id, Timestamp(0));
            record.report.failures.vmm_deaths = vmm_deaths;
            record.orders = orders;
            record.report.unpauses_done = unpauses_done;
            let launch = launch.map(|(boot_number, pid, boot_intended_at, seen_running)| {
                let boot_intended_at = boot_intended_at.filter(|_| pid.is_some());
                Launch {
                    boot_id: boot(boot_number),
                    intended_at: Timestamp(0),
                    identity: pid.map(|pid| identity(boot_number, pid)),
                    boot_intended_at,
                    running_at: boot_intended_at.filter(|_| seen_running),
                }
            });
            let launches = Some((incarnation, launch));
            record.launches = launches
                .into_iter()
                .filter(|(incarnation, _)| *incarnation > 0)
                .collect();
            record
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_destroyed_while_vmms_are_unknown(wanted in wanted(), record in record(), mut seen in observed()) {
        seen.vmms = unknown();
        let planned = plan(&wanted, &record, &seen, NOW);
        prop_assert!(planned.actions.iter().all(|action| !action.destroys()), "{:?}", planned.actions);
        prop_assert!(!planned.gone);
    }

    #[test]
    fn a_plan_and_what_comes_of_it_change_no_orders(wanted in wanted(), record in record(), seen in observed()) {
        let planned = plan(&wanted, &record, &seen, NOW);
        prop_assert_eq!(&planned.record.orders, &record.orders);
        for action in &planned.actions {
            let (after, _) = complete(&planned.record, action, &Ok(Completed::Done), NOW);
            prop_assert_eq!(&after.orders, &record.orders);
        }
    }

    #[test]
    fn no_operation_is_begun_beside_one_that_is_under_way(wanted in wanted(), record in record(), seen in observed()) {
        let is_under_way = match &seen.operation {
            Observation::Absent => false,
            Observation::Present(operation) => operation.state != OperationState::Done,
            Observation::Unknown { .. } => true,
        };
        let actions = plan(&wanted, &record, &seen, NOW).actions;
        let cancels = actions.iter().position(|action| *action == Action::CancelOperation);
        let begins = actions.iter().position(|action| action.work().is_some());
        match (begins, cancels) {
            (Some(begins), Some(cancels)) => prop_assert!(cancels < begins, "{:?}", actions),
            (Some(_), None) => prop_assert!(!is_under_way, "{:?}", actions),
            _ => {}
        }
    }

    #[test]
    fn an_operation_that_gets_no_answer_fails_nothing(mut wanted in wanted(), mut record in record(), mut seen in observed()) {
        (wanted.deletion, record.orders.stop) = (None, None);
        wanted.probes = ProbeResults::default();
        (seen.vmms, seen.exit) = (Observation::Absent, Observation::Absent);
        record.launches.give_up();
        seen.operation = unknown();
        let planned = plan(&wanted, &record, &seen, NOW);
        prop_assert_eq!(planned.actions, vec![]);
        prop_assert!(planned.record.report.end.is_none());
        prop_assert_eq!(planned.record.report.failures, record.report.failures);
        let condition = planned.record.report.conditions.iter().find(|it| it.kind == "Provisioning").unwrap();
        prop_assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::Unknown, "FileSystemNotAnswering"));
        prop_assert!(planned.wake_at.is_some());
    }

    #[test]
    fn whoever_is_deleted_waits_for_no_operation_but_the_press_of_the_button(mut wanted in wanted(), record in record(), mut seen in observed()) {
        wanted.deletion = Some(Deletion { requested_at: Timestamp(0), grace: Millis(0) });
        (seen.vmms, seen.exit) = (Observation::Absent, Observation::Absent);
        seen.boot_id = Observation::Present(boot(1));
        seen.operation = unknown();
        let planned = plan(&wanted, &record, &seen, NOW);
        prop_assert_eq!(planned.actions.first(), Some(&Action::CancelOperation));
        prop_assert!(planned.record.report.end.is_some());
    }

    #[test]
    fn a_closed_node_starts_no_vmm(mut wanted in wanted(), record in record(), seen in observed()) {
        wanted.closed = Some(Closed::going_down("node1"));
        let planned = plan(&wanted, &record, &seen, NOW);
        let starts = planned.actions.iter().any(|action| matches!(action, Action::StartVmm { .. }));
        prop_assert!(!starts, "{:?}", planned.actions);
    }

    #[test]
    fn a_guest_of_which_nothing_is_asked_and_runs_is_left_alone(mut record in record(), mut seen in observed()) {
        record.orders.paused = false;
        record.orders.lease_paused = false;
        record.orders.stop = None;
        let Some(launch) = record.launches.present().cloned().filter(|launch| launch.identity.is_some()) else { return Ok(()) };
        let Some(identity) = launch.identity else { return Ok(()) };
        seen.boot_id = Observation::Present(launch.boot_id);
        seen.exit = Observation::Absent;
        seen.operation = Observation::Absent;
        let ours = VmmObserved {
            incarnation: record.launches.incarnation(),
            identity: identity.clone(),
            machine: Observation::Present(MachineObserved { state: MachineState::Running, resets: 0, pause: None, sync_failures: Vec::new(), links_down: None }),
            enforcement: Observation::Absent,
        };
        seen.vmms = Observation::Present(vec![ours]);
        let planned = plan(&Wanted::default(), &record, &seen, NOW);
        prop_assert_eq!(planned.actions, vec![]);
        prop_assert_eq!(planned.record.phase(), Phase::Running);
        prop_assert!(planned.record.report.end.is_none());
    }

    #[test]
    fn no_vcpu_starts_to_run_against_an_order_to_pause(record in record(), seen in observed()) {
        if record.orders.hold() && record.orders.stop.is_none() {
            let planned = plan(&Wanted::default(), &record, &seen, NOW);
            for action in &planned.actions {
                let runs = matches!(action, Action::BootVmm { .. } | Action::ResumeVmm { .. });
                prop_assert!(!runs, "{:?}", action);
            }
        }
    }

    #[test]
    fn a_guest_that_paused_of_itself_goes_on_only_when_it_is_unpaused(record in record(), seen in observed()) {
        let of_itself = seen.vmms.present().into_iter().flatten().all(|vmm| {
            vmm.machine.present().is_some_and(|machine| {
                matches!(machine.pause, Some(PauseObserved::IoError { .. } | PauseObserved::DeviceBusy { .. } | PauseObserved::Watchdog | PauseObserved::Panicked))
            })
        });
        let without_orders = record.orders.unpauses == record.report.unpauses_done && record.orders.stop.is_none();
        if of_itself && without_orders {
            let planned = plan(&Wanted::default(), &record, &seen, NOW);
            prop_assert!(!planned.actions.iter().any(|action| matches!(action, Action::ResumeVmm { .. })), "{:?}", planned.actions);
        }
    }

    #[test]
    fn the_planner_never_changes_orders(wanted in wanted(), record in record(), seen in observed()) {
        prop_assert_eq!(plan(&wanted, &record, &seen, NOW).record.orders, record.orders);
    }

    #[test]
    fn a_start_needs_proof_that_no_vmm_lives(wanted in wanted(), record in record(), seen in observed()) {
        let planned = plan(&wanted, &record, &seen, NOW);
        if planned.actions.iter().any(|action| matches!(action, Action::StartVmm { .. })) {
            prop_assert!(seen.vmms.is_absent());
            prop_assert!(!record.may_have_run());
            prop_assert!(planned.record.launches.incarnation() > record.launches.incarnation());
        }
    }

    #[test]
    fn a_start_needs_room_and_what_runs_never_asks_for_it(mut wanted in wanted(), record in record(), seen in observed()) {
        wanted.reservation = waits();
        let planned = plan(&wanted, &record, &seen, NOW);
        let starts = planned.actions.iter().any(|action| matches!(action, Action::StartVmm { .. }));
        prop_assert!(!starts, "{:?}", planned.actions);
        if record.launches.present()
.is_some() && planned.record.launches.present()
.is_some() {
            let with = Wanted { reservation: granted(), ..wanted };
            prop_assert_eq!(planned.actions, plan(&with, &record, &seen, NOW).actions);
        }
    }

    #[test]
    fn room_is_kept_until_the_vmm_is_gone(wanted in wanted(), mut record in record(), seen in observed()) {
        record.allocations.reservation = Some(ResourceDemand::default());
        let planned = plan(&wanted, &record, &seen, NOW);
        if planned.record.allocations.reservation.is_none() {
            prop_assert!(planned.record.report.end.is_some() && seen.vmms.is_absent());
        }
    }

    #[test]
    fn a_guest_that_may_have_run_is_never_started_or_booted_by_another_incarnation(
        wanted in wanted(), record in record(), seen in observed()
    ) {
        if record.may_have_run() {
            let planned = plan(&wanted, &record, &seen, NOW);
            for action in &planned.actions {
                prop_assert!(!matches!(action, Action::StartVmm { .. }), "{:?}", action);
            }
        }
    }

    #[test]
    fn a_kill_names_a_process_that_was_seen(wanted in wanted(), record in record(), seen in observed()) {
        for action in plan(&wanted, &record, &seen, NOW).actions {
            if let Action::KillVmm { identity, .. } = action {
                let known = seen.vmms.present().is_some_and(|vmms| vmms.iter().any(|vmm| vmm.identity == identity));
                prop_assert!(known);
            }
        }
    }

    #[test]
    fn planning_twice_from_the_same_observation_gives_the_same_actions(
        wanted in wanted(), record in record(), seen in observed()
    ) {
        let once = plan(&wanted, &record, &seen, NOW);
        let starts = once.actions.iter().any(|action| matches!(action, Action::StartVmm { .. }));
        let twice = plan(&wanted, &once.record, &seen, NOW);
        if starts && !seen.exit.is_absent() {
            // An exit record of an incarnation that was only just meant to start is no consistent world.
        } else if starts {
            // The intent was recorded and nothing came of it: the same again, under a new incarnation.
            prop_assert_eq!(once.actions.len(), twice.actions.len());
            prop_assert_eq!(twice.record.launches.incarnation(), once.record.launches.incarnation() + 1);
        } else if once.record.launches.present()
.is_some() == record.launches.present()
.is_some() && once.record.report.end == record.report.end {
            prop_assert_eq!(&once.actions, &twice.actions);
            prop_assert_eq!(once.record, twice.record);
            prop_assert_eq!(twice.events, vec![]);
        }
    }

    #[test]
    fn a_final_phase_never_changes(
        first in wanted(), record in record(), observations in proptest::collection::vec((wanted(), observed()), 1..8), seen in observed()
    ) {
        let mut record = plan(&first, &record, &seen, NOW).record;
        let mut ended = None;
        for (number, (wanted, seen)) in observations.iter().enumerate() {
            let now = NOW.plus(Millis::from_secs(i64::try_from(number).unwrap_or(0) * 7));
            record = plan(wanted, &record, seen, now).record;
            if let Some((phase, reason)) = &ended {
                prop_assert_eq!(record.phase(), *phase);
                prop_assert_eq!(record.report.end.as_ref().map(|end| &end.reason), Some(reason));
            }
            ended = record.report.end.as_ref().map(|end| (end.phase, end.reason.clone()));
        }
    }

    #[test]
    fn phases_only_go_forward(wanted in wanted(), record in record(), seen in observed()) {
        let planned = plan(&wanted, &record, &seen, NOW);
        prop_assert!(planned.record.report.phases.windows(2).all(|pair| pair[0].phase < pair[1].phase));
    }

    #[test]
    fn an_object_goes_only_when_nothing_is_left(wanted in wanted(), record in record(), seen in observed()) {
        let planned = plan(&wanted, &record, &seen, NOW);
        if planned.gone {
            prop_assert!(wanted.deletion.is_some());
            prop_assert!(seen.vmms.is_absent() && seen.holdings.is_absent());
        }
    }

    #[test]
    fn an_unfinished_plan_without_actions_wakes_up_again(wanted in wanted(), record in record(), seen in observed()) {
        let planned = plan(&wanted, &record, &seen, NOW);
        let settled = planned.record.report.end.is_some()
            || planned.record.launches.present().is_some_and(|launch| launch.running_at.is_some());
        if planned.actions.is_empty() && !planned.gone && !settled {
            prop_assert!(planned.wake_at.is_some_and(|at| at > NOW), "{planned:?}");
        }
    }
}
