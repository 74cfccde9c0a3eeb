//! What to read first of the output of a test that failed.

/// Lines that are repeated: a log of thousands of tests has them far above.
const TOLD_AGAIN: usize = 20;

/// Where it panicked, or what the error that it returned was caused by (above that may be a whole log), without the
/// backtrace.
pub(super) fn told_again(output: &str) -> String {
    let lines = output
        .lines()
        .take_while(|line| !line.to_lowercase().starts_with("stack backtrace"))
        .filter(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.collect();
    let cause = lines.iter().rposition(|line| *line == "Caused by:");
    let last = lines.len().saturating_sub(TOLD_AGAIN);
    let told: Vec<&str> = match cause {
        Some(cause) if cause < last => {
            let half = TOLD_AGAIN / 2;
            let rest = (lines.len() - half).max(cause + half);
            [&lines[cause..cause + half], &lines[rest..]].concat()
        }
        _ => lines[last..].to_vec(),
    };
    told.iter().map(|line| format!("\n    {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{TOLD_AGAIN, told_again};

    #[test]
    fn what_a_failed_test_said_last_is_repeated_without_its_backtrace() {
        let output = "running 1 test\n\nError: no\nStack backtrace:\n  0: main\n";
        assert_eq!(told_again(output), "\n    running 1 test\n    Error: no");
        let long = "line\n".repeat(TOLD_AGAIN + 5);
        assert_eq!(told_again(&long).lines().count(), TOLD_AGAIN + 1);
        let caused = format!("Error: {long}Caused by:\n    0: because\n{long}last\n");
        let told = told_again(&caused);
        assert!(
            told.starts_with("\n    Caused by:\n        0: because\n"),
            "{told}"
        );
        assert!(told.ends_with("\n    last"), "{told}");
        assert_eq!(told.lines().count(), TOLD_AGAIN + 1);
    }
}
