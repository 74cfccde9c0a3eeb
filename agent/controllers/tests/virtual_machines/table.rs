//! The table of run strategies, as KubeVirt's documentation has it, state by state.

use agent_controllers::virtual_machine::{Guest, Request, Situation, Step, step};
use agent_domain::RunStrategy;

use Guest::{Absent, Failed, Live, Succeeded};
use RunStrategy::{Always, Halted, Manual, Once, RerunOnFailure};

const START: Step = Step::Start { paused: false };
const PAUSED: Step = Step::Start { paused: true };
const ASKED: Option<Request> = Some(Request::Start { paused: false });
const ASKED_PAUSED: Option<Request> = Some(Request::Start { paused: true });
const STOP: Option<Request> = Some(Request::Stop);

fn of(strategy: RunStrategy, guest: Guest, request: Option<Request>) -> Situation {
    Situation {
        strategy,
        guest,
        is_going: false,
        request,
        recorded: Some(strategy),
    }
}

#[test]
fn run_strategies_are_kubevirts() {
    use Step::{Rest, Stop, StopAndRerun, TurnOn};
    let rows = [
        // Strategy, then without a request: absent, live, succeeded, failed.
        (Always, None, [START, Rest, Stop, Stop]),
        (Always, STOP, [START, Stop, Stop, Stop]),
        (Always, ASKED_PAUSED, [PAUSED, Rest, Stop, Stop]),
        (RerunOnFailure, None, [Rest, Rest, Stop, StopAndRerun]),
        (RerunOnFailure, STOP, [Rest, Stop, Stop, Stop]),
        (RerunOnFailure, ASKED, [START, Rest, Stop, StopAndRerun]),
        (
            RerunOnFailure,
            ASKED_PAUSED,
            [PAUSED, Rest, Stop, StopAndRerun],
        ),
        (Manual, None, [Rest, Rest, Rest, Rest]),
        (Manual, STOP, [Rest, Stop, Stop, Stop]),
        (Manual, ASKED, [START, Rest, Rest, Rest]),
        (Manual, ASKED_PAUSED, [PAUSED, Rest, Rest, Rest]),
        (Halted, None, [Rest, Stop, Stop, Stop]),
        (Halted, STOP, [Rest, Stop, Stop, Stop]),
        (Halted, ASKED_PAUSED, [TurnOn, Stop, Stop, Stop]),
        (Once, None, [Rest, Rest, Rest, Rest]),
        (Once, STOP, [Rest, Rest, Rest, Rest]),
        (Once, ASKED, [Rest, Rest, Rest, Rest]),
    ];
    for (strategy, request, wanted) in rows {
        for (guest, wanted) in [Absent, Live, Succeeded, Failed].into_iter().zip(wanted) {
            let situation = of(strategy, guest, request);
            assert_eq!(step(situation), wanted, "{situation:?}");
        }
    }
}

#[test]
fn a_strategy_that_is_new_starts_the_machine_once() {
    for recorded in [None, Some(Halted), Some(Manual)] {
        for strategy in [Always, RerunOnFailure, Once] {
            let situation = Situation {
                recorded,
                ..of(strategy, Absent, None)
            };
            assert_eq!(step(situation), START, "{situation:?}");
        }
        for strategy in [Manual, Halted] {
            let situation = Situation {
                recorded,
                ..of(strategy, Absent, None)
            };
            assert_eq!(step(situation), Step::Rest, "{situation:?}");
        }
    }
}

#[test]
fn a_guest_that_fails_while_it_is_deleted_is_not_started_again() {
    let situation = Situation {
        is_going: true,
        ..of(RerunOnFailure, Failed, None)
    };
    assert_eq!(step(situation), Step::Stop);
}
