//! What a guest printed, for whoever does not want its console.

use std::time::Duration;

use agent_host::{Host, LogsError, Printed, Run};
use agent_plan::Record;
use agent_sources::{ApiError, Logs, LogsPieces};
use proto_node::node::LogsResponse;
use tokio::sync::mpsc;

use crate::agent::Agent;
use crate::error::store;
use crate::object;

/// Between two looks at what a guest printed.
const POLL: Duration = Duration::from_millis(250);

/// Largest piece.
const PIECE: usize = 64 << 10;

/// As much of what was told last is remembered, to find it again.
const TAIL: usize = 1024;

/// Pieces that wait for a slow client.
const BACKLOG: usize = 4;

type Pieces = mpsc::Sender<Result<LogsResponse, ApiError>>;

/// The client went away.
struct Gone;

impl<H: Host> Agent<H> {
    /// Begins to tell.
    pub(crate) async fn open_logs(&self, logs: Logs) -> Result<LogsPieces, ApiError> {
        let row = match self.row(&logs.target) {
            Err(ApiError::NotFound { .. }) if logs.previous && logs.uid.is_empty() => {
                return self.open_logs_of_gone(&logs);
            }
            row => row?,
        };
        object::check_uid(&logs.target, &logs.uid, &row)?;
        let record = self
            .ledger
            .record(&row.uid)
            .map_err(store)?
            .ok_or_else(|| object::not_found(&logs.target))?;
        let run = if logs.previous {
            Run::Previous
        } else {
            Run::Present
        };
        let mut printed = self
            .host
            .printed(&record, run)
            .await
            .map_err(|error| refusal(&logs, error))?;
        let base = printed.offset;
        let follow = logs.follow && !logs.previous && record.end.is_none();
        // Of a guest that prints all the time only the ring says where it stands.
        if follow
            && base.is_none()
            && let Ok(ring) = self.host.printed_since(&record, 0).await
        {
            printed = ring;
        }
        let subject = Subject {
            uid: row.uid,
            base,
            follow: follow.then_some(record),
        };
        Ok(self.begin_to_tell(&logs, subject, printed))
    }

    /// Of a VMI that is gone its name is all that there is to find it by.
    fn open_logs_of_gone(&self, logs: &Logs) -> Result<LogsPieces, ApiError> {
        let not_found = || object::not_found(&logs.target);
        let namespace = logs.target.namespace.parse().map_err(|()| not_found())?;
        let name = logs.target.name.parse().map_err(|()| not_found())?;
        let printed = match self.host.printed_of_gone(&namespace, &name) {
            Err(LogsError::NothingKept(_)) => return Err(not_found()),
            printed => printed.map_err(|error| refusal(logs, error))?,
        };
        Ok(self.begin_to_tell(logs, Subject::default(), printed))
    }

    fn begin_to_tell(&self, logs: &Logs, subject: Subject, mut printed: Printed) -> LogsPieces {
        if let Some(tail) = logs.tail_bytes {
            cut(&mut printed, tail);
        }
        if let (Some(since), Some(offset)) = (logs.since_offset, printed.offset) {
            let end = offset + printed.bytes.len() as u64;
            cut(&mut printed, end.saturating_sub(since));
        }
        let (out, pieces) = mpsc::channel(BACKLOG);
        let teller = Teller {
            base: subject.base,
            next: printed.offset,
            tail: Vec::new(),
            uid: subject.uid,
            out: out.clone(),
        };
        let mut stopping = self.stopping();
        let told = self.clone().tell_logs(teller, printed, subject.follow);
        tokio::spawn(async move {
            tokio::select! {
                _ = told => {}
                () = out.closed() => {}
                // An error means that the agent itself is gone.
                _ = stopping.wait_for(|stopping| *stopping) => {
                    let text = String::from("the agent is ending; ask the next one");
                    // A client that is gone already need not be told.
                    drop(out.try_send(Err(ApiError::Unavailable(text))));
                }
            }
        });
        pieces
    }

    /// Tells what was printed, and with a record what is printed until the guest has ended.
    async fn tell_logs(
        self,
        mut teller: Teller,
        printed: Printed,
        follow: Option<Record>,
    ) -> Result<(), Gone> {
        teller.tell(printed).await?;
        let Some(mut record) = follow else {
            return Ok(());
        };
        loop {
            tokio::time::sleep(POLL).await;
            // The VMM of a guest that is being started is another one each time.
            match self.ledger.record(&record.id.uid) {
                Ok(Some(now)) if now.incarnation == record.incarnation => record = now,
                Ok(Some(now)) => {
                    teller.begin_anew();
                    record = now;
                }
                Ok(None) | Err(_) => return Ok(()),
            }
            let from = teller.next.unwrap_or(0);
            match self.host.printed_since(&record, from).await {
                Ok(printed) => teller.tell(printed).await?,
                Err(_) if record.end.is_some() => {
                    let Ok(all) = self.host.printed(&record, Run::Present).await else {
                        return Ok(());
                    };
                    return teller.tell_rest(all.bytes).await;
                }
                // Not started yet, or silent: nothing is lost meanwhile.
                Err(_) => {}
            }
        }
    }
}

/// Whose output is told.
#[derive(Default)]
struct Subject {
    /// Of the VMI; empty when that is gone.
    uid: String,
    /// Where the log's file began when it was read.
    base: Option<u64>,
    /// Whose output is followed.
    follow: Option<Record>,
}

/// One client's way through the output of a guest.
struct Teller {
    /// Where the log's file began when it was read.
    base: Option<u64>,
    /// The byte to be told next.
    next: Option<u64>,
    /// The last that was told.
    tail: Vec<u8>,
    /// Of the VMI.
    uid: String,
    out: Pieces,
}

impl Teller {
    /// Another VMM's output begins.
    fn begin_anew(&mut self) {
        self.base = Some(0);
        self.next = Some(0);
        self.tail.clear();
    }

    async fn tell(&mut self, printed: Printed) -> Result<(), Gone> {
        let mut offset = printed.offset;
        let mut lost_bytes = match (self.next, offset) {
            (Some(next), Some(offset)) => offset.saturating_sub(next),
            _ => 0,
        };
        for piece in printed.bytes.chunks(PIECE) {
            let response = LogsResponse {
                offset,
                data: piece.to_vec(),
                lost_bytes: std::mem::take(&mut lost_bytes),
                uid: self.uid.clone(),
            };
            self.out.send(Ok(response)).await.map_err(|_| Gone)?;
            offset = offset.map(|offset| offset + piece.len() as u64);
        }
        self.next = offset.or(self.next);
        self.tail.extend(&printed.bytes);
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
        Ok(())
    }

    /// Tells what a VMM that is gone printed since the last look: the end of its log.
    async fn tell_rest(&mut self, log: Vec<u8>) -> Result<(), Gone> {
        let Some(next) = self.next else {
            return Ok(());
        };
        let told = self.told_of(&log, next);
        let rest = log.get(told..).unwrap_or_default().to_vec();
        self.tell(Printed {
            offset: Some(next),
            bytes: rest,
        })
        .await
    }

    /// How much of the log was told. Its older half may have gone meanwhile; then what was told last says
    /// where it stands.
    fn told_of(&self, log: &[u8], next: u64) -> usize {
        let ends_there = |end: usize| {
            log.get(..end)
                .is_some_and(|told| told.ends_with(&self.tail))
        };
        let expected = self.base.and_then(|base| next.checked_sub(base));
        let expected = expected.and_then(|told| usize::try_from(told).ok());
        if let Some(expected) = expected.filter(|end| ends_there(*end)) {
            return expected;
        }
        (self.tail.len()..=log.len())
            .find(|end| ends_there(*end))
            // More was printed since than is kept.
            .unwrap_or(0)
    }
}

/// Keeps the end of what was printed.
fn cut(printed: &mut Printed, tail_bytes: u64) {
    let tail = usize::try_from(tail_bytes).unwrap_or(usize::MAX);
    let surplus = printed.bytes.len().saturating_sub(tail);
    printed.bytes.drain(..surplus);
    printed.offset = printed.offset.map(|offset| offset + surplus as u64);
}

fn refusal(logs: &Logs, error: LogsError) -> ApiError {
    let name = &logs.target.name;
    match error {
        LogsError::NothingKept(why) => ApiError::Absent(format!("{name:?}: {why}")),
        LogsError::NotRunning => ApiError::Forbidden(format!("{name:?} is not running")),
        LogsError::Vmm(_) => ApiError::Unavailable(error.to_string()),
        LogsError::Unreadable(cause) => {
            tracing::error!(vmi = name, error = %cause, "a console log can not be read");
            ApiError::Internal(format!(
                "the console log of {name:?} can not be read: {cause}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(offset: Option<u64>, text: &str) -> Printed {
        Printed {
            offset,
            bytes: text.as_bytes().to_vec(),
        }
    }

    fn teller(base: u64) -> (Teller, LogsPieces) {
        let (out, pieces) = mpsc::channel(64);
        let teller = Teller {
            base: Some(base),
            next: Some(base),
            tail: Vec::new(),
            uid: String::from("u1"),
            out,
        };
        (teller, pieces)
    }

    fn told(mut pieces: LogsPieces) -> (String, u64) {
        let mut text = String::new();
        let mut lost = 0;
        while let Ok(Ok(piece)) = pieces.try_recv() {
            text.push_str(std::str::from_utf8(&piece.data).unwrap());
            lost += piece.lost_bytes;
        }
        (text, lost)
    }

    #[tokio::test]
    async fn pieces_follow_each_other_and_a_gap_is_told() {
        let (mut teller, pieces) = teller(100);
        assert!(teller.tell(printed(Some(100), "one ")).await.is_ok());
        assert!(teller.tell(printed(Some(104), "two ")).await.is_ok());
        assert!(teller.tell(printed(Some(118), "three")).await.is_ok());
        assert_eq!(told(pieces), ("one two three".to_owned(), 10));
    }

    #[tokio::test]
    async fn what_was_printed_last_is_told_though_the_vmm_is_gone() {
        let logs = [
            // As it was read, and longer since.
            "0123456789 told, and the panic",
            // Its older half has gone.
            "9 told, and the panic",
        ];
        for log in logs {
            let (mut teller, pieces) = teller(50);
            assert!(
                teller
                    .tell(printed(Some(50), "0123456789 told"))
                    .await
                    .is_ok()
            );
            teller.tail = b"9 told".to_vec();
            assert!(teller.tell_rest(log.as_bytes().to_vec()).await.is_ok());
            let (text, lost) = told(pieces);
            assert_eq!((text.as_str(), lost), ("0123456789 told, and the panic", 0));
        }
    }

    #[test]
    fn only_the_end_is_told_when_that_is_asked_for() {
        let mut all = printed(Some(7), "0123456789");
        cut(&mut all, 4);
        assert_eq!(all, printed(Some(13), "6789"));
        cut(&mut all, 100);
        assert_eq!(all, printed(Some(13), "6789"));
        let mut ended = printed(None, "0123");
        cut(&mut ended, 0);
        assert_eq!(ended, printed(None, ""));
    }
}
