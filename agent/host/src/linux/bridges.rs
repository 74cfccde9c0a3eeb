//! Guests on bridges of the configuration.

use std::io;

use agent_domain::{Attachment, EVERY_NAMESPACE, NETWORK_WALLS_ANNOTATION, Vmi};
use agent_plan::Failure;

use super::LinuxHost;
use super::pod::is_over;
use crate::bridge_walls::{self, Nic};
use crate::failure::{chain, retry};
use crate::layout::PathUid;
use crate::netfilter::Restored;
use crate::taps;

const NOT_READY: &str = "NetworkNotReady";

impl LinuxHost {
    /// Has the rules of the node judge what a guest sends to bridges of the configuration, before its VMM has its taps.
    pub(super) async fn wall_in(
        &self,
        uid: &PathUid,
        incarnation: u64,
        vmi: &Vmi,
    ) -> Result<(), Failure> {
        let nics = self.nics_to_judge(uid, vmi)?;
        if nics.is_empty() {
            return Ok(());
        }
        let mut prepared = self.bridges_prepared.lock().await;
        let shown = bridge_walls::show_all_frames(&nics).await;
        let walled = || -> io::Result<()> {
            shown?;
            // The note first: an agent that starts anew knows by it whom to judge.
            bridge_walls::write(&self.layout.run_of_vmm(uid, incarnation), &nics)?;
            if *prepared {
                bridge_walls::change(&nics, true)
            } else {
                bridge_walls::restore(&self.nics_of_guests()?).map(drop)
            }
        };
        let walled = walled();
        // Somebody may have flushed the node's rules: they are made anew before the next try.
        *prepared = walled.is_ok();
        walled.map_err(|error| {
            let message = format!(
                "the rules of nftables for bridges were not taken: {} (is the module nf_tables there?)",
                chain(&error)
            );
            retry(NOT_READY, message)
        })
    }

    /// The guest's NICs on networks of the configuration; none where it has been granted that nothing is judged.
    fn nics_to_judge(&self, uid: &PathUid, vmi: &Vmi) -> Result<Vec<Nic>, Failure> {
        let settings = self.settings();
        let granted = &settings.config.walls_off_for;
        let configured = &settings.config.addresses;
        let name = format!("{}/{}", vmi.namespace, vmi.name);
        let mut nics = Vec::new();
        for (index, interface) in vmi.interfaces.iter().enumerate() {
            let Attachment::Network(network) = &interface.attachment else {
                continue;
            };
            if !vmi.without_walls {
                let named = configured.get(network.as_str());
                let addresses = named.and_then(|named| named.get(&name)).cloned();
                nics.push(Nic {
                    tap: taps::tap_name(uid, index),
                    mac: interface.mac.octets(),
                    addresses: addresses.unwrap_or_default(),
                });
                continue;
            }
            let namespaces = granted.get(network.as_str());
            let is_granted = namespaces.is_some_and(|namespaces| {
                namespaces.contains(vmi.namespace.as_str()) || namespaces.contains(EVERY_NAMESPACE)
            });
            if !is_granted {
                let message = format!(
                    "interface {}: {NETWORK_WALLS_ANNOTATION} is \"off\", which this node does not grant to namespace \
                     {:?} on network {network}: remove the annotation, or add the namespace to \
                     networks.{network}.walls_off_for of the agent's configuration",
                    interface.name,
                    vmi.namespace.as_str()
                );
                return Err(retry(NOT_READY, message));
            }
        }
        Ok(nics)
    }

    /// After a start of the agent: who runs is judged, and nobody else.
    pub(super) async fn tidy_bridge_walls(&self) {
        let mut prepared = self.bridges_prepared.lock().await;
        let nics = self.nics_of_guests();
        let done = nics.and_then(|nics| {
            if let Some(Restored { table, what, .. }) = bridge_walls::restore(&nics)? {
                tracing::info!(table, what, "a table of nftables is made what it is to be");
            }
            Ok(!nics.is_empty())
        });
        match done {
            Ok(is_there) => *prepared = is_there,
            // The next guest that starts has it tried again, and says so.
            Err(error) => tracing::warn!(
                error = &error as &(dyn std::error::Error + 'static),
                "the rules for bridges are as an earlier agent left them"
            ),
        }
    }

    /// Makes the table that judges guests here what it is to be, once it is there; the answer is what somebody changed.
    pub(super) async fn restore_bridge_walls(&self) -> io::Result<Option<Restored>> {
        // A guest whose note is written meanwhile is let in behind this.
        let prepared = self.bridges_prepared.lock().await;
        if !*prepared {
            return Ok(None);
        }
        bridge_walls::restore(&self.nics_of_guests()?)
    }

    /// What the notes of VMMs say that live. One that was left out would not be judged, so a note that cannot be read is an
    /// error.
    fn nics_of_guests(&self) -> io::Result<Vec<Nic>> {
        let mut all = Vec::new();
        for (_, dir) in self.layout.run_dirs_of_vmms()? {
            let nics = bridge_walls::read(&dir)?;
            if !nics.is_empty() && !is_over(&dir)? {
                all.extend(nics);
            }
        }
        Ok(all)
    }

    /// Leaves the taps of VMMs that are over alone.
    pub(super) fn remove_nics(&self, uid: &PathUid, over: &[u64]) {
        for incarnation in over {
            let nics = bridge_walls::read(&self.layout.run_of_vmm(uid, *incarnation));
            let Ok(nics) = nics else { continue };
            if nics.is_empty() {
                continue;
            }
            if let Err(error) = bridge_walls::change(&nics, false) {
                // They are gone with their VMM: nobody sends there.
                tracing::debug!(%error, "a guest that is gone has no rules any more");
            }
        }
    }
}
