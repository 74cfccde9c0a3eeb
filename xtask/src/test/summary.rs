//! The end of a run: what failed, what took longest, and the counts.

use super::run::{TestResult, Verdict};

const SLOWEST: usize = 10;
/// Lines of what a failed test printed that are told once more: a log of thousands of tests has them far above.
const TOLD_AGAIN: usize = 20;

/// Prints failures and skips by name, the slowest tests, and the counts as the last line.
pub(super) fn print(results: &[TestResult]) {
    for result in results {
        match &result.verdict {
            Verdict::Failed(output) => println!("failed:  {}{}", result.name, told_again(output)),
            Verdict::Skipped(reason) => println!("skipped: {}: {reason}", result.name),
            Verdict::Passed => {}
        }
    }
    let mut by_time: Vec<&TestResult> = results.iter().collect();
    by_time.sort_by(|left, right| right.seconds.total_cmp(&left.seconds));
    println!("The {SLOWEST} slowest tests:");
    for result in by_time.iter().take(SLOWEST) {
        println!("{:>9.2} s  {}", result.seconds, result.name);
    }
    println!("{}", counts(results));
}

/// Where it panicked or what it returned, without the backtrace.
fn told_again(output: &str) -> String {
    let lines = output
        .lines()
        .take_while(|line| !line.to_lowercase().starts_with("stack backtrace"))
        .filter(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.collect();
    let first = lines.len().saturating_sub(TOLD_AGAIN);
    lines[first..]
        .iter()
        .map(|line| format!("\n    {line}"))
        .collect()
}

fn counts(results: &[TestResult]) -> String {
    let count =
        |is: fn(&Verdict) -> bool| results.iter().filter(|result| is(&result.verdict)).count();
    format!(
        "{} passed, {} failed, {} skipped",
        count(|verdict| matches!(verdict, Verdict::Passed)),
        count(|verdict| matches!(verdict, Verdict::Failed(_))),
        count(|verdict| matches!(verdict, Verdict::Skipped(_)))
    )
}

#[cfg(test)]
mod tests {
    use super::{TOLD_AGAIN, TestResult, Verdict, counts, told_again};

    #[test]
    fn what_a_failed_test_said_last_is_told_again_without_its_backtrace() {
        let output = "running 1 test\n\nError: no\nStack backtrace:\n  0: main\n";
        assert_eq!(told_again(output), "\n    running 1 test\n    Error: no");
        let long = "line\n".repeat(TOLD_AGAIN + 5);
        assert_eq!(told_again(&long).lines().count(), TOLD_AGAIN + 1);
    }

    #[test]
    fn the_last_line_counts_each_test_once() {
        let result = |verdict| TestResult {
            name: String::new(),
            seconds: 0.0,
            verdict,
        };
        let results = [
            result(Verdict::Passed),
            result(Verdict::Passed),
            result(Verdict::Failed(String::new())),
            result(Verdict::Skipped(String::new())),
        ];
        assert_eq!(counts(&results), "2 passed, 1 failed, 1 skipped");
    }
}
