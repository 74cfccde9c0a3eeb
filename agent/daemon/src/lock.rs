//! One agent for each state directory.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

/// Why this agent is not the only one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    #[error(
        "the state directory {0} is in use by another kvmlet; stop it, or set another state_dir"
    )]
    Held(PathBuf),
    #[error("the state directory {path} cannot be used")]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Held for as long as the agent lives. The kernel lets go of it even on `kill -9`.
pub(crate) type Lock = Flock<File>;

/// How long the lock of an agent that was killed may outlive it: a process that it had just forked has the lock as well,
/// until it becomes another program.
const PATIENCE: Duration = Duration::from_secs(3);
const INTERVAL: Duration = Duration::from_millis(20);

/// Makes the directory where it is missing, and locks it.
pub(crate) fn lock(state_dir: &Path) -> Result<Lock, LockError> {
    lock_within(state_dir, PATIENCE)
}

fn lock_within(state_dir: &Path, patience: Duration) -> Result<Lock, LockError> {
    let until = Instant::now() + patience;
    let explain = |source| LockError::Io {
        path: state_dir.to_owned(),
        source,
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(state_dir)
        .map_err(explain)?;
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(state_dir.join("lock"))
        .map_err(explain)?;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((same, nix::errno::Errno::EWOULDBLOCK)) if Instant::now() < until => {
                file = same;
                thread::sleep(INTERVAL);
            }
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                return Err(LockError::Held(state_dir.to_owned()));
            }
            Err((_, errno)) => return Err(explain(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_is_refused_and_a_third_after_the_first_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = lock(directory.path()).expect("free");
        let second = lock_within(directory.path(), Duration::ZERO);
        assert!(matches!(second, Err(LockError::Held(_))));
        // One that is about to go is waited for.
        let goes = thread::spawn(move || {
            // The other one is to find it held; nothing reports that it waits.
            thread::sleep(Duration::from_millis(100));
            drop(first);
        });
        lock(directory.path()).expect("free again");
        goes.join().expect("gone");
    }
}
