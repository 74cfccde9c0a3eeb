//! Asking a guest what a probe wants to know.

use std::time::Duration;

use agent_domain::{Probe, Question, Vmi};
use agent_plan::{ProbeAnswer, Record};
use tokio::time::timeout;

use super::LinuxHost;
use super::guest_address::NoAddress;
use super::talk::channel;
use crate::guest_agent::{GuestAgent, GuestAgentError};
use crate::http_probe;
use crate::layout::PathUid;
use crate::probe_error::ProbeError;

impl LinuxHost {
    pub(super) async fn question(&self, vmi: &Vmi, record: &Record, probe: &Probe) -> ProbeAnswer {
        let uid = match PathUid::new(&record.id.uid) {
            Ok(uid) => uid,
            Err(error) => return ProbeAnswer::NotAsked(error.to_string()),
        };
        let (endpoint, http) = match &probe.question {
            Question::GuestAgentPing => return self.ask_agent(&uid, record, probe, None).await,
            Question::Exec(command) => {
                return self.ask_agent(&uid, record, probe, Some(command)).await;
            }
            Question::Tcp(endpoint) => (endpoint, None),
            Question::Http(question) => (&question.endpoint, Some(question)),
        };
        let place = match self.guest_address(&uid, vmi, record, *endpoint).await {
            Ok(place) => place,
            Err(NoAddress::Silent(why)) => return ProbeAnswer::Bad(why),
            Err(why) => return ProbeAnswer::NotAsked(unplaced(why)),
        };
        let asked = async {
            let stream = place.connect(&self.dialer).await?;
            match http {
                Some(question) => http_probe::get(stream, place.address, question).await,
                None => Ok(()),
            }
        };
        match timeout(probe.timeout, asked).await {
            Ok(Ok(())) => ProbeAnswer::Good,
            Ok(Err(ProbeError::Guest(why))) => ProbeAnswer::Bad(why),
            Ok(Err(ProbeError::Node(why))) => ProbeAnswer::NotAsked(why),
            Err(_) => ProbeAnswer::Bad(silence(&place.address.to_string(), probe.timeout)),
        }
    }

    /// The agent has one channel: whoever asks waits for the others, and has its whole time after that.
    async fn ask_agent(
        &self,
        uid: &PathUid,
        record: &Record,
        probe: &Probe,
        command: Option<&[String]>,
    ) -> ProbeAnswer {
        let dir = self.layout.run_of_vmm(uid, record.launches.incarnation());
        let turn = self.agent_turn(uid);
        let _turn = turn.lock().await;
        let asked = async {
            let mut agent = GuestAgent::greet_within(channel(&dir).await?, probe.timeout).await?;
            match command {
                None => agent.ping().await.map(|()| None),
                Some(command) => agent.run(command).await.map(Some),
            }
        };
        match timeout(probe.timeout, asked).await {
            Ok(Ok(None)) => ProbeAnswer::Good,
            Ok(Ok(Some(ended))) => match ended.code {
                Some(0) => ProbeAnswer::Good,
                Some(code) => ProbeAnswer::Bad(format!("exit code {code}: {}", ended.printed)),
                None => ProbeAnswer::Bad(format!("ended by a signal: {}", ended.printed)),
            },
            Ok(Err(error @ (GuestAgentError::Hung | GuestAgentError::Channel(_)))) => {
                ProbeAnswer::NotAsked(error.to_string())
            }
            Err(_) | Ok(Err(GuestAgentError::Silent(_))) => {
                ProbeAnswer::Bad(silence("the agent in the guest", probe.timeout))
            }
            Ok(Err(error)) => ProbeAnswer::Bad(format!("agent in the guest: {error}")),
        }
    }
}

fn unplaced(why: NoAddress) -> String {
    match why {
        NoAddress::Unknown { why, interface } => format!(
            "the guest's address is not known ({why}): give the probe a host, or have qemu-guest-agent run in the guest \
             and an address on its interface {interface}"
        ),
        NoAddress::Silent(why) | NoAddress::Other(why) => why,
    }
}

fn silence(who: &str, limit: Duration) -> String {
    format!("no answer of {who} within {limit:?}")
}
