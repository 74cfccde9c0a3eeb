//! How a test says that it cannot run here.

pub use test_skip::{MARK, report};

/// Ends the running test as skipped when `reason` says why it cannot run here; a test that returns
/// something gives it as second argument.
#[macro_export]
macro_rules! skip_if {
    ($reason:expr) => {
        $crate::skip_if!($reason, ())
    };
    ($reason:expr, $result:expr) => {
        if let Some(reason) = $reason {
            $crate::skip::report(&reason);
            return $result;
        }
    };
}

/// Why no node can be booted here, if so.
#[must_use]
pub fn without_node() -> Option<String> {
    let packages: Vec<&str> = crate::tools::missing(crate::tools::NODE)
        .into_iter()
        .collect();
    (!packages.is_empty()).then(|| {
        format!(
            "no node can be booted here without the packages {}",
            packages.join(" ")
        )
    })
}

/// Why the machine's own `/dev/kvm` cannot be used, if so.
#[must_use]
pub fn without_kvm() -> Option<String> {
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .err()
        .map(|error| format!("/dev/kvm cannot be opened: {error}"))
}
