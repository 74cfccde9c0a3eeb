//! Reading what a guest printed: the log's file has the most, the VMM's ring knows its place in the
//! whole.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_plan::{Record, VmiId};
use proto_vmm::v1::{self, request::Kind};

use tokio::time::timeout;

use super::LinuxHost;
use crate::control::{Connection, ControlError, Deadlines, SocketDir};
use crate::failure::chain;
use crate::layout::{PathUid, absent_is_none, ensure_private_dir};
use crate::logs::{LogReader, LogsError, Printed, Run};

/// Most that is read of one file.
const MAX_BYTES: u64 = 16 << 20;

/// Attempts to read file and number while the guest prints nothing in between.
const ATTEMPTS: u32 = 5;

/// Logs of VMIs that are gone; the oldest go first.
const MAX_KEPT: usize = 64;

impl LinuxHost {
    /// See [`Host::printed`](crate::Host::printed).
    pub(super) async fn all_printed(
        &self,
        record: &Record,
        run: Run,
    ) -> Result<LogReader, LogsError> {
        let uid = path_uid(record)?;
        if run == Run::Previous {
            return self.previous(&uid, record);
        }
        let path = self.layout.console_log(&uid, record.launches.incarnation());
        let dir = self.layout.run_of_vmm(&uid, record.launches.incarnation());
        for _ in 0..ATTEMPTS {
            let before = self.logged(&uid, &dir).await;
            let mut log = open_end(&path)?;
            if before.is_none() {
                break;
            }
            if before == self.logged(&uid, &dir).await {
                log.offset = before.map(|logged| logged.saturating_sub(log.left()));
                return Ok(log);
            }
        }
        // The VMM is gone, is older than the question, or its guest prints all the time.
        open_end(&path)
    }

    /// See [`Host::printed_since`](crate::Host::printed_since).
    pub(super) async fn printed_from(
        &self,
        record: &Record,
        from: u64,
    ) -> Result<Printed, LogsError> {
        let uid = path_uid(record)?;
        let dir = self.layout.run_of_vmm(&uid, record.launches.incarnation());
        let response = self
            .read_console(&uid, &dir, from)
            .await
            .map_err(|error| match error {
                ControlError::NobodyListens => LogsError::NotRunning,
                ControlError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                    LogsError::NotRunning
                }
                error => LogsError::Vmm(chain(&error)),
            })?;
        Ok(Printed {
            offset: Some(response.console_offset),
            bytes: response.console_bytes,
        })
    }

    /// How many bytes the log of a VMM was given; `None` when it does not say.
    async fn logged(&self, uid: &PathUid, dir: &Path) -> Option<u64> {
        let response = self.read_console(uid, dir, u64::MAX).await.ok()?;
        response.console_logged
    }

    /// Asks a VMM for what its guest printed. All that follow a guest take turns: a VMM has connections for
    /// an agent, not for each of the agent's callers.
    async fn read_console(
        &self,
        uid: &PathUid,
        dir: &Path,
        from: u64,
    ) -> Result<v1::Response, ControlError> {
        let turn = Arc::clone(&self.memory().vmi(uid).console_turn);
        let limit = Deadlines::of_an_action().request;
        let Ok(_turn) = timeout(limit, turn.lock()).await else {
            return Err(ControlError::Late(
                "answer others who read its console",
                limit,
            ));
        };
        let socket = SocketDir::open(dir).map_err(ControlError::Io)?;
        let mut connection = Connection::open(&socket, Deadlines::of_an_observation()).await?;
        connection
            .ask(Kind::ReadConsole(v1::ReadConsole { from }))
            .await
    }

    fn previous(&self, uid: &PathUid, record: &Record) -> Result<LogReader, LogsError> {
        let earlier = self
            .layout
            .incarnations(uid)
            .map_err(LogsError::Unreadable)?;
        let earlier = earlier
            .into_iter()
            .rev()
            .filter(|incarnation| *incarnation < record.launches.incarnation())
            .map(|incarnation| self.layout.console_log(uid, incarnation));
        for path in earlier {
            if file_bytes(&path)? > 0 {
                return open_end(&path);
            }
        }
        self.last_printed(&record.id.namespace, &record.id.name)
    }

    /// See [`Host::printed_of_gone`](crate::Host::printed_of_gone).
    pub(super) fn last_printed(&self, namespace: &str, name: &str) -> Result<LogReader, LogsError> {
        let path = self.layout.last_log(namespace, name);
        if file_bytes(&path)? > 0 {
            return open_end(&path);
        }
        Err(LogsError::NothingKept(
            "no earlier run of this VirtualMachineInstance, and none of its name, printed anything that is kept",
        ))
    }

    /// Keeps the log of a VMI that is about to go, for whoever asks for the run before.
    pub(super) fn keep_log(&self, uid: &PathUid, id: &VmiId, incarnation: u64) -> io::Result<()> {
        let log = self.layout.console_log(uid, incarnation);
        if absent_is_none(fs::metadata(&log))?.is_none_or(|log| log.len() == 0) {
            return Ok(());
        }
        let kept = self.layout.last_log(&id.namespace, &id.name);
        if let Some(dir) = kept.parent() {
            ensure_private_dir(dir)?;
        }
        fs::rename(&log, &kept)?;
        prune(&self.layout.last_logs(), MAX_KEPT)
    }
}

fn path_uid(record: &Record) -> Result<PathUid, LogsError> {
    PathUid::new(&record.id.uid).map_err(LogsError::Unreadable)
}

fn file_bytes(path: &Path) -> Result<u64, LogsError> {
    let found = absent_is_none(fs::metadata(path)).map_err(LogsError::Unreadable)?;
    Ok(found.map_or(0, |found| found.len()))
}

/// The end of a log; nothing when there is none.
fn open_end(path: &Path) -> Result<LogReader, LogsError> {
    let open = || match absent_is_none(File::open(path))? {
        Some(file) => LogReader::open(file, MAX_BYTES),
        None => Ok(LogReader::default()),
    };
    open().map_err(LogsError::Unreadable)
}

/// Removes the oldest files of all directories in `dir` until `most` are left.
fn prune(dir: &Path, most: usize) -> io::Result<()> {
    let mut found: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
    for namespace in fs::read_dir(dir)? {
        for log in fs::read_dir(namespace?.path())? {
            let log = log?;
            found.push((log.metadata()?.modified()?, log.path()));
        }
    }
    found.sort();
    let too_many = found.len().saturating_sub(most);
    for (_, path) in found.iter().take(too_many) {
        absent_is_none(fs::remove_file(path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_logs_of_guests_that_are_gone_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let now = std::time::SystemTime::now();
        for number in 0..5u64 {
            let namespace = dir.path().join(format!("namespace{}", number % 2));
            fs::create_dir_all(&namespace).unwrap();
            let file = File::create(namespace.join(number.to_string())).unwrap();
            let age = std::time::Duration::from_secs(100 - number);
            file.set_modified(now - age).unwrap();
        }
        prune(dir.path(), 3).unwrap();
        let left = |path: &str| dir.path().join(path).exists();
        assert!(!left("namespace0/0") && !left("namespace1/1"));
        assert!(left("namespace0/2") && left("namespace1/3") && left("namespace0/4"));
    }

    #[test]
    fn a_log_that_is_not_there_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(open_end(&dir.path().join("none")).unwrap().left(), 0);
        assert_eq!(file_bytes(&dir.path().join("none")).unwrap(), 0);
    }
}
