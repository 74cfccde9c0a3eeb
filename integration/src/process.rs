//! Running other programs, with errors that say which one failed and what it printed.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::Context;
use nix::unistd::{SysconfVar, sysconf};

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

/// What cargo tells the program that it runs about its package. Build scripts look at it (that of `ring` is run
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
        let path = format!("/proc/{}/stat", self.id());
        let stat = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let ticks = cpu_ticks(&stat).with_context(|| format!("{path}: {stat}"))?;
        let each = sysconf(SysconfVar::CLK_TCK)?.context("no clock ticks")?;
        Ok(Duration::from_secs_f64(ticks / each as f64))
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

/// `utime` and `stime` of proc(5)'s `stat`; the name before them may have anything in it.
fn cpu_ticks(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11);
    let user: f64 = times.next()?.parse().ok()?;
    let kernel: f64 = times.next()?.parse().ok()?;
    Some(user + kernel)
}
