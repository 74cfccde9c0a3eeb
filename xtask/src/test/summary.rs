//! The end of a run: what failed, what took longest, and the counts.

use super::excerpt::excerpt_of;
use super::result::{TestOutcome, TestResult};

const SLOWEST: usize = 10;

/// Prints failures and skips by name, the slowest tests, and the counts as the last line.
pub(super) fn print(results: &[TestResult]) {
    for result in results {
        match &result.outcome {
            TestOutcome::Failed(output) => {
                println!("failed:  {}{}", result.name, excerpt_of(output))
            }
            TestOutcome::Skipped(reason) => println!("skipped: {}: {reason}", result.name),
            TestOutcome::Passed => {}
        }
    }
    let mut by_time: Vec<&TestResult> = results.iter().collect();
    by_time.sort_by(|left, right| right.cost.seconds.total_cmp(&left.cost.seconds));
    println!("The {SLOWEST} slowest tests:");
    for result in by_time.iter().take(SLOWEST) {
        println!(
            "{:>9.2} s, {:>7.2} s of CPUs  {}",
            result.cost.seconds, result.cost.cpu_seconds, result.name
        );
    }
    println!("{}", counts(results));
}

fn counts(results: &[TestResult]) -> String {
    let count =
        |is: fn(&TestOutcome) -> bool| results.iter().filter(|result| is(&result.outcome)).count();
    format!(
        "{} passed, {} failed, {} skipped",
        count(|outcome| matches!(outcome, TestOutcome::Passed)),
        count(|outcome| matches!(outcome, TestOutcome::Failed(_))),
        count(|outcome| matches!(outcome, TestOutcome::Skipped(_)))
    )
}

#[cfg(test)]
mod tests {
    use super::super::result::Cost;
    use super::{TestOutcome, TestResult, counts};

    #[test]
    fn the_last_line_counts_each_test_once() {
        let result = |outcome| TestResult {
            name: String::new(),
            cost: Cost::default(),
            outcome,
        };
        let results = [
            result(TestOutcome::Passed),
            result(TestOutcome::Passed),
            result(TestOutcome::Failed(String::new())),
            result(TestOutcome::Skipped(String::new())),
        ];
        assert_eq!(counts(&results), "2 passed, 1 failed, 1 skipped");
    }
}
