//! Documentation tests, which only rustdoc can run: counted by crate from its own summary.

use std::path::Path;
use std::time::Instant;

use super::result::{Cost, TestOutcome, TestResult};
use integration::artifacts;
use integration::process::cargo;

/// Runs those of the whole workspace. Each test counts, though rustdoc gives no time of its own.
pub(super) fn run(root: &Path) -> anyhow::Result<Vec<TestResult>> {
    let started = Instant::now();
    let output = cargo(root)
        .args([
            "test",
            "--profile",
            &artifacts::profile()?,
            "--doc",
            "--workspace",
            "--no-fail-fast",
        ])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut results: Vec<TestResult> = text.lines().filter_map(result).collect();
    if !output.status.success()
        && !results
            .iter()
            .any(|result| matches!(result.outcome, TestOutcome::Failed(_)))
    {
        results.push(TestResult {
            name: "documentation tests".to_owned(),
            cost: Cost {
                seconds: started.elapsed().as_secs_f64(),
                ..Cost::default()
            },
            outcome: TestOutcome::Failed(format!("{text}{errors}")),
        });
    }
    Ok(results)
}

/// A line such as `test vmm/memory/src/lib.rs - region (line 12) ... ok`.
fn result(line: &str) -> Option<TestResult> {
    let (name, word) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let outcome = match word {
        "ok" => TestOutcome::Passed,
        "ignored" => TestOutcome::ignored(""),
        _ => TestOutcome::Failed("see `cargo test --doc`".to_owned()),
    };
    Some(TestResult {
        name: name.to_owned(),
        cost: Cost::default(),
        outcome,
    })
}

#[cfg(test)]
mod tests {
    use super::{TestOutcome, result};

    #[test]
    fn a_line_of_rustdoc_becomes_a_result() {
        let passed = result("test a/src/lib.rs - thing (line 3) ... ok").expect("a result");
        assert!(matches!(passed.outcome, TestOutcome::Passed));
        assert_eq!(passed.name, "a/src/lib.rs - thing (line 3)");
        assert!(result("test result: ok. 1 passed; 0 failed").is_none());
    }
}
