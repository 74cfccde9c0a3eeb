//! `kvmctl console`: the serial console of a guest, kept through restarts of the agent.

use std::time::Duration;

use proto_node::node::console_closed::Reason;
use proto_node::node::{
    ConsoleAttach, ConsoleAttached, ConsoleClosed, ConsoleRequest, ConsoleResponse,
    console_request, console_response,
};
use proto_node::{FailureReason, failure_reason};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::agent_address::AgentAddress;
use crate::args::Console;
use crate::client::Client;
use crate::failure::{Failure, is_unreachable};
use crate::follow::{self, Key, not_found};
use crate::machines;
use crate::no_guest;
use crate::output::{note, write_all};
use crate::resource::{Resource, vmi_name};
use crate::scope::Scope;
use crate::state::{as_vmi, ended};
use crate::terminal::{RawMode, stdin_bytes};

/// Ctrl+].
const ESCAPE: u8 = 0x1d;
/// How long to wait between attempts to reach the agent again, and how often to try.
const RETRY: Duration = Duration::from_millis(200);
const ATTEMPTS: u32 = 1500;

/// Attaches, and stays attached until somebody or something ends it.
pub async fn run(scope: &Scope, args: Console) -> Result<(), Failure> {
    let key = key(scope, &args)?;
    let mut client = Client::new(scope)?;
    wait_running(&mut client, scope, &key, &args).await?;
    let raw = RawMode::enter()?;
    let mut session = Session {
        key,
        args,
        address: client.address().clone(),
        uid: String::new(),
        position: None,
        replayed_until: 0,
        input: stdin_bytes(),
        input_open: true,
        interactive: raw.is_some(),
    };
    let outcome = session.keep_attached(&mut client).await;
    drop(raw);
    if session.interactive {
        note("");
    }
    outcome
}

fn key(scope: &Scope, args: &Console) -> Result<Key, Failure> {
    let name = vmi_name(&args.name);
    let name = name.map_err(|_| Failure::Usage(format!("{:?} has no console", args.name)))?;
    let namespace = scope.namespace();
    Ok(Key::new(scope, Resource::Vmi, namespace, &name))
}

/// Waits for a guest that is still being started.
async fn wait_running(
    client: &mut Client,
    scope: &Scope,
    key: &Key,
    args: &Console,
) -> Result<(), Failure> {
    let mut is_noted = false;
    let mut is_missing = false;
    let waited = follow::until(client, key, args.timeout, "the guest to run", |object| {
        let Some(vmi) = object.and_then(as_vmi) else {
            is_missing = true;
            return Err(not_found(key));
        };
        if let Some(over) = ended(vmi, &key.option) {
            return Err(Failure::refused(format!(
                "{} has ended: {over}",
                key.full_name()
            )));
        }
        let status = vmi.status.as_ref();
        let running = status.is_some_and(|status| status.phase == "Running");
        if !running && !is_noted {
            note(&format!("waiting for {} to run", key.name));
            is_noted = true;
        }
        Ok(running)
    });
    match waited.await {
        Err(_)
            if is_missing && machines::typed_names(std::slice::from_ref(&args.name))?.is_some() =>
        {
            Err(no_guest::why(client, scope, &key.name).await)
        }
        waited => waited,
    }
}

/// One person's or script's attachment.
struct Session {
    key: Key,
    args: Console,
    /// For messages.
    address: AgentAddress,
    /// Uid of the VMI, once it is known: a namesake is another guest.
    uid: String,
    /// Offset in the guest's output of the next byte to print, once it is known.
    position: Option<u64>,
    /// Output before this offset was printed before the connection was lost.
    replayed_until: u64,
    input: mpsc::Receiver<Vec<u8>>,
    input_open: bool,
    interactive: bool,
}

/// Why an attachment is over.
enum End {
    /// It was left, or the guest ended.
    Done,
    /// The connection was lost.
    Lost,
}

impl Session {
    async fn keep_attached(&mut self, client: &mut Client) -> Result<(), Failure> {
        let mut failures = 0;
        loop {
            let (requests, receiver) = mpsc::channel(16);
            // There is room for the first message in a new channel.
            requests
                .try_send(self.attach_request())
                .map_err(|error| Failure::refused(format!("console: {error}")))?;
            match client.console(ReceiverStream::new(receiver)).await {
                Ok(responses) => {
                    match self.converse(requests, responses).await? {
                        End::Done => return Ok(()),
                        End::Lost => {
                            self.note("the agent went away; the guest runs on; reattaching")
                        }
                    }
                    failures = 0;
                }
                Err(status) if self.position.is_some() && is_unreachable(&status) => {
                    failures += 1;
                    if failures > ATTEMPTS {
                        return Err(self.failure(&status));
                    }
                }
                Err(status) => return Err(self.failure(&status)),
            }
            sleep(RETRY).await;
        }
    }

    fn failure(&self, status: &Status) -> Failure {
        let (kind, name) = (self.key.resource.kind(), &self.key.name);
        let failure = Failure::of_status(status, kind, name, &self.address);
        match failure_reason(status) {
            // Somebody else is attached.
            Some(FailureReason::AlreadyExists) => {
                Failure::Refused(format!("{failure}; --force takes it over"))
            }
            _ => failure,
        }
    }

    fn attach_request(&self) -> ConsoleRequest {
        let again = self.position.is_some();
        ConsoleRequest {
            body: Some(console_request::Body::Attach(ConsoleAttach {
                namespace: self.key.namespace.clone(),
                name: self.key.name.clone(),
                uid: self.uid.clone(),
                // Whoever still holds the console after a lost connection is this client itself.
                force: self.args.force || again,
                replay: self.args.replay || again,
                replay_from: self.position.unwrap_or(0),
                client: client_name(&self.address),
            })),
        }
    }

    /// Carries bytes both ways until one end is over.
    async fn converse(
        &mut self,
        requests: mpsc::Sender<ConsoleRequest>,
        mut responses: Streaming<ConsoleResponse>,
    ) -> Result<End, Failure> {
        let failed = |error: std::io::Error| Failure::refused(format!("signals: {error}"));
        let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
        let mut hung_up = signal(SignalKind::hangup()).map_err(failed)?;
        let mut idle_at = Instant::now() + self.args.idle;
        let mut pending: Option<Vec<u8>> = None;
        let mut leaving = false;
        loop {
            tokio::select! {
                response = responses.message() => match response {
                    Ok(Some(response)) => {
                        idle_at = Instant::now() + self.args.idle;
                        if self.receive(response)? {
                            return Ok(End::Done);
                        }
                    }
                    Ok(None) => return Ok(End::Lost),
                    Err(status) if is_unreachable(&status) => return Ok(End::Lost),
                    Err(status) => return Err(self.failure(&status)),
                },
                bytes = self.input.recv(), if self.input_open && pending.is_none() => match bytes {
                    Some(bytes) => {
                        let escape = bytes.iter().position(|byte| *byte == ESCAPE);
                        leaving = escape.is_some();
                        pending = Some(bytes.get(..escape.unwrap_or(bytes.len())).unwrap_or_default().to_vec());
                    }
                    None => {
                        self.input_open = false;
                        idle_at = Instant::now() + self.args.idle;
                    }
                },
                // Never waits for room while output could be read: the guest echoes what it is sent.
                permit = requests.reserve(), if pending.is_some() => {
                    if let (Ok(permit), Some(bytes)) = (permit, pending.take())
                        && !bytes.is_empty()
                    {
                        permit.send(data_request(bytes));
                    }
                    if leaving {
                        return Ok(End::Done);
                    }
                }
                () = sleep_until(idle_at), if !self.input_open => return Ok(End::Done),
                _ = terminated.recv() => return Ok(End::Done),
                _ = hung_up.recv() => return Ok(End::Done),
            }
        }
    }

    /// Takes what the agent sent; `true` when it was the last.
    fn receive(&mut self, response: ConsoleResponse) -> Result<bool, Failure> {
        match response.body {
            Some(console_response::Body::Attached(attached)) => {
                self.attached(attached);
                Ok(false)
            }
            Some(console_response::Body::Data(data)) => {
                self.print(&data)?;
                Ok(false)
            }
            Some(console_response::Body::Closed(closed)) => {
                self.closed(&closed)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn attached(&mut self, attached: ConsoleAttached) {
        match self.position {
            None => {
                self.note(&format!(
                    "Successfully connected to {} console. Press Ctrl+] to exit console.",
                    self.key.name
                ));
                if !attached.took_over_from.is_empty() {
                    self.note(&format!("taken over from {}", attached.took_over_from));
                }
            }
            Some(reached) if attached.offset > reached => {
                self.note(&format!(
                    "reattached; {} bytes were lost",
                    attached.offset - reached
                ));
            }
            Some(_) => self.note("reattached"),
        }
        self.uid = attached.uid;
        self.replayed_until = self.position.unwrap_or(0);
        self.position = Some(attached.offset);
    }

    /// Prints what has not been printed before.
    fn print(&mut self, data: &[u8]) -> Result<(), Failure> {
        let start = self.position.unwrap_or(0);
        let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
        self.position = Some(start.saturating_add(length));
        let known =
            usize::try_from(self.replayed_until.saturating_sub(start)).unwrap_or(usize::MAX);
        let fresh = data.get(known.min(data.len())..).unwrap_or_default();
        write_all(&mut std::io::stdout().lock(), fresh)
    }

    fn closed(&self, closed: &ConsoleClosed) -> Result<(), Failure> {
        match closed.reason() {
            Reason::TakenOver => Err(Failure::refused(closed.message.clone())),
            Reason::GuestEnded | Reason::Unspecified => {
                self.note(&closed.message);
                Ok(())
            }
        }
    }

    /// Prints a line for the user, whatever the terminal's mode.
    fn note(&self, text: &str) {
        if self.interactive {
            note(&format!("\r\n{text}\r"));
        } else {
            note(text);
        }
    }
}

fn data_request(bytes: Vec<u8>) -> ConsoleRequest {
    ConsoleRequest {
        body: Some(console_request::Body::Data(bytes)),
    }
}

/// Who attaches, for those who find the console in use. The agent says user and process by itself where it
/// can tell.
fn client_name(address: &AgentAddress) -> String {
    if matches!(address, AgentAddress::Socket(_)) {
        return "kvmctl".to_owned();
    }
    let user = std::env::var("USER").unwrap_or_else(|_| format!("uid {}", nix::unistd::getuid()));
    format!("{user} (kvmctl, pid {})", std::process::id())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn the_timeout_is_in_minutes_as_virtctl_has_it() {
        for (typed, seconds) in [("5", 300), ("90s", 90), ("1h", 3600), ("0", 0)] {
            let cli = Cli::try_parse_from(["kvmctl", "console", "web", "--timeout", typed]);
            let Ok(Cli {
                command: Command::Console(args),
                ..
            }) = cli
            else {
                panic!("{typed} is not taken");
            };
            assert_eq!(args.timeout, Duration::from_secs(seconds), "{typed}");
        }
        for wrong in ["", "5x", "-1", "99999999999999999999"] {
            let cli = Cli::try_parse_from(["kvmctl", "console", "web", "--timeout", wrong]);
            assert!(cli.is_err(), "{wrong}");
        }
    }
}
