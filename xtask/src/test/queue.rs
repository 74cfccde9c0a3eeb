//! Which test is next: the longest of those that the CPUs have room for beside the tests that run.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::costs::Costs;
use super::list::Test;
use super::result::Cost;

/// How many tests run at once whatever they use.
const ALWAYS: usize = 2;

/// How many tests run at once at most: nodes have gigabytes of memory.
pub(super) const MOST: usize = 4;

/// CPUs of a test that never ran, of which nothing is known: an emulated node keeps one busy.
const UNKNOWN_CPUS: f64 = 1.0;

/// The tests of a run.
pub(super) struct Queue {
    state: Mutex<State>,
    ended: Condvar,
    /// CPUs of this machine.
    cpus: f64,
}

struct State {
    /// Longest first.
    waiting: Vec<(Test, Option<Cost>)>,
    running: usize,
    /// What those that run need together.
    cpus: f64,
}

/// A test that was begun. What it needs is free again when this is dropped.
pub(super) struct Begun<'queue> {
    pub(super) test: Test,
    queue: &'queue Queue,
    cpus: f64,
}

impl Queue {
    /// Longest first, by what they took in earlier runs. Of a test that never ran nothing is known: it is begun before all
    /// others, in the order given. The machine has so many `cpus`.
    pub(super) fn new(tests: Vec<Test>, costs: &Costs, cpus: f64) -> Self {
        let mut waiting: Vec<_> = tests
            .into_iter()
            .map(|test| {
                let cost = costs.of(&test.name());
                (test, cost)
            })
            .collect();
        let seconds = |cost: &Option<Cost>| cost.map_or(f64::INFINITY, |cost| cost.seconds);
        waiting.sort_by(|(_, left), (_, right)| seconds(right).total_cmp(&seconds(left)));
        Self {
            state: Mutex::new(State {
                waiting,
                running: 0,
                cpus: 0.0,
            }),
            ended: Condvar::new(),
            cpus,
        }
    }

    /// The next test; waits until one may begin. Nothing once all were begun.
    pub(super) fn next(&self) -> Option<Begun<'_>> {
        let mut state = self.state();
        loop {
            if state.waiting.is_empty() {
                return None;
            }
            if let Some((test, cpus)) = state.begin(self.cpus) {
                return Some(Begun {
                    test,
                    queue: self,
                    cpus,
                });
            }
            let woken = self.ended.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No holder of the lock can leave the counts half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the longest test that fits. Emulated nodes that have too little of the CPUs get stuck, so that beside two tests only
    /// one is begun that needs no more than they leave.
    fn begin(&mut self, all: f64) -> Option<(Test, f64)> {
        let needs = |cost: &Option<Cost>| cost.map_or(UNKNOWN_CPUS, Cost::cpus);
        let free = all - self.cpus;
        let mut waiting = self.waiting.iter();
        let place = waiting.position(|(_, cost)| {
            self.running < ALWAYS || (self.running < MOST && needs(cost) <= free)
        })?;
        let (test, cost) = self.waiting.remove(place);
        let cpus = needs(&cost);
        self.running += 1;
        self.cpus += cpus;
        Some((test, cpus))
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.running -= 1;
        state.cpus -= self.cpus;
        drop(state);
        // What is free now may be enough for several.
        self.queue.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::{TestOutcome, TestResult};
    use super::*;

    fn test(function: &str) -> Test {
        Test {
            package: "crate".to_owned(),
            target: "target".to_owned(),
            function: function.to_owned(),
            program: "/nothing".into(),
            directory: "/".into(),
            ignored: None,
        }
    }

    /// A queue for two CPUs, of tests that took so many seconds, and seconds of CPUs.
    fn queue(known: &[(&str, f64, f64)], tests: &[&str]) -> Queue {
        let mut costs = Costs::default();
        let results = known
            .iter()
            .map(|(function, seconds, cpu_seconds)| TestResult {
                name: test(function).name(),
                cost: Cost {
                    seconds: *seconds,
                    cpu_seconds: *cpu_seconds,
                },
                outcome: TestOutcome::Passed,
            });
        costs.learn(&results.collect::<Vec<_>>());
        let tests = tests.iter().map(|function| test(function));
        Queue::new(tests.collect(), &costs, 2.0)
    }

    #[test]
    fn what_takes_longest_is_begun_first_and_what_is_unknown_before_it() {
        let known = [
            ("short", 1.0, 1.0),
            ("busy", 90.0, 100.0),
            ("waits", 60.0, 3.0),
        ];
        let queue = queue(&known, &["short", "waits", "new", "busy"]);
        let order = std::iter::from_fn(|| Some(queue.next()?.test.function.clone()));
        assert_eq!(order.collect::<Vec<_>>(), ["new", "busy", "waits", "short"]);
    }

    #[test]
    fn two_tests_always_run_and_beside_them_what_fits_the_cpus_that_they_leave() {
        let known = [
            ("node", 90.0, 72.0),
            ("other-node", 80.0, 80.0),
            ("third-node", 70.0, 63.0),
            ("waits", 60.0, 3.0),
            ("also-waits", 50.0, 2.5),
            ("waits-too", 40.0, 2.0),
        ];
        let names = known.map(|(name, _, _)| name);
        let queue = queue(&known, &names);
        let mut begun: Vec<_> = (0..MOST).filter_map(|_| queue.next()).collect();
        let functions: Vec<_> = begun.iter().map(|begun| &begun.test.function).collect();
        assert_eq!(functions, ["node", "other-node", "waits", "also-waits"]);
        // Four run: nothing more is begun, though a twentieth of a CPU is enough for what is left of those that wait.
        assert!(queue.state().begin(queue.cpus).is_none());
        begun.remove(2);
        let next = queue.next().map(|begun| begun.test.function.clone());
        assert_eq!(next.as_deref(), Some("waits-too"));
        begun.clear();
        assert_eq!(
            queue.next().map(|begun| begun.test.function.clone()),
            Some("third-node".to_owned())
        );
        assert!(queue.next().is_none());
    }
}
