//! The planner against a host on its worst day.
//!
//! `cargo xtask soak sim` runs more seeds, `cargo xtask sim --seed S` one, and prints its every step.

use integration::sim::{campaign, cluster, run};

const RUNS: u64 = 2000;

#[test]
fn a_vmi_survives_a_host_that_loses_delays_and_repeats_and_an_agent_that_is_killed() {
    let (total, violations) = campaign(0, RUNS);
    assert!(
        violations.is_empty(),
        "{} of {RUNS} runs violated an invariant; `cargo xtask sim --seed S` shows one step by step:\n{}",
        violations.len(),
        violations[..violations.len().min(10)].join("\n"),
    );
    // The simulator is worth nothing if its storms are too mild or kill everything.
    assert!(total.kills > RUNS && total.reboots > 0, "{total:?}");
    let weather = total.weather;
    assert!(
        weather.full_stores > RUNS / 4
            && weather.full_disks > RUNS / 4
            && weather.clocks_set > RUNS / 4
            && weather.silences > RUNS / 4
            && weather.lost_cgroups > RUNS / 20
            && weather.downgrades > RUNS / 4,
        "{weather:?}"
    );
    assert!(
        total.running > RUNS / 20 && total.gone > RUNS / 4 && total.ended > RUNS / 20,
        "{total:?}"
    );
}

#[test]
fn a_seed_means_the_same_every_time() {
    for seed in 0..20 {
        assert_eq!(run(seed, false), run(seed, false));
        assert_eq!(cluster::run(seed, false), cluster::run(seed, false));
    }
}

#[test]
fn nothing_runs_twice_whatever_becomes_of_agents_nodes_network_and_control_plane() {
    let (total, violations) = cluster::campaign(0, RUNS);
    assert!(
        violations.is_empty(),
        "{} of {RUNS} runs violated an invariant; `cargo xtask sim --cluster --seed S` shows one step by step:\n{}",
        violations.len(),
        violations[..violations.len().min(10)].join("\n"),
    );
    assert!(
        total.kills > RUNS && total.cuts > RUNS / 4 && total.sessions > 5 * RUNS,
        "{total:?}"
    );
    assert!(
        total.placed > 2 * RUNS && total.made > 2 * RUNS && total.expired > RUNS / 4,
        "{total:?}"
    );
    assert!(
        total.stale > RUNS && total.disbelieved > RUNS / 10,
        "{total:?}"
    );
}
