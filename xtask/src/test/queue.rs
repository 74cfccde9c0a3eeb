//! Which test is next: the longest first, and one that mostly waits where CPUs have nothing to do.

use std::sync::{Mutex, PoisonError};

use super::costs::Costs;
use super::list::Test;
use super::result::Cost;

/// A test that needs more of a CPU than this is not begun beside two others: emulated nodes that have too little of the CPUs get
/// stuck.
const WAITING_CPUS: f64 = 0.25;

/// The tests of a run that were not begun yet.
pub(super) struct Queue(Mutex<Vec<(Test, Option<Cost>)>>);

impl Queue {
    /// Longest first, by what they took in earlier runs. Of a test that never ran nothing is known: it is begun before all
    /// others, in the order given.
    pub(super) fn new(tests: Vec<Test>, costs: &Costs) -> Self {
        let mut tests: Vec<_> = tests
            .into_iter()
            .map(|test| {
                let cost = costs.of(&test.name());
                (test, cost)
            })
            .collect();
        let seconds = |cost: &Option<Cost>| cost.map_or(f64::INFINITY, |cost| cost.seconds);
        tests.sort_by(|(_, left), (_, right)| seconds(right).total_cmp(&seconds(left)));
        Self(Mutex::new(tests))
    }

    /// The next test.
    pub(super) fn next(&self) -> Option<Test> {
        self.take(|_| true)
    }

    /// The longest of those that are known to wait most of their time.
    pub(super) fn next_that_waits(&self) -> Option<Test> {
        self.take(|cost| cost.is_some_and(|cost| cost.cpus() <= WAITING_CPUS))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tests().is_empty()
    }

    fn take(&self, fits: impl Fn(Option<Cost>) -> bool) -> Option<Test> {
        let mut tests = self.tests();
        let place = tests.iter().position(|(_, cost)| fits(*cost))?;
        Some(tests.remove(place).0)
    }

    fn tests(&self) -> std::sync::MutexGuard<'_, Vec<(Test, Option<Cost>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn queue() -> Queue {
        let mut costs = Costs::default();
        let results = [
            ("short", 1.0, 1.0),
            ("busy", 90.0, 100.0),
            ("waits", 60.0, 3.0),
        ]
        .map(|(function, seconds, cpu_seconds)| TestResult {
            name: test(function).name(),
            cost: Cost {
                seconds,
                cpu_seconds,
            },
            outcome: TestOutcome::Passed,
        });
        costs.learn(&results);
        let tests = ["short", "waits", "new", "busy"].map(test);
        Queue::new(tests.into(), &costs)
    }

    fn all(mut next: impl FnMut() -> Option<Test>) -> Vec<String> {
        std::iter::from_fn(|| next().map(|test| test.function)).collect()
    }

    #[test]
    fn what_takes_longest_is_begun_first_and_what_is_unknown_before_it() {
        let queue = queue();
        assert_eq!(all(|| queue.next()), ["new", "busy", "waits", "short"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn idle_cpus_are_given_tests_that_are_known_to_wait() {
        let queue = queue();
        assert_eq!(all(|| queue.next_that_waits()), ["waits"]);
        assert_eq!(all(|| queue.next()), ["new", "busy", "short"]);
    }
}
