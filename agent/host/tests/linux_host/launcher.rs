//! What starts a VMM, when its agent is gone.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use libtest_mimic::Trial;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::support::{HostDirs, Outcome, eventually, trial};

pub fn trials() -> Vec<Trial> {
    vec![trial(
        "a_launcher_whose_agent_dies_before_it_says_go_on_starts_nothing",
        agent_dies,
    )]
}

/// Whether no process waits at this pipe for somebody who writes into it.
fn nobody_opens(pipe: &Path) -> bool {
    let opened = open(pipe, OFlag::O_WRONLY | OFlag::O_NONBLOCK, Mode::empty());
    opened.err() == Some(Errno::ENXIO)
}

/// The agent is killed when it has moved the launcher to where guests live: all that is left of it is a socket that ends.
async fn agent_dies() -> Outcome {
    let dirs = HostDirs::new();
    let program = dirs.dir.path().join("program");
    nix::unistd::mkfifo(&program, Mode::S_IRWXU)?;
    let root = dirs.dir.path().join("root");
    std::fs::create_dir(&root)?;
    let (agent, launcher) = UnixStream::pair()?;
    let mut launcher = Command::new(std::env::current_exe()?)
        .arg("launch-vmm")
        .args([&program, &root])
        .arg("70000")
        .stdin(Stdio::null())
        .stdout(Stdio::from(OwnedFd::from(launcher)))
        .stderr(Stdio::null())
        .spawn()?;
    for _ in 0..50 {
        assert!(nobody_opens(&program), "it went on before it was released");
        assert!(launcher.try_wait()?.is_none(), "it did not wait");
        // Nothing is to happen: it is looked at again and again for half a second.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(agent);
    let launcher = RefCell::new(launcher);
    eventually("ended", async || {
        launcher.borrow_mut().try_wait().unwrap().is_some()
    })
    .await;
    assert_eq!(launcher.borrow_mut().wait()?.code(), Some(1));
    assert!(nobody_opens(&program), "something was left");
    Ok(())
}
