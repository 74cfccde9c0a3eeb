//! Reports of the agent in a guest, addresses that the node has seen it with, and keys and passwords that the agent sets.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use agent_domain::{Attachment, Endpoint, Vmi};
use agent_plan::{GuestAgentReport, NetworkObservation, Record};
use tokio::time::timeout;

use super::LinuxHost;
use super::talk::channel;
use crate::bridge_walls;
use crate::facility::VerbError;
use crate::guest_agent::{
    GuestAgent, GuestAgentError, GuestCredentials, GuestInfo, unless_refused,
};
use crate::layout::PathUid;
use crate::neighbours::Bridge;
use crate::taps;

/// Time limit of the agent's greeting.
const GREETING: Duration = Duration::from_secs(2);

/// Of all its answers.
const ANSWERS: Duration = Duration::from_secs(5);

/// Of setting all keys and passwords: each may start a program in the guest.
const SETTING: Duration = Duration::from_secs(30);

/// KubeVirt's word for an agent that does not answer.
const OFFLINE: &str = "Guest agent is offline";

impl LinuxHost {
    pub(super) async fn guest_agent_report(
        &self,
        record: &Record,
    ) -> Result<GuestAgentReport, String> {
        let uid = PathUid::new(&record.id.uid).map_err(|error| error.to_string())?;
        let dir = self.layout.run_of_vmm(&uid, record.launches.incarnation());
        let turn = self.agent_turn(&uid);
        let _turn = turn.lock().await;
        let asked = async {
            let mut agent = GuestAgent::greet_within(channel(&dir).await?, GREETING).await?;
            let os = unless_refused(agent.os().await)?;
            let interfaces = unless_refused(agent.interfaces().await)?;
            Ok::<_, GuestAgentError>(GuestAgentReport {
                answers: true,
                os,
                interfaces: interfaces.unwrap_or_default(),
            })
        };
        let answered = timeout(ANSWERS, asked).await;
        let answered = answered.map_err(|_| format!("no answer within {ANSWERS:?}"))?;
        answered.map_err(|error| error.to_string())
    }

    pub(super) async fn network_observation(
        &self,
        vmi: &Vmi,
        record: &Record,
    ) -> Result<NetworkObservation, String> {
        let settings = self.settings();
        let uid = PathUid::new(&record.id.uid).map_err(|error| error.to_string())?;
        let mut observed = NetworkObservation::default();
        for (index, interface) in vmi.interfaces.iter().enumerate() {
            let Attachment::Network(network) = &interface.attachment else {
                continue;
            };
            // A network that the configuration has no more is not looked at.
            let Some(name) = settings.config.bridges.get(network.as_str()) else {
                continue;
            };
            let unreadable = |error: io::Error| format!("bridge {name}: {error}");
            let mut bridge = Bridge::open(name).await.map_err(unreadable)?;
            let found = bridge.addresses_of(interface.mac).await;
            let found = found.map_err(unreadable)?.into_iter();
            let mut addresses: Vec<IpAddr> = found.map(|found| found.address).collect();
            addresses.retain(Endpoint::may_be);
            addresses.sort_unstable();
            addresses.dedup();
            let name = interface.name.to_string();
            observed.addresses.insert(name.clone(), addresses);
            let tap = taps::tap_name(&uid, index);
            let judged = bridge_walls::judged_at(&tap);
            let judged = judged.map_err(|error| format!("rules of bridges: {error}"))?;
            observed.judged.insert(name, judged);
        }
        Ok(observed)
    }

    /// Each question that the agent in the guest does not answer is left out.
    pub(super) async fn ask_guest_agent_of_guest(
        &self,
        record: &Record,
    ) -> Result<GuestInfo, VerbError> {
        let uid =
            PathUid::new(&record.id.uid).map_err(|error| VerbError::Vmm(error.to_string()))?;
        let dir = self.layout.run_of_vmm(&uid, record.launches.incarnation());
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
        let dir = self.layout.run_of_vmm(&uid, record.launches.incarnation());
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
