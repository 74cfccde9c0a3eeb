//! Reports of the agent in a guest, and keys and passwords that it sets.

use std::time::Duration;

use agent_plan::{GuestTold, Record};
use tokio::time::timeout;

use super::LinuxHost;
use super::talk::channel;
use crate::facility::VerbError;
use crate::guest_agent::{
    GuestAgent, GuestAgentError, GuestCredentials, GuestInfo, unless_refused,
};
use crate::layout::PathUid;

/// Time limit of the agent's greeting.
const GREETING: Duration = Duration::from_secs(2);

/// Of all its answers.
const ANSWERS: Duration = Duration::from_secs(5);

/// Of setting all keys and passwords: each may start a program in the guest.
const SETTING: Duration = Duration::from_secs(30);

/// KubeVirt's word for an agent that does not answer.
const OFFLINE: &str = "Guest agent is offline";

impl LinuxHost {
    pub(super) async fn guest_told(&self, record: &Record) -> Result<GuestTold, String> {
        let uid = PathUid::new(&record.id.uid).map_err(|error| error.to_string())?;
        let dir = self.layout.run_of_vmm(&uid, record.incarnation);
        let turn = self.agent_turn(&uid);
        let _turn = turn.lock().await;
        let asked = async {
            let mut agent = GuestAgent::greet_within(channel(&dir).await?, GREETING).await?;
            let os = unless_refused(agent.os().await)?;
            let interfaces = unless_refused(agent.interfaces().await)?;
            Ok::<_, GuestAgentError>(GuestTold {
                answers: true,
                os,
                interfaces: interfaces.unwrap_or_default(),
            })
        };
        let answered = timeout(ANSWERS, asked).await;
        let answered = answered.map_err(|_| format!("no answer within {ANSWERS:?}"))?;
        answered.map_err(|error| error.to_string())
    }

    /// Each question that the agent in the guest does not answer is left out.
    pub(super) async fn ask_guest_agent_of_guest(
        &self,
        record: &Record,
    ) -> Result<GuestInfo, VerbError> {
        let uid =
            PathUid::new(&record.id.uid).map_err(|error| VerbError::Vmm(error.to_string()))?;
        let dir = self.layout.run_of_vmm(&uid, record.incarnation);
        let turn = self.agent_turn(&uid);
        let asked = async {
            // A probe may have its turn for long: waiting for that is part of the time.
            let _turn = turn.lock().await;
            let mut agent = GuestAgent::greet_within(channel(&dir).await?, GREETING).await?;
            agent.info().await
        };
        let silent = |_| VerbError::NoGuestAgent(format!("no answer within {ANSWERS:?}"));
        let answered = timeout(ANSWERS, asked).await.map_err(silent)?;
        answered.map_err(|error| VerbError::NoGuestAgent(error.to_string()))
    }

    pub(super) async fn set_credentials(
        &self,
        record: &Record,
        credentials: &GuestCredentials,
    ) -> Result<(), String> {
        let uid = PathUid::new(&record.id.uid).map_err(|error| error.to_string())?;
        let dir = self.layout.run_of_vmm(&uid, record.incarnation);
        let turn = self.agent_turn(&uid);
        let _turn = turn.lock().await;
        let set = async {
            let socket = channel(&dir).await.map_err(|error| error.to_string())?;
            let mut agent = GuestAgent::greet_within(socket, GREETING)
                .await
                .map_err(|_| String::from(OFFLINE))?;
            agent.set_credentials(credentials).await
        };
        let set = timeout(SETTING, set).await;
        set.map_err(|_| format!("the guest agent did not answer within {SETTING:?}"))?
    }
}
