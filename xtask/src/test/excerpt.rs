//! What to read first of the output of a test that failed.

/// Lines that are repeated: a log of thousands of tests has them far above.
const EXCERPT_LINES: usize = 20;

/// Where it panicked, or what the error that it returned was caused by (above that may be a whole log), without the
/// backtrace.
pub(super) fn excerpt_of(output: &str) -> String {
    let lines = output
        .lines()
        .take_while(|line| !line.to_lowercase().starts_with("stack backtrace"))
        .filter(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.collect();
    let cause = lines.iter().rposition(|line| *line == "Caused by:");
    let last = lines.len().saturating_sub(EXCERPT_LINES);
    let excerpt: Vec<&str> = match cause {
        Some(cause) if cause < last => {
            let half = EXCERPT_LINES / 2;
            let rest = (lines.len() - half).max(cause + half);
            [&lines[cause..cause + half], &lines[rest..]].concat()
        }
        _ => lines[last..].to_vec(),
    };
    excerpt.iter().map(|line| format!("\n    {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{EXCERPT_LINES, excerpt_of};

    #[test]
    fn what_a_failed_test_said_last_is_repeated_without_its_backtrace() {
        let output = "running 1 test\n\nError: no\nStack backtrace:\n  0: main\n";
        assert_eq!(excerpt_of(output), "\n    running 1 test\n    Error: no");
        let long = "line\n".repeat(EXCERPT_LINES + 5);
        assert_eq!(excerpt_of(&long).lines().count(), EXCERPT_LINES + 1);
        let caused = format!("Error: {long}Caused by:\n    0: because\n{long}last\n");
        let excerpt = excerpt_of(&caused);
        assert!(
            excerpt.starts_with("\n    Caused by:\n        0: because\n"),
            "{excerpt}"
        );
        assert!(excerpt.ends_with("\n    last"), "{excerpt}");
        assert_eq!(excerpt.lines().count(), EXCERPT_LINES + 1);
    }
}
