//! Scopes of systemd's, asked for over D-Bus.
//!
//! A scope adopts a process that exists, so descriptors are inherited in the usual way, and it is
//! no part of the agent's service: stopping or killing that service does not touch it.

use std::path::Path;
use std::time::Duration;

use std::os::unix::net::UnixStream;
use zbus::Variant as Value;
use zbus::connection::{Builder, Connection};

use super::{Limits, SandboxError};
use crate::process;

const SLICE: &str = "kvmlet-guests.slice";

/// Exists where systemd is process 1 (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";

/// systemd's own socket, for hosts without a message bus.
const PRIVATE_SOCKET: &str = "/run/systemd/private";

/// Longest that systemd may take to make a scope.
const DEADLINE: Duration = Duration::from_secs(10);

/// How often is looked whether the process has been moved.
const POLL: Duration = Duration::from_millis(5);

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
        open()
            .await
            .map(|_| Self(()))
            .map_err(|error| format!("systemd can not be reached ({error})"))
    }

    /// Puts a process into a scope of its own and waits until it is there.
    pub(super) async fn adopt(
        &self,
        name: &str,
        pid: u32,
        limits: &Limits,
    ) -> Result<(), SandboxError> {
        let unit = format!("{name}.scope");
        let failed = |source| SandboxError::Systemd {
            unit: unit.clone(),
            source,
        };
        let moved = async {
            start_scope(&unit, pid, limits).await?;
            while !process::cgroups(pid)?.contains(&unit) {
                tokio::time::sleep(POLL).await;
            }
            Ok(())
        };
        tokio::time::timeout(DEADLINE, moved)
            .await
            .unwrap_or_else(|_| Err(format!("it took more than {DEADLINE:?}").into()))
            .map_err(failed)
    }
}

async fn start_scope(
    unit: &str,
    pid: u32,
    limits: &Limits,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let connection = open().await?;
    connection
        .call_method(
            Some("org.freedesktop.systemd1"),
            "/org/freedesktop/systemd1",
            Some("org.freedesktop.systemd1.Manager"),
            "StartTransientUnit",
            &arguments(unit, pid, limits),
        )
        .await?;
    Ok(())
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
        // A scope that failed would keep its name.
        ("CollectMode", Value::from("inactive-or-failed")),
        ("MemoryMax", Value::from(limits.memory_bytes)),
        ("TasksMax", Value::from(limits.tasks)),
        ("CPUWeight", Value::from(limits.cpu_weight)),
    ];
    if let Some(microseconds) = limits.cpu_microseconds {
        properties.push(("CPUQuotaPerSecUSec", Value::from(microseconds)));
    }
    (unit, "fail", properties, Vec::new())
}

/// The system bus, or systemd itself where there is none.
async fn open() -> zbus::Result<Connection> {
    match Builder::system().method_timeout(DEADLINE).build().await {
        Ok(connection) => Ok(connection),
        Err(no_bus) => {
            let Ok(stream) = UnixStream::connect(PRIVATE_SOCKET) else {
                return Err(no_bus);
            };
            Builder::unix_stream(stream)
                .p2p()
                .method_timeout(DEADLINE)
                .build()
                .await
        }
    }
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
        };
        let message = zbus::Message::method_call("/org/freedesktop/systemd1", "StartTransientUnit")
            .build(&arguments("a.scope", 1, &limits))
            .unwrap();
        assert_eq!(
            message.body().signature().to_string_no_parens(),
            "ssa(sv)a(sa(sv))"
        );
    }
}
