//! What an agent in a guest is asked on behalf of probes.

use std::net::IpAddr;
use std::time::Duration;

use agent_domain::MacAddress;
use agent_plan::{GuestInterface, GuestOs};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::conversation::{GuestAgent, GuestAgentError, one_line, text_of};

/// First and longest interval between polls of a command that runs.
const FIRST_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Interfaces and addresses of one that a guest may have; what follows is not looked at.
const MAX_INTERFACES: usize = 64;
const MAX_ADDRESSES: usize = 16;

/// Every guest has it, and it leads nowhere.
const LOOPBACK: &str = "lo";

/// A command that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Exit code; nothing when a signal ended it.
    pub(crate) code: Option<i64>,
    /// What it printed, in one bounded line.
    pub(crate) printed: String,
}

impl GuestAgent {
    /// Has the agent answer.
    ///
    /// # Errors
    /// See [`GuestAgentError`].
    pub(crate) async fn ping(&mut self) -> Result<(), GuestAgentError> {
        self.ask("guest-ping", &json!({})).await.map(drop)
    }

    /// Runs a program in the guest to its end, which may never come.
    ///
    /// # Errors
    /// See [`GuestAgentError`].
    pub(crate) async fn run(&mut self, command: &[String]) -> Result<Ended, GuestAgentError> {
        let (program, arguments) = command.split_first().ok_or(GuestAgentError::NoAgent)?;
        let request = json!({"path": program, "arg": arguments, "capture-output": true});
        let started = self.ask("guest-exec", &request).await?;
        let pid = started.get("pid").and_then(Value::as_i64);
        let pid = pid.ok_or(GuestAgentError::NoAgent)?;
        let mut pause = FIRST_POLL_INTERVAL;
        loop {
            let status = self
                .ask("guest-exec-status", &json!({ "pid": pid }))
                .await?;
            match status.get("exited").and_then(Value::as_bool) {
                Some(true) => return Ok(ended(&status)),
                Some(false) => {}
                None => return Err(GuestAgentError::NoAgent),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    }

    /// The addresses of the interface with this hardware address, as the guest says.
    ///
    /// # Errors
    /// See [`GuestAgentError`].
    pub(crate) async fn addresses(
        &mut self,
        mac: MacAddress,
    ) -> Result<Vec<IpAddr>, GuestAgentError> {
        let interfaces = self.interfaces().await?.into_iter();
        let mac = mac.to_string();
        let mut meant = interfaces.filter(|interface| interface.mac == mac);
        Ok(meant
            .next()
            .map(|interface| interface.addresses)
            .unwrap_or_default())
    }

    /// The interfaces of the guest but its loopback, as it says.
    ///
    /// # Errors
    /// See [`GuestAgentError`].
    pub(crate) async fn interfaces(&mut self) -> Result<Vec<GuestInterface>, GuestAgentError> {
        let answer = self.ask("guest-network-get-interfaces", &json!({})).await?;
        let interfaces = answer.as_array().ok_or(GuestAgentError::NoAgent)?;
        let interfaces = interfaces.iter().map(interface);
        let interfaces = interfaces.filter(|interface| interface.name != LOOPBACK);
        Ok(interfaces.take(MAX_INTERFACES).collect())
    }

    /// The operating system of the guest, as it says.
    ///
    /// # Errors
    /// See [`GuestAgentError`].
    pub(crate) async fn os(&mut self) -> Result<GuestOs, GuestAgentError> {
        let answer = self.ask("guest-get-osinfo", &json!({})).await?;
        let text = |name: &str| one_line(answer.get(name).and_then(Value::as_str).unwrap_or(""));
        Ok(GuestOs {
            id: text("id"),
            name: text("name"),
            pretty_name: text("pretty-name"),
            version: text("version"),
            version_id: text("version-id"),
            kernel_release: text("kernel-release"),
            kernel_version: text("kernel-version"),
            machine: text("machine"),
        })
    }

    pub(super) async fn ask(
        &mut self,
        command: &str,
        arguments: &Value,
    ) -> Result<Value, GuestAgentError> {
        self.send(command, arguments).await?;
        let answer = self.long_line().await?.ok_or(GuestAgentError::Hung)?;
        if let Some(error) = answer.get("error") {
            return Err(GuestAgentError::Refused(text_of(error)));
        }
        let said = answer.get("return");
        said.cloned().ok_or(GuestAgentError::NoAgent)
    }
}

fn interface(answer: &Value) -> GuestInterface {
    let text = |name: &str| answer.get(name).and_then(Value::as_str);
    let addresses = answer.get("ip-addresses").and_then(Value::as_array);
    let addresses = addresses.into_iter().flatten().take(MAX_ADDRESSES);
    GuestInterface {
        name: one_line(text("name").unwrap_or_default()),
        mac: text("hardware-address")
            .and_then(|mac| mac.parse::<MacAddress>().ok())
            .map(|mac| mac.to_string())
            .unwrap_or_default(),
        addresses: addresses
            .filter_map(|address| address.get("ip-address")?.as_str()?.parse().ok())
            .collect(),
    }
}

fn ended(status: &Value) -> Ended {
    let printed: Vec<String> = ["out-data", "err-data"]
        .into_iter()
        .filter_map(|stream| status.get(stream)?.as_str())
        .map(decoded)
        .filter(|text| !text.is_empty())
        .collect();
    Ended {
        code: status.get("exitcode").and_then(Value::as_i64),
        printed: one_line(printed.join(" ").trim()),
    }
}

/// What base64 says, as far as it does.
fn decoded(text: &str) -> String {
    let whole = text.len() - text.len() % 4;
    let bytes = BASE64_STANDARD.decode(text.get(..whole).unwrap_or_default());
    let text = bytes.unwrap_or_default();
    String::from_utf8_lossy(&text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::conversation::tests::{greets, guest};
    use super::*;

    async fn agent(answers: impl Fn(&Value) -> Option<String> + Send + 'static) -> GuestAgent {
        let socket = guest(move |request| greets(request).or_else(|| answers(request)));
        GuestAgent::greet(socket).await.unwrap()
    }

    fn returns(value: &Value) -> Option<String> {
        Some(format!("{}\n", json!({ "return": value })))
    }

    #[tokio::test]
    async fn a_command_is_followed_to_its_end_and_its_output_is_one_short_line() {
        let polls = std::sync::atomic::AtomicUsize::new(0);
        let mut agent = agent(move |request| match request["execute"].as_str()? {
            "guest-ping" => returns(&json!({})),
            "guest-exec" => {
                let expected = json!({"path": "cat", "arg": ["/x"], "capture-output": true});
                assert_eq!(request["arguments"], expected);
                returns(&json!({"pid": 7}))
            }
            _ if polls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2 => {
                returns(&json!({"exited": false}))
            }
            _ => {
                // Half a mebibyte, as base64.
                let long = "QUFB".repeat(170_000);
                returns(&json!({"exited": true, "exitcode": 3, "out-data": long, "err-data": "bm8KbW9yZQo="}))
            }
        })
        .await;
        agent.ping().await.unwrap();
        let command = ["cat".to_owned(), "/x".to_owned()];
        let ended = agent.run(&command).await.unwrap();
        assert_eq!(ended.code, Some(3));
        assert!(ended.printed.starts_with("AAAA"), "{}", ended.printed);
        assert_eq!(
            ended.printed.len(),
            super::super::conversation::MAX_TEXT_CHARS
        );
    }

    #[tokio::test]
    async fn what_makes_no_sense_is_no_answer() {
        for answer in [
            json!({"return": {"pid": 1e300}}),
            json!({"return": null}),
            json!({"other": 1}),
            json!([1, 2, 3]),
        ] {
            let text = format!("{answer}\n");
            let mut agent = agent(move |_| Some(text.clone())).await;
            let error = agent.run(&["true".to_owned()]).await.unwrap_err();
            assert!(
                matches!(error, GuestAgentError::NoAgent),
                "{answer}: {error}"
            );
        }
        for endless in ["x".repeat(8 << 20), format!("\"{}", "y".repeat(8 << 20))] {
            let mut agent = agent(move |_| Some(endless.clone())).await;
            let error = agent.ping().await.unwrap_err();
            assert!(matches!(error, GuestAgentError::NoAgent), "{error}");
        }
        let refusal = json!({"error": {"desc": "Command guest-exec has been disabled"}});
        let mut refusing = agent(move |_| Some(format!("{refusal}\n"))).await;
        let error = refusing.run(&["true".to_owned()]).await.unwrap_err();
        assert_eq!(error.to_string(), "Command guest-exec has been disabled");
    }

    #[tokio::test]
    async fn a_guest_tells_what_it_is_in_bounded_words() {
        let mut agent = agent(|_| {
            returns(&json!({"id": "debian", "pretty-name": "Debian\n12", "version-id": 12, "name": "x".repeat(9999)}))
        })
        .await;
        let os = agent.os().await.unwrap();
        assert_eq!(
            (os.id.as_str(), os.pretty_name.as_str()),
            ("debian", "Debian 12")
        );
        assert_eq!(
            (os.version_id.as_str(), os.name.len()),
            ("", super::super::conversation::MAX_TEXT_CHARS)
        );
    }

    #[tokio::test]
    async fn a_guest_with_interfaces_without_end_is_heard_to_some_end() {
        let address = json!({"ip-address": "10.0.0.1"});
        let one = json!({"name": "eth0", "ip-addresses": vec![address; 20]});
        let mut agent = agent(move |_| returns(&json!(vec![one.clone(); 70]))).await;
        let found = agent.interfaces().await.unwrap();
        assert_eq!(
            (found.len(), found[0].addresses.len()),
            (MAX_INTERFACES, MAX_ADDRESSES)
        );
    }

    #[tokio::test]
    async fn addresses_are_those_of_the_interface_that_is_meant() {
        let interfaces = json!([
            {"name": "lo", "ip-addresses": [{"ip-address": "127.0.0.1"}]},
            {"name": "eth0", "hardware-address": "02:00:00:12:34:56", "ip-addresses": [
                {"ip-address": "fe80::1"}, {"ip-address": "nonsense"}, {"ip-address": "10.77.0.2"},
            ]},
        ]);
        let mut agent = agent(move |_| returns(&interfaces)).await;
        let mac = "02:00:00:12:34:56".parse().unwrap();
        let addresses = agent.addresses(mac).await.unwrap();
        assert_eq!(addresses.len(), 2);
        assert_eq!(addresses[1].to_string(), "10.77.0.2");
        let other = "02:00:00:12:34:57".parse().unwrap();
        assert!(agent.addresses(other).await.unwrap().is_empty());
    }
}
