//! The planner's simulator: virtual time, one VMI, and a host that loses, duplicates, delays and fails
//! actions, while the agent is killed between any two effects, disks are full, the clock is set, VMMs fall
//! silent and the node loses its power.
//!
//! A run is a function of its seed. [`run`] goes through two seasons: in the first anything may go
//! wrong; in the second nothing does, and the world has to settle. The invariants are checked after
//! every single step; a violation names the seed, and `cargo xtask sim --seed N` runs it again with
//! every step printed.

mod agent;
pub mod cluster;
mod faults;
mod host;
mod invariants;
mod operation;
mod people;
mod random;
mod tally;
mod weather;
mod world;

pub use random::Random;
pub use tally::Tally;
pub use weather::Seen;

use agent_plan::{Millis, Timestamp};

use agent::Agent;
use invariants::Watcher;
use world::{EPOCH, STORM, World};

/// How long the world has to settle after that: longer than the longest back-off and grace period.
const CALM: Millis = Millis::from_secs(900);

/// Runs `count` schedules from the seed `first` on: what they came to, and the invariants that did not hold.
#[must_use]
pub fn campaign(first: u64, count: u64) -> (Tally, Vec<String>) {
    seeds(first, count, run, Tally::add)
}

/// Runs `count` seeds from `first` on, and adds up what they came to.
fn seeds<T: Default>(
    first: u64,
    count: u64,
    run: impl Fn(u64, bool) -> Result<T, String>,
    add: impl Fn(&mut T, &T),
) -> (T, Vec<String>) {
    let mut total = T::default();
    let mut violations = Vec::new();
    for seed in first..first.saturating_add(count) {
        match run(seed, false) {
            Ok(tally) => add(&mut total, &tally),
            Err(violation) => violations.push(violation),
        }
    }
    (total, violations)
}

/// Runs one seed.
///
/// # Errors
/// The invariant that was violated, with the seed and the time.
pub fn run(seed: u64, verbose: bool) -> Result<Tally, String> {
    let mut world = World::new(seed, verbose);
    let mut agent = Agent::default();
    let mut watcher = Watcher::default();
    let explain =
        |world: &World, what: String| format!("seed {seed}, {} ms: {what}", world.now.0 - EPOCH.0);
    let storm_ends = world.now.plus(STORM);
    while world.now < storm_ends {
        world.let_things_happen(true);
        agent.turn(&mut world, true);
        watcher
            .check(&world, &agent)
            .map_err(|what| explain(&world, what))?;
    }
    world.calm();
    let end = world.now.plus(CALM);
    while world.now < end {
        world.let_things_happen(false);
        agent.turn(&mut world, false);
        watcher
            .check(&world, &agent)
            .map_err(|what| explain(&world, what))?;
    }
    watcher
        .check_settled(&world, &agent)
        .map_err(|what| explain(&world, what))?;
    check_restart(&mut world, &mut agent).map_err(|what| explain(&world, what))?;
    Ok(world.tally())
}

/// In a settled world a restarted agent does nothing at all.
fn check_restart(world: &mut World, agent: &mut Agent) -> Result<(), String> {
    let effects = world.effects;
    agent.kill(world);
    for _ in 0..3 {
        world.now = Timestamp(world.now.0 + 1000);
        agent.turn(world, false);
    }
    if world.effects == effects {
        Ok(())
    } else {
        Err(String::from("a restart of the agent caused an action"))
    }
}
