//! Starting a VMM: a process outside of the agent that waits for its configuration.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use agent_domain::{Vmi, tame};
use agent_plan::{
    Completed, Enforcement, Failure, MachineState, Record, Timestamp, VmmIdentity, VmmObserved,
};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::LinuxHost;
use crate::child::{CONTINUE, LaunchArguments, Launched};
use crate::control::{Connection, Deadlines, SocketDir, listen_at};
use crate::failure::{chain, retry};
use crate::launch_file::LaunchFile;
use crate::layout::{PathUid, ensure_private_dir};
use crate::process;
use crate::sandbox::{self, Limits};

/// How much of a VMM's log is shown when it did not start.
const LOG_TAIL_BYTES: u64 = 1024;

/// Name of the VMM's standard error in its run directory.
const LOG_NAME: &str = "vmm.log";

impl LinuxHost {
    /// The directories of a VMM.
    pub(super) fn ensure_run_dir(&self, uid: &PathUid, incarnation: u64) -> Result<(), Failure> {
        let dirs = [
            self.layout.vmm_root(uid, incarnation),
            self.layout.state_of_vmm(uid, incarnation),
        ];
        for dir in dirs {
            ensure_private_dir(&dir).map_err(|error| {
                retry(
                    "RunDirFailed",
                    format!("{}: cannot be made: {error}", dir.display()),
                )
            })?;
        }
        Ok(())
    }

    /// Starts a VMM for an incarnation, or finds the one that runs.
    pub(super) async fn start_vmm(
        &self,
        uid: &PathUid,
        incarnation: u64,
        (vmi, record): (&Vmi, &Record),
    ) -> Result<Completed, Failure> {
        self.ensure_run_dir(uid, incarnation)?;
        let limits = Limits::of(vmi, record);
        if let Some(vmm) = self.running_already(uid, incarnation).await? {
            self.ensure_sandbox(uid, &vmm, &limits).await?;
            return Ok(Completed::Started(vmm.identity));
        }
        let dir = self.layout.run_of_vmm(uid, incarnation);
        let user = self.vmm_user(uid);
        let name = sandbox::name_of(uid, incarnation);
        let root = self.layout.vmm_root(uid, incarnation);
        let (launched, identity) = match self.launch(&name, (&dir, &root), user, &limits).await {
            Ok(launched) => launched,
            Err(failure) => {
                self.remove_home(&name).await;
                return Err(failure);
            }
        };
        let note = LaunchFile {
            identity: identity.clone(),
            user,
        };
        let settled = async {
            note.write(&dir)
                .map_err(|error| failed("the start of the VMM cannot be noted", &error))?;
            greet(&dir).await
        };
        let result = settled.await;
        if result.is_err() {
            self.give_up(&identity, &name).await;
        }
        // Its launcher has ended: whoever is the parent of orphans has to wait for it.
        tokio::spawn(async move {
            if let Err(error) = process::reap(&launched.pidfd).await {
                tracing::warn!(pid = launched.pid, %error, "the end of a VMM cannot be waited for");
            }
        });
        result.map(|()| Completed::Started(identity))
    }

    /// Ends a VMM that was started just now. It has no configuration yet, so there is nothing to lose.
    async fn give_up(&self, identity: &VmmIdentity, name: &str) {
        if let Err(error) = self.ends.kill(identity).await {
            tracing::warn!(name, %error, "a VMM that did not start cannot be ended");
        }
        self.remove_home(name).await;
    }

    async fn remove_home(&self, name: &str) {
        if let Err(error) = self.sandbox.remove(name).await {
            tracing::warn!(name, error = %chain(&error), "the home of a VMM that did not start stays");
        }
    }

    /// Starts a process that becomes the VMM, where guests live. On failure nothing of it runs.
    async fn launch(
        &self,
        name: &str,
        (dir, root): (&Path, &Path),
        user: Option<u32>,
        limits: &Limits,
    ) -> Result<(Launched, VmmIdentity), Failure> {
        let (mut launcher, socket) = self
            .spawn(dir, root, user)
            .map_err(|error| failed("the VMM cannot be started", &error))?;
        if let Err(failure) = self.move_launcher(name, &launcher, &socket, limits).await {
            if matches!(launcher.try_wait(), Ok(Some(_))) {
                // What it said is why it could not be moved.
                return Err(did_not_start(dir, "its launcher failed"));
            }
            // It also ends when it gets no permission to continue.
            if let Err(error) = launcher.kill().await {
                tracing::warn!(name, %error, "a launcher cannot be ended");
            }
            return Err(failure);
        }
        let limit = self.settings().config.launch_limit;
        let Ok(ended) = timeout(limit, launcher.wait()).await else {
            let why = format!("its launcher did not end within {limit:?} and was killed");
            return Err(did_not_start(dir, &why));
        };
        let status = ended.map_err(|error| failed("the VMM cannot be started", &error))?;
        let launched = Launched::receive(&socket)
            .map_err(|error| failed("the VMM cannot be identified", &error))?;
        let Some(launched) = launched.filter(|_| status.success()) else {
            return Err(did_not_start(dir, "its launcher failed"));
        };
        match process::identify_running(launched.pid, &launched.pidfd) {
            Ok(Some(identity)) => Ok((launched, identity)),
            Ok(None) => Err(did_not_start(dir, "it ended at once")),
            Err(error) => Err(failed("the VMM cannot be identified", &error)),
        }
    }

    /// Moves the launcher into the cgroup of guests, and permits it to continue there. The kernel's own sockets of a network namespace, by
    /// which it answers neighbours of IPv6, belong to the cgroup in which the namespace is made: in that of the agent's unit
    /// `IPAddressDeny=any` would drop what they send.
    async fn move_launcher(
        &self,
        name: &str,
        launcher: &Child,
        mut socket: &UnixStream,
        limits: &Limits,
    ) -> Result<(), Failure> {
        // Nobody has waited for it, so the number is certainly its own.
        let pid = launcher.id();
        let pid = pid.ok_or_else(|| retry("VmmStartFailed", "the launcher is over".to_owned()))?;
        self.sandbox
            .adopt(name, pid, limits)
            .await
            .map_err(|error| retry("SandboxFailed", chain(&error)))?;
        match socket.write_all(&[CONTINUE]) {
            // It has ended already: its exit status and its log say why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|error| failed("the launcher cannot be released", &error)),
        }
    }

    /// The VMM of this incarnation, if it was started before; an error when another one lives or
    /// nobody can tell.
    async fn running_already(
        &self,
        uid: &PathUid,
        incarnation: u64,
    ) -> Result<Option<VmmObserved>, Failure> {
        let unknown = |why: String| retry("VmmUnknown", why);
        let incarnations = self
            .layout
            .run_incarnations(uid)
            .map_err(|error| unknown(error.to_string()))?;
        let mut running = None;
        for other in incarnations {
            let Some(vmm) = self
                .living_vmm(uid, other, Timestamp::default())
                .await
                .map_err(unknown)?
            else {
                continue;
            };
            if other != incarnation {
                return Err(retry(
                    "OlderVmmRuns",
                    format!(
                        "the VMM of incarnation {other} (pid {}) still runs",
                        vmm.identity.pid
                    ),
                ));
            }
            let dir = self.layout.run_of_vmm(uid, incarnation);
            let has_note = LaunchFile::read(&dir).is_ok_and(|note| note.is_some());
            if !has_note {
                let note = LaunchFile {
                    identity: vmm.identity.clone(),
                    user: None,
                };
                note.write(&dir).map_err(|error| {
                    retry(
                        "VmmStartFailed",
                        format!("the VMM cannot be noted: {error}"),
                    )
                })?;
            }
            running = Some(vmm);
        }
        Ok(running)
    }

    /// Moves a VMM that was found to where guests live: its agent may have died before it could, or
    /// it was started by hand. One that has its machine stays where it is, because moving does not
    /// take along what it has allocated.
    async fn ensure_sandbox(
        &self,
        uid: &PathUid,
        vmm: &VmmObserved,
        limits: &Limits,
    ) -> Result<(), Failure> {
        let is_enforced = vmm.enforcement.present() == Some(&Enforcement::Enforced);
        let is_empty =
            vmm.machine.present().map(|machine| machine.state) == Some(MachineState::Unconfigured);
        if is_enforced || !is_empty {
            return Ok(());
        }
        let name = sandbox::name_of(uid, vmm.incarnation);
        self.sandbox
            .adopt(&name, vmm.identity.pid, limits)
            .await
            .map_err(|error| retry("SandboxFailed", chain(&error)))
    }

    /// Starts the launcher; on the socket it reports what it has started.
    fn spawn(&self, dir: &Path, root: &Path, user: Option<u32>) -> io::Result<(Child, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let socket = listen_at(dir)?;
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(dir.join(LOG_NAME))?;
        let settings = self.settings();
        let arguments = LaunchArguments {
            program: settings.config.vmm_program.clone(),
            root: root.to_owned(),
            user: user.unwrap_or_default(),
        };
        let launcher = Command::new(&settings.config.helper_program)
            .args(arguments.to_command_line())
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(socket)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::from(log))
            // The process that it starts ends with it, unless the launcher has released it already: then
            // it is found by its socket.
            .kill_on_drop(true)
            .spawn()?;
        Ok((launcher, ours))
    }
}

fn failed(what: &str, error: &dyn std::error::Error) -> Failure {
    retry("VmmStartFailed", format!("{what}: {}", chain(error)))
}

/// Waits for the VMM's hello, or for the reason why there is none.
async fn greet(dir: &Path) -> Result<(), Failure> {
    let socket = SocketDir::open(dir)
        .map_err(|error| retry("VmmStartFailed", format!("{}: {error}", dir.display())))?;
    match Connection::open(&socket, Deadlines::of_an_action()).await {
        Ok(_) => Ok(()),
        Err(error) => Err(did_not_start(dir, &chain(&error))),
    }
}

fn did_not_start(dir: &Path, why: &str) -> Failure {
    let tail = log_tail(&dir.join(LOG_NAME)).unwrap_or_default();
    let message = if tail.is_empty() {
        format!("the VMM did not start: {why}")
    } else {
        format!("the VMM did not start: {why}; it said: {tail}")
    };
    retry("VmmStartFailed", message)
}

fn log_tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(one_tame_line(&bytes))
}

/// The log is a VMM's to write, and ends up before people.
fn one_tame_line(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    tame(lines.join(" ").trim(), log.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_one_tame_line() {
        let log = b"\xff at first\n  error: \x1b[2Jno memory\n\n";
        assert_eq!(
            one_tame_line(log),
            "\u{fffd} at first error: \u{fffd}[2Jno memory"
        );
    }
}
