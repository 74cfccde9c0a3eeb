//! What a guest printed, for whoever does not want its console.

use std::time::Duration;

use agent_host::{Host, LogReader, LogsError, Piece, Printed, Run};
use agent_plan::Record;
use agent_sources::{ApiError, Logs, LogsPieces};
use proto_node::node::LogsResponse;
use tokio::sync::mpsc;

use super::Guests;
use crate::error::store;
use crate::object;

/// Interval between two reads of what a guest printed.
const POLL: Duration = Duration::from_millis(250);

/// Largest piece. A client that does not read has one on its way, and the next is not read before that has left.
const PIECE: usize = 32 << 10;

/// Bytes of the last output sent that are kept, to find the place again.
const TAIL: usize = 1024;

/// Pieces that wait for a slow client.
const BACKLOG: usize = 1;

type Pieces = mpsc::Sender<Result<LogsResponse, ApiError>>;

/// The client went away.
struct ClientGone;

impl<H: Host> Guests<H> {
    /// Starts to send what a guest printed.
    pub(super) async fn open_logs(&self, logs: Logs) -> Result<LogsPieces, ApiError> {
        let row = match self.store.row(&logs.target) {
            Err(ApiError::NotFound { .. }) if logs.previous && logs.uid.is_empty() => {
                return self.open_logs_of_gone(&logs);
            }
            row => row?,
        };
        object::check_uid(&logs.target, &logs.uid, &row)?;
        let record = self
            .store
            .ledger()
            .record(&row.uid)
            .map_err(store)?
            .ok_or_else(|| object::not_found(&logs.target))?;
        let run = if logs.previous {
            Run::Previous
        } else {
            Run::Present
        };
        let kept = self.host.printed(&record, run).await;
        let kept = kept.map_err(|error| refusal(&logs, error))?;
        let base = kept.offset;
        let mut source = Source::Log(kept);
        let follow = logs.follow && !logs.previous && record.report.end.is_none();
        // Of a guest that prints all the time only the ring says where it stands.
        if follow
            && base.is_none()
            && let Ok(ring) = self.host.printed_since(&record, 0).await
        {
            source = Source::Ring(ring);
        }
        let subject = Subject {
            uid: row.uid,
            base,
            reopened: (run == Run::Present).then(|| record.clone()),
            follow: follow.then_some(record),
        };
        Ok(self.start_sending(&logs, subject, source))
    }

    /// Of a VMI that is gone its name is all that there is to find it by.
    fn open_logs_of_gone(&self, logs: &Logs) -> Result<LogsPieces, ApiError> {
        let not_found = || object::not_found(&logs.target);
        let namespace = logs.target.namespace.parse().map_err(|()| not_found())?;
        let name = logs.target.name.parse().map_err(|()| not_found())?;
        let log = match self.host.printed_of_gone(&namespace, &name) {
            Err(LogsError::NothingKept(_)) => return Err(not_found()),
            log => log.map_err(|error| refusal(logs, error))?,
        };
        Ok(self.start_sending(logs, Subject::default(), Source::Log(log)))
    }

    fn start_sending(&self, logs: &Logs, subject: Subject, mut source: Source) -> LogsPieces {
        if let Some(tail) = logs.tail_bytes {
            source.keep_last(tail);
        }
        if let (Some(since), Some(offset)) = (logs.since_offset, source.offset()) {
            let end = offset + source.left();
            source.keep_last(end.saturating_sub(since));
        }
        let (out, pieces) = mpsc::channel(BACKLOG);
        let sender = LogSender {
            base: subject.base,
            next: source.offset(),
            tail: Vec::new(),
            uid: subject.uid.clone(),
            out: out.clone(),
        };
        let mut stopping = self.actors.stopping();
        let sending = self.clone().send_logs(sender, source, subject);
        tokio::spawn(async move {
            tokio::select! {
                _ = sending => {}
                () = out.closed() => {}
                // An error means that the agent itself is gone.
                _ = stopping.wait_for(|stopping| *stopping) => {
                    let text = String::from("the agent is ending; ask the next one");
                    // A client that is gone already needs no answer.
                    drop(out.try_send(Err(ApiError::Unavailable(text))));
                }
            }
        });
        pieces
    }

    /// Sends what was printed, and with a record what is printed until the guest has ended.
    async fn send_logs(
        self,
        mut sender: LogSender,
        source: Source,
        subject: Subject,
    ) -> Result<(), ClientGone> {
        match source {
            Source::Ring(ring) => sender.send(ring).await?,
            Source::Log(mut log) => {
                while sender.send_log(&mut log).await? == Piece::Moved {
                    // Only the present VMM's log can lose its older half.
                    let Some(record) = &subject.reopened else {
                        break;
                    };
                    let Ok(again) = self.host.printed(record, Run::Present).await else {
                        break;
                    };
                    log = again;
                    sender.resume(&mut log)?;
                }
            }
        }
        let Some(mut record) = subject.follow else {
            return Ok(());
        };
        loop {
            tokio::time::sleep(POLL).await;
            // The VMM of a guest that is being started is another one each time.
            match self.store.ledger().record(&record.id.uid) {
                Ok(Some(now)) if now.launches.incarnation() == record.launches.incarnation() => {
                    record = now
                }
                Ok(Some(now)) => {
                    sender.begin_anew();
                    record = now;
                }
                Ok(None) | Err(_) => return Ok(()),
            }
            let from = sender.next.unwrap_or(0);
            match self.host.printed_since(&record, from).await {
                Ok(printed) => sender.send(printed).await?,
                Err(_) if record.report.end.is_some() => {
                    let Ok(mut log) = self.host.printed(&record, Run::Present).await else {
                        return Ok(());
                    };
                    return sender.send_rest(&mut log).await;
                }
                // Not started yet, or silent: nothing is lost meanwhile.
                Err(_) => {}
            }
        }
    }
}

/// The guest whose output is sent.
#[derive(Default)]
struct Subject {
    /// Of the VMI; empty when that is gone.
    uid: String,
    /// Where the log's file began when it was read.
    base: Option<u64>,
    /// Whose log is opened again when it has lost its older half.
    reopened: Option<Record>,
    /// Whose output is followed.
    follow: Option<Record>,
}

/// What a reader gets first.
enum Source {
    /// What the log's file has.
    Log(LogReader),
    /// What the VMM itself still has.
    Ring(Printed),
}

impl Source {
    fn offset(&self) -> Option<u64> {
        match self {
            Self::Log(log) => log.offset,
            Self::Ring(ring) => ring.offset,
        }
    }

    fn left(&self) -> u64 {
        match self {
            Self::Log(log) => log.left(),
            Self::Ring(ring) => ring.bytes.len() as u64,
        }
    }

    fn keep_last(&mut self, bytes: u64) {
        match self {
            Self::Log(log) => log.keep_last(bytes),
            Self::Ring(ring) => cut(ring, bytes),
        }
    }
}

/// One client's way through the output of a guest.
struct LogSender {
    /// Where the log's file began when it was read.
    base: Option<u64>,
    /// Offset of the byte to send next.
    next: Option<u64>,
    /// The last bytes sent, at most [`TAIL`].
    tail: Vec<u8>,
    /// Of the VMI.
    uid: String,
    out: Pieces,
}

impl LogSender {
    /// Another VMM's output begins.
    fn begin_anew(&mut self) {
        self.base = Some(0);
        self.next = Some(0);
        self.tail.clear();
    }

    async fn send(&mut self, printed: Printed) -> Result<(), ClientGone> {
        let mut offset = printed.offset;
        let mut lost_bytes = self.lost(offset);
        for piece in printed.bytes.chunks(PIECE) {
            let place = self
                .out
                .clone()
                .reserve_owned()
                .await
                .map_err(|_| ClientGone)?;
            let lost_bytes = std::mem::take(&mut lost_bytes);
            place.send(Ok(self.response(offset, piece.to_vec(), lost_bytes)));
            offset = offset.map(|offset| offset + piece.len() as u64);
        }
        self.next = offset.or(self.next);
        Ok(())
    }

    /// Sends a log to its end, or to where it has lost its older half. Nothing is read before there is a place for it.
    async fn send_log(&mut self, log: &mut LogReader) -> Result<Piece, ClientGone> {
        let mut lost_bytes = self.lost(log.offset);
        loop {
            let place = self
                .out
                .clone()
                .reserve_owned()
                .await
                .map_err(|_| ClientGone)?;
            let offset = log.offset;
            match log.read(PIECE) {
                Ok(Piece::Bytes(bytes)) => {
                    let lost_bytes = std::mem::take(&mut lost_bytes);
                    let length = bytes.len() as u64;
                    place.send(Ok(self.response(offset, bytes, lost_bytes)));
                    self.next = offset.or(self.next).map(|offset| offset + length);
                }
                Ok(over) => return Ok(over),
                Err(error) => {
                    place.send(Err(unreadable(&self.uid, &error)));
                    return Err(ClientGone);
                }
            }
        }
    }

    /// Bytes of output between the last byte sent and `offset`, which the client does not get.
    fn lost(&self, offset: Option<u64>) -> u64 {
        match (self.next, offset) {
            (Some(next), Some(offset)) => offset.saturating_sub(next),
            _ => 0,
        }
    }

    fn response(&mut self, offset: Option<u64>, data: Vec<u8>, lost_bytes: u64) -> LogsResponse {
        self.tail.extend(&data);
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
        LogsResponse {
            offset,
            data,
            lost_bytes,
            uid: self.uid.clone(),
        }
    }

    /// Has a log that was opened again go on where this one stands.
    fn resume(&self, log: &mut LogReader) -> Result<(), ClientGone> {
        if let (Some(next), Some(offset)) = (self.next, log.offset) {
            let end = offset + log.left();
            log.keep_last(end.saturating_sub(next));
            return Ok(());
        }
        log.resume(None, &self.tail).map_err(|error| {
            tracing::error!(%error, "a console log cannot be read");
            ClientGone
        })
    }

    /// Sends what a VMM that is gone printed since the last read: the end of its log.
    async fn send_rest(&mut self, log: &mut LogReader) -> Result<(), ClientGone> {
        let Some(next) = self.next else {
            return Ok(());
        };
        let sent = self.base.and_then(|base| next.checked_sub(base));
        log.resume(sent, &self.tail).map_err(|error| {
            tracing::error!(%error, "a console log cannot be read");
            ClientGone
        })?;
        log.offset = Some(next);
        self.send_log(log).await.map(drop)
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
        LogsError::Unreadable(cause) => unreadable(name, &cause),
    }
}

fn unreadable(vmi: &str, cause: &std::io::Error) -> ApiError {
    tracing::error!(vmi, error = %cause, "a console log cannot be read");
    ApiError::Internal(format!(
        "the console log of {vmi:?} cannot be read: {cause}"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn printed(offset: Option<u64>, text: &str) -> Printed {
        Printed {
            offset,
            bytes: text.as_bytes().to_vec(),
        }
    }

    fn sender(base: u64) -> (LogSender, LogsPieces) {
        let (out, pieces) = mpsc::channel(64);
        let sender = LogSender {
            base: Some(base),
            next: Some(base),
            tail: Vec::new(),
            uid: String::from("u1"),
            out,
        };
        (sender, pieces)
    }

    fn received(mut pieces: LogsPieces) -> (String, u64) {
        let mut text = String::new();
        let mut lost = 0;
        while let Ok(Ok(piece)) = pieces.try_recv() {
            text.push_str(std::str::from_utf8(&piece.data).unwrap());
            lost += piece.lost_bytes;
        }
        (text, lost)
    }

    #[tokio::test]
    async fn pieces_follow_each_other_and_a_gap_is_reported() {
        let (mut sender, pieces) = sender(100);
        assert!(sender.send(printed(Some(100), "one ")).await.is_ok());
        assert!(sender.send(printed(Some(104), "two ")).await.is_ok());
        assert!(sender.send(printed(Some(118), "three")).await.is_ok());
        assert_eq!(received(pieces), ("one two three".to_owned(), 10));
    }

    #[tokio::test]
    async fn the_last_output_is_sent_though_the_vmm_is_gone() {
        let logs = [
            // As it was read, and longer since.
            "0123456789 sent, and the panic",
            // Its older half has gone.
            "9 sent, and the panic",
        ];
        for log in logs {
            let (mut sender, pieces) = sender(50);
            assert!(
                sender
                    .send(printed(Some(50), "0123456789 sent"))
                    .await
                    .is_ok()
            );
            sender.tail = b"9 sent".to_vec();
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(log.as_bytes(), 0).unwrap();
            let mut log = LogReader::open(file, 1 << 20).unwrap();
            assert!(sender.send_rest(&mut log).await.is_ok());
            let (text, lost) = received(pieces);
            assert_eq!((text.as_str(), lost), ("0123456789 sent, and the panic", 0));
        }
    }

    #[test]
    fn only_the_end_is_sent_when_that_is_asked_for() {
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
