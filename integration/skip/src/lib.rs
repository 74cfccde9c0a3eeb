//! How a test says that it cannot run here, or not all of it. `cargo xtask test` counts such a test as
//! skipped, not as passed; one that says it in other words, or says nothing, would hide what was not tested.

#![forbid(unsafe_code)]

/// What a line of a skipped test starts with; `cargo xtask test` looks for these lines.
pub const MARK: &str = "SKIPPED: ";

/// Reports why the running test is skipped. The test returns right after, or goes on without a part of it.
pub fn report(reason: &str) {
    println!("{MARK}{reason}");
}
