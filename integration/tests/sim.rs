//! The planner against a host on its worst day.
//!
//! `KVMLET_SIM_RUNS=N` runs N seeds instead of 300, `KVMLET_SIM_SEED=S` runs one and prints every step.

use integration::sim::{Tally, run};

const RUNS: u64 = 300;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn a_vmi_survives_a_host_that_loses_delays_and_repeats_and_an_agent_that_is_killed() {
    if let Some(seed) = number("KVMLET_SIM_SEED") {
        match run(seed, true) {
            Ok(tally) => println!("{tally:?}"),
            Err(violation) => panic!("{violation}"),
        }
        return;
    }
    let runs = number("KVMLET_SIM_RUNS").unwrap_or(RUNS);
    let mut total = Tally::default();
    let mut violations = Vec::new();
    for seed in 0..runs {
        match run(seed, false) {
            Ok(tally) => total.add(&tally),
            Err(violation) => violations.push(violation),
        }
    }
    println!("{runs} runs: {total:?}");
    assert!(
        violations.is_empty(),
        "{} of {runs} runs violated an invariant; KVMLET_SIM_SEED=<seed> shows one step by step:\n{}",
        violations.len(),
        violations[..violations.len().min(10)].join("\n"),
    );
    // The simulator is worth nothing if its storms are too mild or kill everything.
    if runs >= RUNS {
        assert!(total.kills > runs && total.reboots > 0, "{total:?}");
        assert!(
            total.running > runs / 20 && total.gone > runs / 4 && total.ended > runs / 20,
            "{total:?}"
        );
    }
}

#[test]
fn a_seed_means_the_same_every_time() {
    for seed in 0..20 {
        assert_eq!(run(seed, false), run(seed, false));
    }
}
