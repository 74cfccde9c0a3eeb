//! Waiting for a guest to answer on a port: it may have to be started yet, and what listens in it takes longer.

use std::time::{Duration, Instant};

use agent_domain::Transport;
use proto_node::node::object::Kind;
use proto_node::node::port_forward_response::Body as Reply;
use proto_node::{FailureReason, failure_reason};
use serde_json::Value;
use tonic::Status;

use crate::args::SshOptions;
use crate::client::Client;
use crate::failure::{Failure, is_unreachable};
use crate::guest::Guest;
use crate::no_guest;
use crate::output::note;
use crate::port_forward::ports::Ports;
use crate::port_forward::{Key, Target};
use crate::resource::Resource;
use crate::scope::Scope;
use crate::state::{ended, strategy, way_to_start};

use super::host_key::vmi_of;

/// Between attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// How long one that listens may take to say its first word. SSH's server speaks first (RFC 4253, section 4.2); one that
/// does not is left to the client.
const FIRST_WORD: Duration = Duration::from_secs(30);

/// One guest and one of its ports.
struct Waiting<'a> {
    guest: &'a Guest,
    target: Target,
    /// What a command that is proposed needs to find the guest.
    option: String,
    /// Whether an agent has answered once.
    is_reached: bool,
    /// Whether the guest was seen with a network interface.
    has_interface: bool,
}

/// Returns when something answers on the port, and tells what it waits for until then.
pub async fn until_answered(
    scope: &Scope,
    client: &mut Client,
    guest: &Guest,
    options: &SshOptions,
) -> Result<(), Failure> {
    let mut waiting = Waiting {
        guest,
        target: Target {
            address: scope.address()?,
            key: Key {
                namespace: guest.namespace.clone(),
                name: guest.name.clone(),
            },
            ports: Ports {
                protocol: Transport::Tcp,
                local: 0,
                target: options.port,
            },
        },
        option: scope.option_for(&guest.namespace),
        is_reached: false,
        has_interface: false,
    };
    let start = Instant::now();
    let mut last = String::new();
    loop {
        let Some(why) = waiting.attempt(client).await? else {
            if !last.is_empty() {
                let seconds = start.elapsed().as_secs_f64();
                note(&format!("{guest} answers after {seconds:.1} s"));
            }
            return Ok(());
        };
        let left = options.wait.saturating_sub(start.elapsed());
        if left.is_zero() {
            let port = options.port;
            return Err(if options.wait.is_zero() {
                Failure::refused(format!("{guest} does not answer on port {port}: {why}"))
            } else {
                Failure::TimedOut(format!(
                    "error: timed out waiting for {guest} to answer on port {port}: {why} (--wait gives it longer)"
                ))
            });
        }
        if why != last {
            note(&format!("waiting for {guest}: {why}"));
            last = why;
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE.min(left)) => {}
            _ = tokio::signal::ctrl_c() => {
                let text = format!("no longer waiting; {guest} stays as it is on the node");
                return Err(Failure::Interrupted(text));
            }
        }
    }
}

impl Waiting<'_> {
    /// Nothing when the guest answers, else why it does not yet. An error is what waiting does not change.
    async fn attempt(&mut self, client: &mut Client) -> Result<Option<String>, Failure> {
        let status = match self.target.connect().await {
            Ok(mut tunnel) => {
                self.is_reached = true;
                let first = tokio::time::timeout(FIRST_WORD, tunnel.responses.message()).await;
                return Ok(match first {
                    // It listens, and waits for the other end to begin.
                    Err(_) => None,
                    Ok(Ok(Some(first))) if matches!(first.body, Some(Reply::Data(_))) => None,
                    Ok(Ok(_)) => Some("the guest ended the connection at once".to_owned()),
                    Ok(Err(status)) => Some(status.message().to_owned()),
                });
            }
            Err(status) => status,
        };
        if is_unreachable(&status) {
            let failure = self.target.failure(&status);
            return if self.is_reached {
                Ok(Some("the agent went away".to_owned()))
            } else {
                Err(failure)
            };
        }
        self.is_reached = true;
        self.check_interfaces(client).await?;
        match failure_reason(&status) {
            Some(FailureReason::ServiceUnavailable | FailureReason::Forbidden) => {
                Ok(Some(status.message().to_owned()))
            }
            Some(FailureReason::Conflict | FailureReason::NotFound) if self.guest.is_machine => {
                self.machine(client, &status).await
            }
            Some(FailureReason::Conflict) => self.vmi(client, &status).await,
            _ => Err(self.target.failure(&status)),
        }
    }

    /// Refuses a guest without a network interface: waiting does not give it one.
    async fn check_interfaces(&mut self, client: &mut Client) -> Result<(), Failure> {
        if self.has_interface {
            return Ok(());
        }
        let vmi = vmi_of(client, self.guest).await;
        let spec = vmi.as_ref().and_then(|vmi| vmi.spec.as_ref());
        let devices = spec.and_then(|spec| spec.domain.as_ref()?.devices.as_ref());
        let Some(devices) = devices else {
            return Ok(());
        };
        self.has_interface = !devices.interfaces.is_empty();
        if self.has_interface {
            return Ok(());
        }
        let why = match devices.autoattach_pod_interface {
            Some(false) => "spec.domain.devices.autoattachPodInterface is false",
            _ => "spec.domain.devices.interfaces is empty",
        };
        let (guest, option) = (self.guest, &self.option);
        Err(Failure::refused(format!(
            "{guest} has no network interface ({why}), so it answers on no port: `kvmctl console {guest}{option}` needs none"
        )))
    }

    /// Why the guest of a machine does not run, if it will.
    async fn machine(
        &self,
        client: &mut Client,
        refused: &Status,
    ) -> Result<Option<String>, Failure> {
        let Guest {
            name, namespace, ..
        } = self.guest;
        let machine = no_guest::machine(client, namespace, name).await?;
        let text = |path: &str| machine.pointer(path).and_then(Value::as_str).unwrap_or("");
        let state = text("/status/printableStatus");
        let strategy = strategy(&machine);
        let is_asked = machine.pointer("/status/stateChangeRequests").is_some();
        let stays = match strategy.as_str() {
            "Always" => false,
            "Halted" => true,
            _ => matches!(state, "Stopped" | "Terminating") && !is_asked,
        };
        if stays {
            return Err(Failure::refused(format!(
                "{} is not running ({state}, run strategy {strategy}): {}",
                self.guest,
                way_to_start(&strategy, name, &self.option)
            )));
        }
        Ok(Some(match state {
            "" => refused.message().to_owned(),
            state => format!("it is {state}{}", because(&machine)),
        }))
    }

    /// Why a VMI does not run, if it may yet.
    async fn vmi(&self, client: &mut Client, refused: &Status) -> Result<Option<String>, Failure> {
        let Guest {
            name, namespace, ..
        } = self.guest;
        let kind = Resource::Vmi.kind();
        let object = client.named(kind, namespace, name).await?;
        if let Some(Kind::VirtualMachineInstance(vmi)) = &object.kind
            && let Some(over) = ended(vmi, &self.option)
        {
            return Err(Failure::refused(format!(
                "{} has ended: {over}",
                self.guest
            )));
        }
        Ok(Some(refused.message().to_owned()))
    }
}

/// What the conditions of a machine say of what it lacks.
fn because(machine: &Value) -> String {
    let conditions = machine
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let reason = conditions.into_iter().flatten().find_map(|condition| {
        let is_reason = match condition["type"].as_str()? {
            "Failure" => condition["status"] == "True",
            "PodScheduled" | "Synchronized" => condition["status"] == "False",
            _ => false,
        };
        let message = condition["message"].as_str()?;
        (is_reason && !message.is_empty()).then(|| format!(": {message}"))
    });
    reason.unwrap_or_default()
}
