//! `kvmctl logs`: what a guest printed on its serial console, without attaching to it.

use std::io::IsTerminal;
use std::time::Duration;

use proto_node::node::{LogsRequest, LogsResponse};
use tokio::time::sleep;
use tonic::{Code, Streaming};

use crate::args::Logs;
use crate::client::Client;
use crate::failure::{Failure, is_unreachable};
use crate::output::{note, write_all};
use crate::resource::{Resource, vmi_names};
use crate::scope::Scope;
use crate::terminal::Tame;

/// Between attempts to reach an agent that was reached before, and how many of them there are.
const RETRY: Duration = Duration::from_millis(200);
const ATTEMPTS: u32 = 1500;

/// Prints what is kept, and with `--follow` what comes.
pub async fn run(scope: &Scope, args: Logs) -> Result<(), Failure> {
    if args.previous && args.follow {
        return Err(Failure::Usage(
            "--previous has ended: there is nothing to follow".to_owned(),
        ));
    }
    let names = vmi_names(&args.what)?;
    let [name] = names.as_slice() else {
        return Err(Failure::Usage("one VMI at a time".to_owned()));
    };
    let mut client = Client::new(scope)?;
    let mut reader = Reader {
        request: LogsRequest {
            namespace: scope.namespace().to_owned(),
            name: name.clone(),
            previous: args.previous,
            follow: args.follow,
            tail_bytes: args.tail_bytes,
            ..LogsRequest::default()
        },
        // What guests print must not type at a person's terminal.
        tame: (!args.raw && std::io::stdout().is_terminal()).then(Tame::default),
    };
    tokio::select! {
        done = reader.read(&mut client) => done,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

struct Reader {
    /// As it is asked next.
    request: LogsRequest,
    tame: Option<Tame>,
}

impl Reader {
    /// Reads to the end, through restarts of the agent.
    async fn read(&mut self, client: &mut Client) -> Result<(), Failure> {
        let mut failures = 0;
        loop {
            let lost = match client.logs(self.request.clone()).await {
                Ok(pieces) => {
                    failures = 0;
                    match self.print_all(pieces).await? {
                        None => return Ok(()),
                        Some(lost) => lost,
                    }
                }
                Err(status) => status,
            };
            // One that never answered, or that cannot say where it was, is not asked again.
            let may_go_on = self.request.follow && self.request.since_offset.is_some();
            failures += 1;
            let is_away = is_unreachable(&lost) || lost.code() == Code::Unavailable;
            if !may_go_on || !is_away || failures > ATTEMPTS {
                let kind = Resource::Vmi.kind();
                let name = &self.request.name;
                return Err(Failure::of_status(&lost, kind, name, client.address()));
            }
            sleep(RETRY).await;
        }
    }

    /// Prints what comes; the answer is how the connection was lost, if it was.
    async fn print_all(
        &mut self,
        mut pieces: Streaming<LogsResponse>,
    ) -> Result<Option<tonic::Status>, Failure> {
        loop {
            match pieces.message().await {
                Ok(Some(piece)) => self.print(&piece)?,
                Ok(None) => return Ok(None),
                Err(status) => return Ok(Some(status)),
            }
        }
    }

    fn print(&mut self, piece: &LogsResponse) -> Result<(), Failure> {
        if piece.lost_bytes > 0 {
            note(&format!(
                "{} bytes were printed faster than they could be read, and are lost",
                piece.lost_bytes
            ));
        }
        if let Some(offset) = piece.offset {
            let length = u64::try_from(piece.data.len()).unwrap_or(u64::MAX);
            self.request.since_offset = Some(offset.saturating_add(length));
            // From there on, and all of it.
            self.request.tail_bytes = None;
        }
        if !piece.uid.is_empty() {
            // A namesake that is made later is another guest.
            self.request.uid.clone_from(&piece.uid);
        }
        let mut out = std::io::stdout().lock();
        match &mut self.tame {
            Some(tame) => write_all(&mut out, &tame.tame(&piece.data)),
            None => write_all(&mut out, &piece.data),
        }
    }
}
