//! A network namespace in the place of a node, for tests.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};

/// The node is a namespace of this test's own.
pub(crate) fn in_a_namespace(test: impl AsyncFnOnce() + Send + 'static) {
    let has = |program: &str| Command::new(program).arg("--help").output().is_ok();
    let all = [
        "unshare", "nsenter", "ip", "busybox", "nft", "ping", "dhclient",
    ];
    if !nix::unistd::geteuid().is_root() || !all.into_iter().all(has) {
        test_skip::report(&format!("root and {all:?} are needed"));
        return;
    }
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(test());
    });
    thread.join().unwrap();
}
