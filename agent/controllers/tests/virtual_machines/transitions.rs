//! What becomes of a machine whose guest runs, under each strategy and whatever happens: the table of
//! docs/virtual-machines.md, played to its end.

use agent_domain::RunStrategy;
use agent_objects::MachineRequest;

use crate::live::run;
use crate::stories::calm;
use crate::world::World;

use Event::{AgentRestarts, Asked, Ends, MachineDeleted, PowerCut, VmiDeleted};
use Outcome::{Down, Gone, Kept, New, Refused, Same};
use RunStrategy::{Always, Halted, Manual, Once, RerunOnFailure};

#[derive(Clone, Copy, Debug)]
enum Event {
    Asked(MachineRequest),
    /// The guest ends by itself, in this phase.
    Ends(&'static str),
    VmiDeleted,
    MachineDeleted,
    /// Or dies: nothing that it had in memory is left.
    AgentRestarts,
    /// The node comes back with another boot id, by which the VMI has failed before the controller first looks.
    PowerCut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The guest runs on.
    Same,
    /// Another VMI runs.
    New,
    /// The VMI is kept as it ended.
    Kept,
    /// There is no VMI.
    Down,
    /// The machine is gone, too.
    Gone,
    /// Nothing is done.
    Refused,
}

const EVENTS: [Event; 11] = [
    Asked(MachineRequest::Start { paused: false }),
    Asked(MachineRequest::Stop { grace: None }),
    Asked(MachineRequest::Stop { grace: Some(0) }),
    Asked(MachineRequest::Restart { grace: None }),
    Asked(MachineRequest::Restart { grace: Some(0) }),
    Ends("Failed"),
    Ends("Succeeded"),
    VmiDeleted,
    MachineDeleted,
    AgentRestarts,
    PowerCut,
];

/// Start, stop, stop by force, restart, restart by force, crash, clean shutdown, VMI deleted, machine deleted, agent
/// restarted, power cut. A halted machine has no guest.
const TABLE: [(RunStrategy, [Outcome; EVENTS.len()]); 5] = [
    (
        Always,
        [
            Refused, Down, Down, New, New, New, New, New, Gone, Same, New,
        ],
    ),
    (
        RerunOnFailure,
        [
            Refused, Down, Down, New, New, New, Down, Down, Gone, Same, New,
        ],
    ),
    (
        Manual,
        [
            Refused, Down, Down, New, New, Kept, Kept, Down, Gone, Same, Kept,
        ],
    ),
    (
        Once,
        [
            Refused, Down, Down, Refused, Refused, Kept, Kept, Down, Gone, Same, Kept,
        ],
    ),
    (
        Halted,
        [
            New, Refused, Refused, Refused, Refused, Down, Down, Down, Gone, Down, Down,
        ],
    ),
];

/// A machine whose guest runs, unless it is halted.
fn begin(strategy: RunStrategy) -> World {
    let mut world = calm(strategy);
    if strategy == Manual {
        assert!(world.request(MachineRequest::Start { paused: false }));
    }
    run(&mut world);
    assert_eq!(world.is_running(), strategy != Halted, "{strategy:?}");
    world
}

fn play(strategy: RunStrategy, event: Event) -> Outcome {
    let mut world = begin(strategy);
    let before = world.vmi().map(|vmi| vmi.metadata.uid);
    let writes = world.store.counts();
    let mut is_refused = false;
    match event {
        Asked(request) => is_refused = !world.request(request),
        Ends(how) => world.guest_ends(how),
        VmiDeleted => world.delete_vmi(),
        MachineDeleted => {
            world.delete_machine();
            assert_eq!(world.vmi(), None, "{strategy:?}");
            return Gone;
        }
        AgentRestarts => world.restart_agent(),
        PowerCut => {
            world.guest_ends("Failed");
            world.restart_agent();
        }
    }
    world.go_on();
    let after = world.vmi().map(|vmi| vmi.metadata.uid);
    if is_refused || matches!(event, AgentRestarts) {
        assert_eq!(world.store.counts(), writes, "{strategy:?} {event:?}");
    }
    if is_refused {
        return Refused;
    }
    match (after, world.is_running()) {
        (None, _) => Down,
        (after, true) if after == before => Same,
        (_, true) => New,
        (after, false) => {
            assert_eq!(after, before, "{strategy:?} {event:?}");
            Kept
        }
    }
}

#[test]
fn whatever_happens_to_a_machine_its_strategy_says_what_becomes_of_it() {
    for (strategy, wanted) in TABLE {
        for (event, wanted) in EVENTS.into_iter().zip(wanted) {
            assert_eq!(play(strategy, event), wanted, "{strategy:?} {event:?}");
        }
    }
}
