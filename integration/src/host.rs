//! A corner of this machine in which the project's programs run on the machine's own KVM: network,
//! mount and process namespaces of its own, so that nothing of the machine is touched and nothing
//! stays behind.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::commands::{Channel, Commands};
use crate::{artifacts, tools};

/// What is copied into a corner.
const PROGRAMS: &[&str] = &[
    "node-agent",
    "echo-peer",
    "create-bench",
    "watch-bench",
    "store-bench",
    "grpc-probe",
    "scheduler",
    "hook-peer",
    "image-registry",
    "watch-vmi",
    "testguest",
    "kvmlet",
    "kvmlet-dhcp",
    "kvmlet-vmm",
    "kvmctl",
];

/// How long a corner may take to end: VMMs of a thousand guests, of which no batch ends by itself.
const LONGEST_END: Duration = Duration::from_secs(400);

/// The corner. Dropping it kills everything that runs in it: agents first, then VMMs a few at a time ([`crate::batches`]), then
/// the rest. The same happens when this process is killed, because the corner's `node-agent` then reads the end of its channel.
#[derive(Debug)]
pub struct Host {
    channel: Channel,
    first: First,
    directory: tempfile::TempDir,
}

/// The first process of a corner, as this one sees it. Everything in the corner ends with it.
#[derive(Debug)]
struct First(Child);

impl First {
    /// Waits until it has ended by itself, or for so long.
    fn wait(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < until {
            // `Child` has no wait with a limit.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for First {
    fn drop(&mut self) {
        // Both fail only when it was already waited for, which is what is wanted.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Host {
    /// Makes one. The project's programs as far as they were built are in its search path, as copies
    /// in `/run/bin`: VMMs run as other users, who may not look into the directories of this one.
    ///
    /// # Errors
    /// Without root, or when namespaces cannot be made.
    pub fn enter() -> anyhow::Result<Self> {
        tools::ensure(tools::HOST)?;
        let agent = artifacts::program("node-agent")?;
        let directory = tempfile::tempdir()?;
        let programs: Vec<String> = PROGRAMS
            .iter()
            .filter_map(|name| Some(artifacts::program(name).ok()?.display().to_string()))
            .collect();
        let (ours, theirs) = UnixStream::pair()?;
        // sysfs shows the network of whoever mounted it. What the product writes goes into memory.
        let mounts = "mount -t sysfs sys /sys && mount -t tmpfs run /run && mount -t tmpfs lib /var/lib && \
                      mkdir /run/bin && cp $PROGRAMS /run/bin/";
        // The shell is init of the process namespace: unlike the agent it reaps whatever is orphaned.
        let init = format!(
            "{mounts} && ip link set lo up && '{}' --inherited; exit 0",
            agent.display()
        );
        let arguments = [
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--",
            "sh",
            "-c",
            &init,
        ];
        let path = std::env::var("PATH").unwrap_or_default();
        let first = Command::new("unshare")
            .args(arguments)
            .env("PROGRAMS", programs.join(" "))
            .env("PATH", format!("/run/bin:{path}:/usr/sbin:/sbin"))
            .stdin(OwnedFd::from(theirs))
            // Ctrl-C is for this process, whose end the corner sees.
            .process_group(0)
            .spawn()
            .context("unshare cannot be started")?;
        let first = First(first);
        let channel = Channel::over(ours, Duration::from_secs(20), &mut || Ok(()))
            .context("a corner of this machine with namespaces of its own")?;
        Ok(Self {
            channel,
            first,
            directory,
        })
    }

    /// A directory that vanishes with the corner.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A file of the corner, as this process reaches it.
    #[must_use]
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.first.0.id()))
    }
}

impl Commands for Host {
    fn channel(&self) -> anyhow::Result<&Channel> {
        Ok(&self.channel)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.channel.close();
        self.first.wait(LONGEST_END);
    }
}

/// Why the machine's KVM cannot run stock kernels, if so.
#[must_use]
pub fn without_stock_kernels() -> Option<String> {
    if let Some(reason) = crate::skip::without_kvm() {
        return Some(reason);
    }
    let loaded = |module: &str| PathBuf::from("/sys/module").join(module).exists();
    if loaded("kvm_pvm") {
        return Some("KVM on this machine is software-emulated (kvm_pvm)".to_owned());
    }
    (!loaded("kvm_amd") && !loaded("kvm_intel"))
        .then(|| "KVM on this machine is neither VMX nor SVM".to_owned())
}

/// Why no [`Host`] can be entered here, if so.
#[must_use]
pub fn without_host() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("namespaces and taps on this machine need root".to_owned());
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("this machine has no /dev/net/tun".to_owned());
    }
    crate::skip::without_kvm()
}
