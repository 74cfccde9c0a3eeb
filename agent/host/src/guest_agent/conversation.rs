//! One conversation with an agent: it is greeted, and says line by line what it is asked.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::line::CutLine;

/// How long an agent may take to say that it is there. Nobody may read at the other end at all.
const GREETING: Duration = Duration::from_secs(5);

/// How long a refusal of a shutdown may take. There is no answer to one that is carried out.
const REFUSAL: Duration = Duration::from_secs(2);

/// The longest line that is read.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Lines that are skipped in search of the answer to the greeting: they belong to peers before.
const MAX_STALE_LINES: usize = 64;

/// Characters of a guest's text that are passed on.
pub(super) const MAX_TEXT_CHARS: usize = 200;

/// Why the agent did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuestAgentError {
    /// Nothing was answered.
    #[error("nothing answered within {0:?}")]
    Silent(Duration),
    /// What answers is no agent.
    #[error("what answers does not speak qemu-guest-agent's protocol")]
    NoAgent,
    /// The other end hung up, which no guest can do.
    #[error("its channel is in use by somebody else, or its VMM has ended")]
    Hung,
    /// The channel broke.
    #[error("its channel failed: {0}")]
    Channel(#[from] io::Error),
    /// It refused.
    #[error("{0}")]
    Refused(String),
}

/// An agent that has answered a greeting.
#[derive(Debug)]
pub(crate) struct GuestAgent {
    stream: BufReader<UnixStream>,
}

/// An agent may know fewer questions than others, or be configured not to answer some; or have more to say than is read.
pub(crate) fn unless_refused<T>(
    answer: Result<T, GuestAgentError>,
) -> Result<Option<T>, GuestAgentError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(GuestAgentError::Refused(_) | GuestAgentError::NoAgent) => Ok(None),
        Err(error) => Err(error),
    }
}

impl GuestAgent {
    /// Finds out whether an agent is there.
    ///
    /// # Errors
    /// See [`GuestAgentError`].
    pub(crate) async fn greet(stream: UnixStream) -> Result<Self, GuestAgentError> {
        Self::greet_within(stream, GREETING).await
    }

    /// The same, with another limit.
    ///
    /// # Errors
    /// See [`GuestAgentError`].
    pub(crate) async fn greet_within(
        stream: UnixStream,
        limit: Duration,
    ) -> Result<Self, GuestAgentError> {
        let mut agent = Self {
            stream: BufReader::new(stream),
        };
        timeout(limit, agent.synchronize())
            .await
            .map_err(|_| GuestAgentError::Silent(limit))??;
        Ok(agent)
    }

    /// Answers to peers before may still be on their way: what follows the answer to this is ours.
    async fn synchronize(&mut self) -> Result<(), GuestAgentError> {
        let id = fresh_id();
        // The byte makes the agent's parser forget half a request of a peer before.
        self.stream.get_mut().write_all(&[0xff]).await?;
        self.send("guest-sync-delimited", &json!({ "id": id }))
            .await?;
        for _ in 0..MAX_STALE_LINES {
            let Some(answer) = self.line().await? else {
                return Err(GuestAgentError::Hung);
            };
            if answer.get("return").and_then(Value::as_u64) == Some(id) {
                return Ok(());
            }
        }
        Err(GuestAgentError::NoAgent)
    }

    /// Has the guest reboot in order.
    ///
    /// # Errors
    /// See [`GuestAgentError`].
    pub(crate) async fn reboot(&mut self) -> Result<(), GuestAgentError> {
        self.shut_down("reboot").await
    }

    /// Has the guest power itself off in order.
    ///
    /// # Errors
    /// See [`GuestAgentError`].
    pub(crate) async fn power_down(&mut self) -> Result<(), GuestAgentError> {
        self.shut_down("powerdown").await
    }

    async fn shut_down(&mut self, mode: &str) -> Result<(), GuestAgentError> {
        self.send("guest-shutdown", &json!({ "mode": mode }))
            .await?;
        match timeout(REFUSAL, self.line()).await {
            Ok(Ok(Some(answer))) => match answer.get("error") {
                Some(error) => Err(GuestAgentError::Refused(text_of(error))),
                None => Ok(()),
            },
            // It is on its way already, and its channel with it.
            Ok(Ok(None) | Err(_)) | Err(_) => Ok(()),
        }
    }

    pub(super) async fn send(&mut self, command: &str, arguments: &Value) -> io::Result<()> {
        let mut text = json!({"execute": command, "arguments": arguments}).to_string();
        text.push('\n');
        self.stream.get_mut().write_all(text.as_bytes()).await
    }

    /// The next line; nothing when the channel has ended. A line that is no JSON is `null`.
    pub(super) async fn line(&mut self) -> io::Result<Option<Value>> {
        let mut line = Vec::new();
        let count = (&mut self.stream)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)
            .await?;
        let text = line
            .iter()
            .rposition(|byte| *byte == 0xff)
            .map_or(line.as_slice(), |last| {
                line.get(last + 1..).unwrap_or_default()
            });
        Ok((count > 0).then(|| serde_json::from_slice(text).unwrap_or_default()))
    }

    /// The same for a line that may hold what a program printed. One that is too long, even with its strings cut,
    /// is `null`.
    pub(super) async fn long_line(&mut self) -> io::Result<Option<Value>> {
        let mut line = CutLine::default();
        loop {
            let came = self.stream.fill_buf().await?;
            if came.is_empty() {
                return Ok(None);
            }
            let end = came.iter().position(|byte| *byte == b'\n');
            let part = came.get(..end.unwrap_or(came.len())).unwrap_or_default();
            let fits = line.push(part);
            let count = part.len() + usize::from(end.is_some());
            self.stream.consume(count);
            if !fits {
                return Ok(Some(Value::Null));
            }
            if end.is_some() {
                let value = serde_json::from_slice(line.text());
                return Ok(Some(value.unwrap_or_default()));
            }
        }
    }
}

/// A number that no peer before has used, so that its answer is not taken for ours.
fn fresh_id() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    // Agents read it as a signed number.
    u64::from(now.map_or(1, |now| now.subsec_nanos())) + 1
}

/// What the guest says of its refusal, in one line.
pub(super) fn text_of(error: &Value) -> String {
    let text = error
        .get("desc")
        .and_then(Value::as_str)
        .unwrap_or("no reason given");
    one_line(text)
}

/// A text of a guest's in one line that harms no terminal.
pub(super) fn one_line(text: &str) -> String {
    text.chars()
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .take(MAX_TEXT_CHARS)
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A guest of which `answer` gets each request and returns what goes back.
    pub(in super::super) fn guest(
        answer: impl Fn(&Value) -> Option<String> + Send + 'static,
    ) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(async move {
            let mut stream = BufReader::new(theirs);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).await.unwrap() > 0 {
                let text = line.strip_prefix(&[0xff]).unwrap_or(&line);
                let request: Value = serde_json::from_slice(text).unwrap();
                if let Some(answer) = answer(&request) {
                    stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
                }
                line.clear();
            }
        });
        ours
    }

    pub(in super::super) fn greets(request: &Value) -> Option<String> {
        (request["execute"] == "guest-sync-delimited").then(|| {
            let id = &request["arguments"]["id"];
            format!("{{\"return\": {{\"left\": \"over\"}}}}\nno json\n{{\"return\": {id}}}\n")
        })
    }

    #[tokio::test]
    async fn an_agent_is_found_among_leftovers_and_reboots_its_guest_or_powers_it_off() {
        let (orders, mut hears) = tokio::sync::mpsc::unbounded_channel();
        let socket = guest(move |request| {
            if request["execute"] == "guest-shutdown" {
                orders.send(request["arguments"].clone()).unwrap();
            }
            greets(request)
        });
        let mut agent = GuestAgent::greet(socket).await.unwrap();
        agent.reboot().await.unwrap();
        assert_eq!(hears.recv().await, Some(json!({"mode": "reboot"})));
        agent.power_down().await.unwrap();
        assert_eq!(hears.recv().await, Some(json!({"mode": "powerdown"})));
    }

    #[tokio::test]
    async fn a_refusal_becomes_one_bounded_line() {
        let socket = guest(|request| {
            let refusal = json!({"error": {"class": "CommandDisabled", "desc": format!("no\n{}", "x".repeat(999))}});
            greets(request).or_else(|| Some(format!("{refusal}\n")))
        });
        let mut agent = GuestAgent::greet(socket).await.unwrap();
        let error = agent.reboot().await.unwrap_err().to_string();
        assert!(error.starts_with("no xx") && error.len() == MAX_TEXT_CHARS);
    }

    #[tokio::test]
    async fn a_guest_without_an_agent_is_distinguished_from_one_with_a_strange_one() {
        let limit = Duration::from_millis(50);
        let silent = GuestAgent::greet_within(guest(|_| None), limit).await;
        let silent = silent.unwrap_err();
        assert!(matches!(silent, GuestAgentError::Silent(_)), "{silent}");
        let echo = guest(|request| Some(format!("{request}\n").repeat(MAX_STALE_LINES)));
        let strange = GuestAgent::greet(echo).await.unwrap_err();
        assert!(matches!(strange, GuestAgentError::NoAgent), "{strange}");
        let endless = guest(|_| Some("x".repeat(10 << 20)));
        let strange = GuestAgent::greet(endless).await.unwrap_err();
        assert!(matches!(strange, GuestAgentError::NoAgent), "{strange}");
    }
}
