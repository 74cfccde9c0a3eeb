//! One agent for each state directory.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

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

/// Makes the directory where it is missing, and locks it.
pub(crate) fn lock(state_dir: &Path) -> Result<Lock, LockError> {
    let explain = |source| LockError::Io {
        path: state_dir.to_owned(),
        source,
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(state_dir)
        .map_err(explain)?;
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(state_dir.join("lock"))
        .map_err(explain)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Err(LockError::Held(state_dir.to_owned())),
        Err((_, errno)) => Err(explain(errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_is_refused_and_a_third_after_the_first_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = lock(directory.path()).expect("free");
        assert!(matches!(lock(directory.path()), Err(LockError::Held(_))));
        drop(first);
        lock(directory.path()).expect("free again");
    }
}
