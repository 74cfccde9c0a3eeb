//! Scopes of systemd's, asked for over D-Bus.
//!
//! A scope adopts a process that exists, so descriptors are inherited in the usual way, and it is
//! no part of the agent's service: stopping or killing that service does not touch it.

use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agent_plan::CpuSet;
use tokio::process::Command;
use zbus::Variant as Value;
use zbus::connection::{Builder, Connection};

use super::error::SandboxError;
use super::limits::Limits;
use crate::layout::absent_is_none;
use crate::process;

const SLICE: &str = "kvmlet-guests.slice";

/// The slice's cgroup: dashes in the name of a slice are levels.
const SLICE_CGROUP: &str = "/sys/fs/cgroup/kvmlet.slice/kvmlet-guests.slice";

/// Exists where systemd is process 1 (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";

/// The agent's unit. At the end of the node it is stopped before guests are, and ends them in order.
const SERVICE: &str = "kvmlet.service";

/// What guests may need until they have ended; stopped after them.
const NEEDED: [&str; 3] = ["network.target", "local-fs.target", "remote-fs.target"];

/// Longest that systemd may take to make or end a scope.
const DEADLINE: Duration = Duration::from_secs(10);

/// Poll interval while systemd moves the process.
const POLL: Duration = Duration::from_millis(5);

/// How long systemd is asked how the machine stands: well within `TimeoutStopSec` of the agent's service.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long until systemd is asked again that did not answer.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A host whose process 1 is systemd. Connections are made for each call: systemd is restarted by
/// its own upgrades.
#[derive(Debug)]
pub(crate) struct Systemd(());

impl Systemd {
    /// Makes sure that systemd answers. The error says what this host does not have.
    pub(crate) async fn connect() -> Result<Self, String> {
        if !Path::new(BOOTED).exists() {
            return Err("process 1 is not systemd".to_owned());
        }
        open().await.map(|_| Self(())).map_err(|error| {
            format!("systemd cannot be reached over the message bus of the system ({error})")
        })
    }

    /// Puts a process into a scope of its own and waits until it is there.
    pub(super) async fn adopt(
        &self,
        name: &str,
        pid: u32,
        limits: &Limits,
    ) -> Result<(), SandboxError> {
        let unit = format!("{name}.scope");
        within_deadline(&unit, "made", move_to_scope(&unit, pid, limits)).await
    }

    /// Whether the scope is still there. systemd takes it away with its last process, but keeps one
    /// whose process had ended before it could be moved.
    pub(super) fn exists(name: &str) -> io::Result<bool> {
        Ok(absent_is_none(fs::metadata(Self::cgroup(name)))?.is_some())
    }

    /// The cgroup of a scope. It goes with the last process in it.
    pub(super) fn cgroup(name: &str) -> PathBuf {
        cgroup_of(&format!("{name}.scope"))
    }

    /// Whether the machine is about to be switched off or restarted. It is as soon as that is asked for, before the
    /// first unit is stopped for it: `SystemState` is `stopping` once a job of `shutdown.target` is queued.
    pub(super) async fn node_goes_down(&self) -> Result<bool, NoAnswer> {
        let state = tokio::time::timeout(PATIENCE, system_state()).await;
        Ok(state.map_err(|_| NoAnswer::Late)?? == b"stopping")
    }

    /// Ends a scope. That it is gone already is success.
    pub(super) async fn remove(&self, name: &str) -> Result<(), SandboxError> {
        let unit = format!("{name}.scope");
        within_deadline(&unit, "ended", stop(&unit)).await
    }
}

/// systemd does not say how the machine stands.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// It cannot be asked.
    #[error("systemctl cannot be run")]
    NotThere(#[source] io::Error),
    /// It did not answer, however often it was asked.
    #[error("systemctl did not answer within {PATIENCE:?}")]
    Late,
}

/// What systemd says of itself, asked until it answers. systemd may signal all processes of a service that it stops, those
/// included that come while it does so: `systemctl` then dies without a message. Where it loses its connection, as to a
/// systemd that is just upgraded, it says `unknown`.
async fn system_state() -> Result<Vec<u8>, NoAnswer> {
    loop {
        // It asks systemd itself: the message bus may be gone already.
        let mut systemctl = Command::new("systemctl");
        systemctl
            .arg("is-system-running")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = systemctl.output().await.map_err(NoAnswer::NotThere)?;
        // The exit code says only whether the machine is `running`.
        let state = output.stdout.trim_ascii();
        if !matches!(state, b"" | b"unknown") {
            return Ok(state.to_vec());
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

async fn within_deadline(
    unit: &str,
    action: &'static str,
    work: impl Future<Output = Result<(), Cause>>,
) -> Result<(), SandboxError> {
    tokio::time::timeout(DEADLINE, work)
        .await
        .unwrap_or_else(|_| Err(format!("it took more than {DEADLINE:?}").into()))
        .map_err(|source| SandboxError::Systemd {
            unit: unit.to_owned(),
            action,
            source,
        })
}

async fn move_to_scope(unit: &str, pid: u32, limits: &Limits) -> Result<(), Cause> {
    match call("StartTransientUnit", &arguments(unit, pid, limits)).await {
        // Left over from an attempt whose process ended too early.
        Err(error) if is_named(&error, "UnitExists") && is_empty(unit)? => {
            stop(unit).await?;
            call("StartTransientUnit", &arguments(unit, pid, limits)).await?;
        }
        result => result?,
    }
    while !process::cgroups(pid)?.contains(unit) {
        if process::identify(pid)?.is_none() {
            return Err("the VMM ended before it could be moved".into());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// Ends a unit and waits until it has no cgroup any more.
async fn stop(unit: &str) -> Result<(), Cause> {
    match call("StopUnit", &(unit, "replace")).await {
        Err(error) if is_named(&error, "NoSuchUnit") => return Ok(()),
        result => result?,
    }
    while cgroup_of(unit).exists() {
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

fn cgroup_of(unit: &str) -> PathBuf {
    Path::new(SLICE_CGROUP).join(unit)
}

/// Whether no process lives in a unit's cgroup.
fn is_empty(unit: &str) -> io::Result<bool> {
    let processes = absent_is_none(fs::read_to_string(cgroup_of(unit).join("cgroup.procs")))?;
    Ok(processes.is_none_or(|text| text.trim().is_empty()))
}

/// Whether systemd answered with this error.
fn is_named(error: &zbus::Error, name: &str) -> bool {
    matches!(
        error,
        zbus::Error::MethodError(full, _, _)
            if full.as_str().strip_prefix("org.freedesktop.systemd1.") == Some(name)
    )
}

/// Calls a method of systemd's manager.
async fn call<B>(method: &str, arguments: &B) -> zbus::Result<()>
where
    B: serde::Serialize + zbus::wire::DynamicType,
{
    open()
        .await?
        .call_method(
            Some("org.freedesktop.systemd1"),
            "/org/freedesktop/systemd1",
            Some("org.freedesktop.systemd1.Manager"),
            method,
            arguments,
        )
        .await
        .map(drop)
}

/// The bus of the system. systemd's own socket is no other way: what it sends has a name for its sender that the
/// specification does not allow, and the library refuses it.
async fn open() -> zbus::Result<Connection> {
    Builder::system().method_timeout(DEADLINE).build().await
}

type Property = (&'static str, Value<'static>);

/// Name, mode, properties and auxiliary units, of which there are none.
type Arguments<'a> = (
    &'a str,
    &'a str,
    Vec<Property>,
    Vec<(&'a str, Vec<Property>)>,
);

fn arguments<'a>(unit: &'a str, pid: u32, limits: &Limits) -> Arguments<'a> {
    let mut properties = vec![
        ("Description", Value::from("Guest of kvmlet")),
        ("Slice", Value::from(SLICE)),
        ("PIDs", Value::from(vec![pid])),
        ("Before", Value::from(vec![SERVICE])),
        ("After", Value::from(NEEDED.to_vec())),
        // A scope that failed would keep its name.
        ("CollectMode", Value::from("inactive-or-failed")),
        ("MemoryMax", Value::from(limits.memory_bytes)),
        ("TasksMax", Value::from(limits.tasks)),
        ("CPUWeight", Value::from(limits.cpu_weight)),
        // No guest's disks keep another's waiting: the controller shares out evenly.
        ("IOAccounting", Value::from(true)),
    ];
    if let Some(microseconds) = limits.cpu_microseconds {
        properties.push(("CPUQuotaPerSecUSec", Value::from(microseconds)));
    }
    if let Some(cpus) = &limits.cpus {
        properties.push(("AllowedCPUs", Value::from(bits(cpus))));
    }
    (unit, "fail", properties, Vec::new())
}

/// A set of CPUs as systemd takes it: a bit for each, the lowest of the first byte first.
fn bits(cpus: &CpuSet) -> Vec<u8> {
    let mut bits = Vec::new();
    for cpu in cpus.iter() {
        let byte = usize::try_from(cpu / 8).unwrap_or(usize::MAX);
        if bits.len() <= byte {
            bits.resize(byte + 1, 0);
        }
        if let Some(byte) = bits.get_mut(byte) {
            *byte |= 1 << (cpu % 8);
        }
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_has_the_signature_that_systemd_documents() {
        let limits = Limits {
            memory_bytes: 1,
            tasks: 1,
            cpu_weight: 100,
            cpu_microseconds: Some(500_000),
            cpus: "0,9".parse().ok(),
        };
        assert_eq!(bits(limits.cpus.as_ref().unwrap()), [1, 2]);
        let message = zbus::Message::method_call("/org/freedesktop/systemd1", "StartTransientUnit")
            .build(&arguments("a.scope", 1, &limits))
            .unwrap();
        assert_eq!(
            message.body().signature().to_string_no_parens(),
            "ssa(sv)a(sa(sv))"
        );
    }
}
