//! Runs tests, each in a process of its own: two at a time, and more where they leave CPUs for them.

use std::fs::File;
use std::io::{Read, Seek};
use std::num::NonZero;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use integration::node::STOPPED;
use integration::process::Bound;
use integration::skip;

use super::costs::Costs;
use super::excerpt::excerpt_of;
use super::list::Test;
use super::queue::{Begun, MOST, Queue};
use super::result::{Cost, TestOutcome, TestResult};

/// A test that takes longer hangs. The longest takes five minutes alone and has taken ten beside builds, where a guest in a node has
/// a fraction of a CPU.
const LIMIT: Duration = Duration::from_secs(1200);

/// Runs all of them and prints a line for each as it ends. `bzimage` is for tests of crates that may
/// not know where images are made. After `deadline` no test is begun, and those that run are killed; all these have failed.
pub(super) fn all(tests: Vec<Test>, bzimage: &Path, deadline: Option<Instant>) -> Vec<TestResult> {
    let mut costs = Costs::load();
    let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
    let queue = Queue::new(tests, &costs, cpus as f64);
    let results = Mutex::new(Vec::new());
    let run = |begun: Begun<'_>| {
        let result = one(&begun.test, bzimage, deadline);
        show(&result);
        results
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(result);
    };
    std::thread::scope(|scope| {
        for _ in 0..MOST {
            scope.spawn(|| std::iter::from_fn(|| queue.next()).for_each(run));
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    costs.learn(&results);
    if let Err(error) = costs.save() {
        eprintln!("the order of the next run will be as it was: {error:#}");
    }
    results
}

fn show(result: &TestResult) {
    let (word, more) = match &result.outcome {
        TestOutcome::Passed => ("ok", String::new()),
        // The cause first: the rest may be a log of hundreds of lines.
        TestOutcome::Failed(output) => ("FAILED", format!("{}\n{output}", excerpt_of(output))),
        TestOutcome::Skipped(reason) => ("skipped", format!(": {reason}")),
    };
    println!(
        "{word:>8} {:>7.2} s  {}{more}",
        result.cost.seconds, result.name
    );
}

fn one(test: &Test, bzimage: &Path, deadline: Option<Instant>) -> TestResult {
    let started = Instant::now();
    let mut used = Duration::ZERO;
    let outcome = if let Some(reason) = &test.ignored {
        TestOutcome::ignored(reason)
    } else if limit(deadline).is_zero() {
        TestOutcome::Failed("not begun: the time for all tests is over".to_owned())
    } else {
        unless_stopped(&test.name(), || {
            run(test, bzimage, limit(deadline), &mut used)
                .unwrap_or_else(|error| TestOutcome::Failed(format!("{error:#}")))
        })
    };
    TestResult {
        name: test.name(),
        cost: Cost {
            seconds: started.elapsed().as_secs_f64(),
            cpu_seconds: used.as_secs_f64(),
        },
        outcome,
    }
}

/// How long a test that begins now may take.
fn limit(deadline: Option<Instant>) -> Duration {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    left.map_or(LIMIT, |left| left.min(LIMIT))
}

/// Runs a test, and once more where it failed and its node's emulator had stopped, which says nothing of the project.
fn unless_stopped(name: &str, mut run: impl FnMut() -> TestOutcome) -> TestOutcome {
    match run() {
        TestOutcome::Failed(output) if output.contains(STOPPED) => {
            println!("   again            {name}: {STOPPED}");
            run()
        }
        outcome => outcome,
    }
}

/// Runs it once, at most for `limit`; `used` becomes what it used of CPUs.
fn run(
    test: &Test,
    bzimage: &Path,
    limit: Duration,
    used: &mut Duration,
) -> anyhow::Result<TestOutcome> {
    let mut printed = tempfile::tempfile()?;
    let program = test.program.to_str().context("a path that is no text")?;
    let arguments =
        [&test.function, "--exact", "--nocapture", "--test-threads=1"].map(str::to_owned);
    let (stdout, stderr) = (printed.try_clone()?, printed.try_clone()?);
    let mut process = Bound::start(program, &arguments, |command| {
        command
            .current_dir(&test.directory)
            .env("CARGO_MANIFEST_DIR", &test.directory)
            .env("RUST_BACKTRACE", "1")
            .env("KVMLET_TEST_BZIMAGE", bzimage)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0);
    })?;
    let until = Instant::now() + limit;
    let status = loop {
        if let Some((status, time)) = process.ended_after_using()? {
            *used = time;
            break status;
        }
        if Instant::now() > until {
            process.kill();
            return Ok(TestOutcome::Failed(format!(
                "killed after {limit:?}\n{}",
                text(&mut printed)?
            )));
        }
        // `Child` has no wait with a limit.
        std::thread::sleep(Duration::from_millis(2));
    };
    let printed = text(&mut printed)?;
    if !status.success() {
        return Ok(TestOutcome::Failed(format!("{status}\n{printed}")));
    }
    // libtest prints the test's name first, without a line break.
    let reason = printed
        .split_once(skip::MARK)
        .map(|(_, rest)| rest.lines().next().unwrap_or_default().to_owned());
    Ok(reason.map_or(TestOutcome::Passed, TestOutcome::Skipped))
}

fn text(file: &mut File) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test that fails with these words, one each time; how often it ran, and whether it passed at last.
    fn outcome(failures: &[&str]) -> (usize, bool) {
        let mut times = 0;
        let outcome = unless_stopped("a test", || {
            let failure = failures.get(times);
            times += 1;
            failure.map_or(TestOutcome::Passed, |words| {
                TestOutcome::Failed((*words).to_owned())
            })
        });
        (times, matches!(outcome, TestOutcome::Passed))
    }

    #[test]
    fn a_test_gets_no_more_time_than_is_left_for_all() {
        let now = Instant::now();
        assert_eq!(limit(None), LIMIT);
        assert_eq!(limit(Some(now + 2 * LIMIT)), LIMIT);
        assert!(limit(Some(now + LIMIT / 2)) <= LIMIT / 2);
        assert_eq!(limit(Some(now)), Duration::ZERO);
    }

    #[test]
    fn a_test_runs_again_once_and_only_where_its_emulator_stopped() {
        assert_eq!(outcome(&[]), (1, true));
        assert_eq!(outcome(&["left: 1"]), (1, false));
        let stopped = format!("took too long\n{STOPPED}");
        assert_eq!(outcome(&[&stopped]), (2, true));
        assert_eq!(outcome(&[&stopped, &stopped]), (2, false));
    }
}
