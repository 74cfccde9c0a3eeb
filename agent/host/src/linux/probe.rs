//! Asking a guest what a probe wants to know.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use agent_domain::{Endpoint, Interface, Probe, Question, Vmi};
use agent_plan::{ProbeAnswer, Record};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::LinuxHost;
use super::talk::channel;
use crate::guest_agent::{GuestAgent, GuestAgentError};
use crate::http_probe;
use crate::layout::PathUid;

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
        let place = match self.place(&uid, vmi, record, endpoint).await {
            Ok(place) => place,
            Err(why) => return ProbeAnswer::NotAsked(why),
        };
        let asked = async {
            let stream = place.connect().await?;
            match http {
                Some(question) => http_probe::get(stream, place.address, question).await,
                None => Ok(()),
            }
        };
        match timeout(probe.timeout, asked).await {
            Ok(Ok(())) => ProbeAnswer::Good,
            Ok(Err(Unasked::Bad(why))) => ProbeAnswer::Bad(why),
            Ok(Err(Unasked::Here(why))) => ProbeAnswer::NotAsked(why),
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
        let dir = self.layout.run_of_vmm(uid, record.incarnation);
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

    /// Where the guest is found on the bridge of its first interface.
    async fn place(
        &self,
        uid: &PathUid,
        vmi: &Vmi,
        record: &Record,
        endpoint: &Endpoint,
    ) -> Result<Place, String> {
        let interface = vmi.interfaces.first().ok_or("the guest has no interface")?;
        let settings = self.settings();
        let network = interface.network.as_str();
        let bridge = settings.config.bridges.get(network);
        let bridge =
            bridge.ok_or_else(|| format!("this node has no network {network:?} any more"))?;
        let address = match endpoint.host {
            Some(address) => address,
            None => self.address_of(uid, record, interface).await?,
        };
        Ok(Place {
            bridge: bridge.clone(),
            address: SocketAddr::new(address, endpoint.port),
        })
    }

    /// What the guest says that its address is. It is believed as much as it can do harm: the node connects
    /// through the bridge alone, on which the guest itself can reach whoever is there.
    async fn address_of(
        &self,
        uid: &PathUid,
        record: &Record,
        interface: &Interface,
    ) -> Result<IpAddr, String> {
        let unknown = |why: String| {
            let name = &interface.name;
            format!(
                "the guest's address is not known ({why}): give the probe a host, or have qemu-guest-agent \
                 run in the guest and an address on its interface {name}"
            )
        };
        let dir = self.layout.run_of_vmm(uid, record.incarnation);
        let turn = self.agent_turn(uid);
        let _turn = turn.lock().await;
        let asked = async {
            let mut agent = GuestAgent::greet(channel(&dir).await?).await?;
            agent.addresses(interface.mac).await
        };
        let told = timeout(ADDRESS, asked).await;
        let told = told.map_err(|_| unknown("its agent does not answer".to_owned()))?;
        let told = told.map_err(|error| unknown(format!("agent in the guest: {error}")))?;
        let mut usable: Vec<IpAddr> = told.into_iter().filter(Endpoint::may_be).collect();
        // The older family first, as the kubelet's pods have it.
        usable.sort_by_key(IpAddr::is_ipv6);
        let first = usable.first().copied();
        first.ok_or_else(|| unknown("its agent tells none".to_owned()))
    }

    /// Whose turn it is to talk to the agent in a guest.
    pub(super) fn agent_turn(&self, uid: &PathUid) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.memory().vmi(uid).agent_turn)
    }
}

/// How long the guest may take to tell its address.
const ADDRESS: Duration = Duration::from_secs(5);

/// Why there is no good answer.
#[derive(Debug)]
pub(crate) enum Unasked {
    /// It is the guest's doing.
    Bad(String),
    /// The node can not ask.
    Here(String),
}

/// Somebody on a bridge.
struct Place {
    bridge: String,
    address: SocketAddr,
}

impl Place {
    async fn connect(&self) -> Result<TcpStream, Unasked> {
        let here =
            |error: io::Error| Unasked::Here(format!("no socket on {}: {error}", self.bridge));
        let socket = match self.address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        };
        let socket = socket.map_err(here)?;
        socket
            .bind_device(Some(self.bridge.as_bytes()))
            .map_err(here)?;
        let address = self.address;
        socket.connect(address).await.map_err(|error| match error.kind() {
            // The node's own firewall, or that of its unit.
            io::ErrorKind::PermissionDenied => Unasked::Here(format!(
                "the node may not connect to {address}: {error} (under systemd: IPAddressAllow= of kvmlet.service)"
            )),
            // The node has no way there, such as no address on the bridge.
            io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::AddrNotAvailable => Unasked::Here(format!(
                "the node has no way to {address} over {}: {error}",
                self.bridge
            )),
            _ => Unasked::Bad(format!("dial tcp {address}: {error}")),
        })
    }
}

fn silence(who: &str, limit: Duration) -> String {
    format!("no answer of {who} within {limit:?}")
}
