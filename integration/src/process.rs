//! Running other programs, with errors that say which one failed and what it printed.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::Context;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// Runs `command` to its end and gives its standard output.
///
/// # Errors
/// When it cannot be started or ends with anything but success; the error holds what it printed.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let shown = format!("{command:?}");
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{shown} cannot be started"))?;
    anyhow::ensure!(
        status.success(),
        "{shown} ended with {status}:\n{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// The program at `path` and the libraries that it is linked to, where they are on this machine.
///
/// # Errors
/// When it is not there.
pub fn with_libraries(path: &str) -> anyhow::Result<Vec<String>> {
    let libraries = output(Command::new("ldd").arg(path))?;
    let libraries = libraries
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    Ok(libraries.chain([path]).map(str::to_owned).collect())
}

/// Runs `command` with this process's own standard streams.
///
/// # Errors
/// When it cannot be started or ends with anything but success.
pub fn stream(command: &mut Command) -> anyhow::Result<()> {
    let shown = format!("{command:?}");
    let status = command
        .status()
        .with_context(|| format!("{shown} cannot be started"))?;
    anyhow::ensure!(status.success(), "{shown} ended with {status}");
    Ok(())
}

/// Environment variables by which cargo describes a package to the program that it runs. Build scripts look at it (that of `ring` is run
/// again when it changes), and would see another package's each time that cargo is started by this one.
const OF_THIS_PACKAGE: [&str; 4] = [
    "CARGO_PKG_",
    "CARGO_MANIFEST_",
    "CARGO_BIN_",
    "CARGO_CRATE_",
];

/// The cargo that runs this program, so that the same toolchain builds.
#[must_use]
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if OF_THIS_PACKAGE.iter().any(|of| text.starts_with(of)) {
            command.env_remove(&name);
        }
    }
    command
}

/// A program that dies with this process, even when this process is killed.
#[derive(Debug)]
pub struct Bound {
    child: std::process::Child,
}

type SpawnRequest = (Command, Sender<std::io::Result<std::process::Child>>);

/// The parent-death signal of Linux is sent when the *thread* that forked ends, so everything bound
/// is started by one thread that lives as long as the process.
fn spawner() -> &'static Sender<SpawnRequest> {
    static SPAWNER: OnceLock<Sender<SpawnRequest>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (requests, inbox) = channel::<SpawnRequest>();
        std::thread::spawn(move || {
            for (mut command, reply) in inbox {
                // Nobody waits for the reply any more: the child must not be left behind.
                if let Err(unsent) = reply.send(command.spawn())
                    && let Ok(mut child) = unsent.0
                {
                    child.kill().ok();
                }
            }
        });
        requests
    })
}

impl Bound {
    /// Starts `program` with `arguments`; `adjust` may set its streams and directory.
    ///
    /// # Errors
    /// When `setpriv` (util-linux) cannot be started; a missing `program` shows as an exit.
    pub fn start(
        program: &str,
        arguments: &[String],
        adjust: impl FnOnce(&mut Command),
    ) -> anyhow::Result<Self> {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--", program])
            .args(arguments);
        adjust(&mut command);
        let (reply, answer) = channel();
        spawner()
            .send((command, reply))
            .ok()
            .context("the spawning thread is gone")?;
        let child = answer
            .recv()
            .context("the spawning thread is gone")?
            .with_context(|| format!("setpriv cannot be started for {program}"))?;
        Ok(Self { child })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How long it has been using CPUs, in user and in kernel mode.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        cpu_time(self.id(), OWN_TIMES)
    }

    /// The standard streams that were asked for as pipes.
    pub fn child(&mut self) -> &mut std::process::Child {
        &mut self.child
    }

    /// Its exit status when it has ended.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn ended(&mut self) -> std::io::Result<Option<std::process::ExitStatus>> {
        self.child.try_wait()
    }

    /// Its exit status when it has ended, and how long it and all programs that it waited for used CPUs.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn ended_after_using(
        &mut self,
    ) -> anyhow::Result<Option<(std::process::ExitStatus, Duration)>> {
        let id = self.id();
        let pid = Pid::from_raw(i32::try_from(id)?);
        // Its times are there until its status is taken.
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        if matches!(waitid(Id::Pid(pid), look)?, WaitStatus::StillAlive) {
            return Ok(None);
        }
        let used = cpu_time(id, OWN_TIMES + TIMES_OF_CHILDREN)?;
        Ok(Some((self.child.wait()?, used)))
    }

    /// Kills it and waits until it is gone; nothing happens when it already is.
    pub fn kill(&mut self) {
        // Both fail only when it was already waited for, which is what is wanted.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `utime` and `stime` of proc(5)'s `stat`.
const OWN_TIMES: usize = 2;

/// `cutime` and `cstime`, which follow.
const TIMES_OF_CHILDREN: usize = 2;

/// The sum of the first `count` times of a process.
fn cpu_time(id: u32, count: usize) -> anyhow::Result<Duration> {
    let path = format!("/proc/{id}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let ticks = cpu_ticks(&stat, count).with_context(|| format!("{path}: {stat}"))?;
    let each = sysconf(SysconfVar::CLK_TCK)?.context("no clock ticks")?;
    Ok(Duration::from_secs_f64(ticks / each as f64))
}

/// The first `count` times of proc(5)'s `stat`; the name before them may have anything in it.
fn cpu_ticks(stat: &str, count: usize) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let times: Vec<f64> = fields
        .split(' ')
        .skip(11)
        .take(count)
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    (times.len() == count).then(|| times.iter().sum())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Bound;

    #[test]
    fn what_children_used_is_counted_with_their_parent() {
        let script = "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done'; exit 3";
        let arguments = ["-c", script].map(str::to_owned);
        let mut process = Bound::start("sh", &arguments, |_| {}).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let (status, used) = loop {
            if let Some(ended) = process.ended_after_using().unwrap() {
                break ended;
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::yield_now();
        };
        assert_eq!(status.code(), Some(3));
        assert!(used >= Duration::from_millis(50), "{used:?}");
    }
}
