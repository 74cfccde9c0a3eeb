//! The note about a guest's part of the pod network: what a later agent needs in order to go on answering it.

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use agent_dhcp::Guest;
use serde::{Deserialize, Serialize};

use super::config::PodNetworkConfig;
use super::names::mac_of;
use super::plan::WayOut;
use super::walls::Member;
use crate::layout::absent_is_none;

const NAME: &str = "network.json";
const TEMPORARY: &str = ".network.json.tmp";

/// The contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodFile {
    /// The guest's address of the pool.
    pub(crate) address: Ipv4Addr,
    /// Its IPv6 address of the pool, if it has one.
    #[serde(default)]
    pub(crate) address6: Option<Ipv6Addr>,
    /// The guest is bridged to the pod network; otherwise it is masqueraded.
    pub(crate) bridged: bool,
    /// What its answers say.
    pub(crate) guest: Guest,
    /// Whom its gateway asks for names.
    #[serde(default)]
    pub(crate) upstreams: Vec<IpAddr>,
}

impl PodFile {
    /// What it may send from.
    pub(crate) fn member(&self, veth: String) -> Member {
        let mac = if self.bridged {
            self.guest.mac
        } else {
            mac_of(self.address)
        };
        Member {
            veth,
            mac,
            address: self.address,
            address6: self.address6,
        }
    }

    /// The ways out of the VMM's namespace, of a guest under masquerade that was given its addresses by this network.
    pub(crate) fn ways_out(&self, config: &PodNetworkConfig) -> Vec<WayOut> {
        let v4 = self.guest.v4.as_ref().map(|lease| WayOut {
            inside: (lease.address.into(), lease.prefix),
            gateway: config.gateway().into(),
        });
        let v6 = self.guest.v6.as_ref().zip(config.gateway6());
        let v6 = v6.map(|(lease, gateway)| WayOut {
            inside: (lease.address.into(), lease.prefix),
            gateway: gateway.into(),
        });
        v4.into_iter().chain(v6).collect()
    }

    /// Reads the note in a VMM's run directory. It is written as a whole, so one that makes no sense is an error.
    pub(crate) fn read(dir: &Path) -> io::Result<Option<Self>> {
        let Some(text) = absent_is_none(fs::read(dir.join(NAME)))? else {
            return Ok(None);
        };
        Ok(Some(serde_json::from_slice(&text)?))
    }

    /// Writes the note as a whole or not at all.
    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        let temporary = dir.join(TEMPORARY);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(&temporary, dir.join(NAME))
    }
}
