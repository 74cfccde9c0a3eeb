//! The controller dies before each of its writes in turn, once in each schedule, and begins anew with nothing in memory.

use agent_domain::RunStrategy;
use agent_objects::MachineRequest;

use crate::world::World;

const START: MachineRequest = MachineRequest::Start { paused: false };
const STOP: MachineRequest = MachineRequest::Stop { grace: None };
const RESTART: MachineRequest = MachineRequest::Restart { grace: None };

/// What happens to a machine while its controller dies.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// It is made.
    Made,
    /// Somebody asks for something.
    Asked(MachineRequest),
    /// Its guest crashes.
    Crashes,
    /// It is deleted.
    Deleted,
}

/// Strategy, what was asked for and done before, what happens, and how many VMIs are made of it. A VMI too many that
/// nobody asked for is found by the world itself.
const STORIES: [(RunStrategy, Option<MachineRequest>, Happens, usize); 13] = [
    (RunStrategy::Always, None, Happens::Made, 1),
    (RunStrategy::RerunOnFailure, None, Happens::Made, 1),
    (RunStrategy::Once, None, Happens::Made, 1),
    (RunStrategy::Halted, None, Happens::Asked(START), 1),
    (RunStrategy::Manual, None, Happens::Asked(START), 1),
    (RunStrategy::Manual, Some(START), Happens::Asked(STOP), 0),
    (RunStrategy::Manual, Some(START), Happens::Asked(RESTART), 1),
    (RunStrategy::Always, None, Happens::Asked(STOP), 0),
    (RunStrategy::Always, None, Happens::Asked(RESTART), 1),
    (RunStrategy::Always, None, Happens::Crashes, 1),
    (RunStrategy::RerunOnFailure, None, Happens::Crashes, 1),
    (RunStrategy::Always, None, Happens::Deleted, 0),
    (RunStrategy::Manual, Some(START), Happens::Deleted, 0),
];

/// A machine at the begin of its story.
fn begin(seed: u64, strategy: RunStrategy, before: Option<MachineRequest>, is_made: bool) -> World {
    let mut world = World::new(seed, strategy);
    world.store.end_faults();
    if !is_made {
        world.go_on();
    }
    if let Some(request) = before {
        assert!(world.request(request), "{strategy:?} refuses {request:?}");
        world.go_on();
        assert!(world.is_running());
    }
    world
}

/// Plays a story whose controller dies before its write of this number; false when it has not so many.
fn play(
    seed: u64,
    story: (RunStrategy, Option<MachineRequest>, Happens, usize),
    write: usize,
) -> bool {
    let (strategy, before, happens, starts) = story;
    let mut world = begin(seed, strategy, before, matches!(happens, Happens::Made));
    let already = world.starts;
    world.store.die_after(write);
    match happens {
        Happens::Made => {}
        Happens::Asked(request) => {
            assert!(world.request(request), "{strategy:?} refuses {request:?}")
        }
        Happens::Crashes => world.guest_ends("Failed"),
        Happens::Deleted => {
            world.delete_machine();
            return !world.store.is_to_die();
        }
    }
    world.go_on();
    let has_died = !world.store.is_to_die();
    world.settle();
    world.assert_settled();
    let is_up = !matches!(happens, Happens::Asked(MachineRequest::Stop { .. }));
    let context = format!("{story:?}, killed before write {write}, seed {seed}");
    assert_eq!(world.is_running(), is_up, "{context}");
    assert_eq!(world.starts - already, starts, "{context}");
    has_died
}

#[test]
fn a_machine_does_what_was_asked_once_whichever_write_its_controller_dies_before() {
    // A store of an odd seed has no transactions.
    for seed in [1, 2] {
        for story in STORIES {
            let deaths = (0..).take_while(|write| play(seed, story, *write)).count();
            // Something has to be written, and nobody writes without end.
            assert!((1..20).contains(&deaths), "{story:?}: {deaths} writes");
        }
    }
}
