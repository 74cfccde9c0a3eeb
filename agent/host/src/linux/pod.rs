//! Guests of the pod network.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use agent_dhcp::{Guest, Lease4, Lease6};
use agent_domain::{GuestNetwork, Interface, MacAddress, PodBinding, PodInterface, Vmi};
use agent_plan::{Failure, PodAddress, Record, VmmIdentity};

use super::LinuxHost;
use crate::facility::Wake;
use crate::failure::{chain, retry};
use crate::launch_file::LaunchFile;
use crate::layout::PathUid;
use crate::netfilter::Restored;
use crate::pod::{
    self, DhcpGuest, Member, Namespace, PodFile, PodNetworkConfig, PodPlan, PodPlan6, WayOut,
};
use crate::process;
use crate::process::Liveness;
use crate::resolver::{self, Resolver};
use crate::taps::{self, AttachedTap};
use crate::usage::DhcpUsage;

/// Why a guest has to wait for its network.
const NOT_READY: &str = "NetworkNotReady";

impl LinuxHost {
    /// The pod network as it is now: with those whom the node asks for names, unless its operator names others.
    fn pod_network_now(&self) -> Option<PodNetworkConfig> {
        let config = self.settings().config.pod_network.clone()?;
        let dns = resolver::read().or_rather(&config.dns).servers;
        Some(PodNetworkConfig { dns, ..config })
    }

    fn pod_network(&self) -> Result<PodNetworkConfig, Failure> {
        self.pod_network_now().ok_or_else(|| {
            let message =
                "the pod network is switched off: pod_network.enabled in the agent's configuration";
            retry("NetworkNotConfigured", message)
        })
    }

    /// Makes sure that the node has its part of the pod network, if the guest needs it.
    pub(super) async fn ensure_pod_network(&self, vmi: &Vmi) -> Result<(), Failure> {
        if vmi.pod_interface().is_none() {
            return Ok(());
        }
        let config = self.pod_network()?;
        let mut prepared = self.pod_prepared.lock().await;
        if prepared.as_ref() == Some(&config) {
            return Ok(());
        }
        let members = self
            .members_of_pod_network()
            .map_err(|error| retry(NOT_READY, format!("pod network: {error}")))?;
        let done = pod::prepare_node(&config, &members).await;
        done.map_err(|error| retry(NOT_READY, format!("pod network: {}", chain(&error))))?;
        *prepared = Some(config);
        Ok(())
    }

    /// What an earlier agent left: links of guests that are gone are removed, and rules and bridge become those of this release.
    /// Nothing is made on a node that had no guest of the pod network, and guests that run notice nothing.
    pub(super) async fn tidy_pod_network(&self) {
        let Some(config) = self.pod_network_now() else {
            return;
        };
        let mut prepared = self.pod_prepared.lock().await;
        let uids = || self.layout.uids_with_run_dir();
        let found = self
            .members_of_pod_network()
            .and_then(|members| Ok((members, uids()?)));
        let tidied = match found {
            Ok((members, uids)) => {
                let marks: Vec<String> =
                    uids.iter().map(|uid| pod::mark_of(uid.as_str())).collect();
                pod::tidy_node(&config, &members, &marks)
                    .await
                    .map_err(|error| chain(&error))
            }
            Err(error) => Err(error.to_string()),
        };
        match tidied {
            Ok(true) => *prepared = Some(config),
            Ok(false) => {}
            // The next guest that starts has it tried again, and says so.
            Err(why) => tracing::warn!(why, "the pod network is as an earlier agent left it"),
        }
    }

    /// Makes the node's tables what they are to be, once they are there; the answer is what somebody changed. The gateway of a
    /// former network goes with the last guest of it.
    pub(super) async fn restore_pod_rules(&self) -> io::Result<Vec<Restored>> {
        // A guest whose note is written meanwhile is let in behind this.
        let mut prepared = self.pod_prepared.lock().await;
        let Some(config) = prepared.as_mut() else {
            return Ok(Vec::new());
        };
        let now = self.pod_network_now();
        if let Some(now) = now.filter(|now| now.dns != config.dns) {
            config.dns = now.dns;
            if let Err(error) = pod::follow_upstreams(config) {
                tracing::debug!(%error, "the node's rules are made anew for those whom it asks for names");
            }
        }
        let members = self.members_of_pod_network()?;
        if let Err(error) = pod::remove_former_gateways(config, &members).await {
            tracing::warn!(error = chain(&error), "a former gateway stays");
        }
        pod::restore_tables(config, &members)
    }

    /// Guests whose VMMs live and are joined to the pod network, as their notes say. One that was left out would be cut
    /// off, so a note that cannot be read is an error.
    fn members_of_pod_network(&self) -> io::Result<Vec<Member>> {
        let mut members = Vec::new();
        for (uid, dir) in self.layout.run_dirs_of_vmms()? {
            let Some(file) = PodFile::read(&dir)? else {
                continue;
            };
            if !is_over(&dir)? {
                members.push(file.member(taps::veth_name(&uid)));
            }
        }
        Ok(members)
    }

    /// Joins the guest of a VMM, which has no machine yet, to the pod network. Its tap is held like those of bridges.
    pub(super) async fn join_pod_network(
        &self,
        uid: &PathUid,
        incarnation: u64,
        (vmi, record): (&Vmi, &Record),
    ) -> Result<(), Failure> {
        let Some((index, interface)) = vmi.pod_interface() else {
            return Ok(());
        };
        let failed = |why: String| retry(NOT_READY, format!("pod network: {why}"));
        let address = record
            .allocations
            .pod
            .ok_or_else(|| failed("the VMI has no address".to_owned()))?;
        let nic = vmi.interfaces.get(index);
        let nic = nic.ok_or_else(|| failed("the VMI has no such interface".to_owned()))?;
        let config = self.pod_network()?;
        let resolver = resolver::read().or_rather(&config.dns);
        let v6 = plan6(&config, interface, address);
        let file = PodFile {
            address: address.v4,
            address6: v6.map(|v6| v6.address),
            bridged: interface.binding == PodBinding::Bridge,
            guest: Guest {
                v6: v6.map(|v6| lease6(vmi, v6, (&config, &resolver))),
                ..dhcp_guest(vmi, (nic, interface), (&config, address.v4), &resolver)
            },
            upstreams: resolver.servers,
        };
        let member = file.member(taps::veth_name(uid));
        let dir = self.layout.run_of_vmm(uid, incarnation);
        self.note_member(&dir, (&file, &member), nic.mac).await?;
        let mtu = config.mtu;
        let plan = PodPlan {
            node: config,
            member,
            mark: pod::mark_of(uid.as_str()),
            v6,
            binding: interface.binding,
            inside: interface.v4,
            ports: interface.ports.clone(),
            upstreams: file.upstreams.clone(),
            queues: nic.queues,
        };
        // Of an attempt that came to nothing: there is one tap of its name in the namespace.
        self.memory().vmi(uid).taps.remove(&index);
        let identity = self.identity_of(uid, incarnation).await?;
        let (namespace, vmm) = namespace_of(&identity).map_err(failed)?;
        let attached = pod::attach(plan, namespace).await;
        let attached = match attached {
            Ok(attached) => attached,
            Err(error) => {
                // Somebody may have flushed the node's rules or removed its bridge: they are made anew before the next try.
                *self.pod_prepared.lock().await = None;
                return Err(failed(chain(&error)));
            }
        };
        let (namespace, _) = namespace_of(&identity).map_err(failed)?;
        let served = DhcpGuest {
            id: served_as(uid, incarnation),
            bridged: file.bridged,
            guest: file.guest.clone(),
        };
        let served = self.responder.serve(&served, &vmm, &namespace).await;
        served
            .map_err(|error| failed(format!("the DHCP server did not take the order: {error}")))?;
        let tap = AttachedTap {
            queues: attached.queues,
            mtu,
        };
        self.memory().vmi(uid).taps.insert(index, tap);
        Ok(())
    }

    /// Writes down who the guest is on the node's bridge. Frames find their guest by its hardware address, so nobody may have
    /// another's.
    async fn note_member(
        &self,
        dir: &Path,
        (file, member): (&PodFile, &Member),
        mac: MacAddress,
    ) -> Result<(), Failure> {
        let failed = |why: String| retry(NOT_READY, format!("pod network: {why}"));
        // Guests that join at the same time see each other's notes.
        let _one_at_a_time = self.pod_prepared.lock().await;
        if file.bridged {
            let members = self.members_of_pod_network();
            let members = members.map_err(|error| failed(error.to_string()))?;
            let is_taken = |other: &Member| other.mac == member.mac && other.veth != member.veth;
            if members.iter().any(is_taken) {
                return Err(failed(format!(
                    "the MAC address {mac} is in use on the pod network: choose another macAddress"
                )));
            }
        }
        file.write(dir)
            .map_err(|error| failed(format!("{}: {error}", dir.display())))
    }

    /// The IPv6 address of the pool of a guest that has IPv6 and no IPv4.
    pub(super) async fn ipv6_address_alone(
        &self,
        uid: &PathUid,
        record: &Record,
    ) -> Result<Option<Ipv6Addr>, String> {
        let error = |error: io::Error| error.to_string();
        let file = PodFile::read(&self.layout.run_of_vmm(uid, record.launches.incarnation()));
        let Some(file) = file.map_err(error)? else {
            return Ok(None);
        };
        let offered = (file.address6, file.guest.v4, file.guest.v6);
        // One that is bridged is offered no IPv6.
        let (Some(address), Some(v4), Some(v6)) = offered else {
            return Ok(None);
        };
        let identity = record.launches.present();
        let identity = identity.and_then(|launch| launch.identity.as_ref());
        let (namespace, _vmm) = namespace_of(identity.ok_or("it has no VMM")?)?;
        let alone = pod::speaks_ipv6_alone((namespace, pod::TAP), v4.address, v6.address).await;
        Ok(alone.map_err(error)?.then_some(address))
    }

    /// Has the guest of a VMM be answered: by a new agent, or after the server that did it has ended.
    pub(super) fn keep_answering(&self, uid: &PathUid, incarnation: u64, about: Answering) {
        let id = served_as(uid, incarnation);
        let dir = self.layout.run_of_vmm(uid, incarnation);
        let Ok(Some(file)) = PodFile::read(&dir) else {
            // It has no interface of the pod network, or is about to get one.
            return;
        };
        let config = self.settings().config.pod_network.clone();
        let ways = config.as_ref().map(|config| file.ways_out(config));
        let dns = config.map(|config| config.dns).unwrap_or_default();
        let upstreams = resolver::read().or_rather(&dns).servers;
        // None is what a file that is being written anew says, too.
        // What a guest asks that is bridged, rules of the node pass on.
        if !file.bridged && !upstreams.is_empty() && file.upstreams != upstreams {
            let changed = PodFile {
                upstreams,
                ..file.clone()
            };
            let ways = ways.unwrap_or_default();
            tokio::spawn(follow_resolver(about.identity.clone(), dir, changed, ways));
        }
        if self.responder.serves(&id, &about.wake) {
            return;
        }
        let responder = std::sync::Arc::clone(&self.responder);
        tokio::spawn(async move {
            let served = async {
                let (namespace, vmm) = namespace_of(&about.identity)?;
                let served = DhcpGuest {
                    id: id.clone(),
                    bridged: file.bridged,
                    guest: file.guest,
                };
                let served = responder.serve(&served, &vmm, &namespace).await;
                served.map_err(|error| error.to_string())
            };
            if let Err(why) = served.await {
                tracing::warn!(
                    id,
                    why,
                    "a guest's requests for addresses are not answered for now"
                );
            }
        });
    }

    /// What the DHCP server dropped of the guest of a VMM, if it has an interface of the pod network.
    pub(super) fn dropped_of_dhcp(
        &self,
        vmi: &Vmi,
        uid: &PathUid,
        incarnation: u64,
    ) -> Option<DhcpUsage> {
        let (index, _) = vmi.pod_interface()?;
        let dropped = self.responder.dropped(&served_as(uid, incarnation))?;
        Some(DhcpUsage {
            name: vmi.interfaces.get(index)?.name.to_string(),
            malformed: dropped.malformed,
            excess: dropped.excess,
        })
    }

    /// Leaves the guests of VMMs that are over alone.
    pub(super) fn stop_answering(&self, uid: &PathUid, over: &[u64]) {
        for incarnation in over {
            self.responder.remove(&served_as(uid, *incarnation));
            let file = PodFile::read(&self.layout.run_of_vmm(uid, *incarnation));
            if let Ok(Some(file)) = file {
                let member = file.member(taps::veth_name(uid));
                if let Err(error) = pod::change_member(&member, false) {
                    // Its link is gone or about to: nobody sends there.
                    tracing::debug!(%error, "a guest that is gone has no rules any more");
                }
            }
        }
    }
}

/// Whether the VMM with this run directory is known to have ended. One without a note of its start may be found by its socket.
pub(super) fn is_over(dir: &Path) -> io::Result<bool> {
    let note = LaunchFile::read(dir)?;
    Ok(note.is_some_and(|note| {
        process::liveness(&note.identity).is_ok_and(|live| live == Liveness::Dead)
    }))
}

/// Who is to be answered.
pub(super) struct Answering {
    pub(super) identity: VmmIdentity,
    pub(super) wake: Wake,
}

fn served_as(uid: &PathUid, incarnation: u64) -> String {
    format!("{}/{incarnation}", uid.as_str())
}

/// The network namespace of a VMM that lives, and a descriptor of its process.
pub(super) fn namespace_of(
    identity: &VmmIdentity,
) -> Result<(Namespace, std::os::fd::OwnedFd), String> {
    let error = |error: io::Error| error.to_string();
    let namespace = Namespace::of(identity.pid).map_err(error)?;
    // After the namespace was opened: the number may have been another's by then, and is not now.
    let vmm = process::pidfd_of(identity).map_err(error)?;
    let vmm = vmm.ok_or_else(|| "the VMM has ended".to_owned())?;
    Ok((namespace, vmm))
}

/// Has a guest's gateway ask whom the node asks now. The note is written once that is so.
async fn follow_resolver(identity: VmmIdentity, dir: PathBuf, file: PodFile, ways: Vec<WayOut>) {
    let followed = async {
        let (namespace, _vmm) = namespace_of(&identity)?;
        let upstreams = (file.upstreams.clone(), file.address6.is_some());
        let changed = pod::change_upstreams(namespace, upstreams, ways).await;
        changed.map_err(|error| error.to_string())?;
        file.write(&dir).map_err(|error| error.to_string())
    };
    match followed.await {
        Ok(()) => {
            tracing::info!(servers = ?file.upstreams, "the guest's questions for names go to other servers")
        }
        Err(why) => tracing::warn!(why, "the guest's questions for names go to former servers"),
    }
}

/// What a guest gets of IPv6: nothing if the pool has none, or had none when the guest got its addresses.
fn plan6(
    config: &PodNetworkConfig,
    interface: &PodInterface,
    address: PodAddress,
) -> Option<PodPlan6> {
    if interface.binding != PodBinding::Masquerade {
        return None;
    }
    Some(PodPlan6 {
        address: address.v6?,
        gateway: config.gateway6()?,
        inside: interface.v6,
    })
}

/// The answers to a guest that asks for its IPv6 address. Its gateway takes questions for names where the node itself
/// asks somebody by IPv6.
fn lease6(vmi: &Vmi, plan: PodPlan6, (config, node): (&PodNetworkConfig, &Resolver)) -> Lease6 {
    let inside = plan.inside;
    let asks = !vmi.names.own_only && node.servers.iter().any(IpAddr::is_ipv6);
    let own = vmi.names.servers.iter().filter_map(v6_of);
    let routes = config.routes_of((inside.guest.into(), inside.prefix));
    Lease6 {
        address: inside.guest,
        prefix: inside.prefix,
        dns: asks
            .then_some(inside.gateway)
            .into_iter()
            .chain(own)
            .collect(),
        routes: routes
            .filter_map(|(network, bits)| Some((v6_of(&network)?, bits)))
            .collect(),
    }
}

/// The answers to a guest that asks for its IPv4 address, without whom it asks for names.
fn lease4(interface: &PodInterface, config: &PodNetworkConfig, address: Ipv4Addr) -> Lease4 {
    let (own, server) = match interface.binding {
        PodBinding::Masquerade => (interface.v4, None),
        PodBinding::Bridge => {
            let of_pool = GuestNetwork {
                guest: address,
                gateway: config.gateway(),
                prefix: config.prefix,
            };
            (of_pool, Some(pod::BRIDGE_ADDRESS))
        }
    };
    let routes = config.routes_of((own.guest.into(), own.prefix));
    Lease4 {
        address: own.guest,
        prefix: own.prefix,
        gateway: own.gateway,
        server,
        dns: Vec::new(),
        routes: routes
            .filter_map(|(network, bits)| Some((v4_of(&network)?, bits)))
            .collect(),
    }
}

/// The answers to a guest that asks for its address and its names.
fn dhcp_guest(
    vmi: &Vmi,
    (nic, interface): (&Interface, &PodInterface),
    (config, address): (&PodNetworkConfig, Ipv4Addr),
    node: &Resolver,
) -> Guest {
    let names = &vmi.names;
    let mut search = names.searches.clone();
    if !names.own_only {
        search.extend(node.search.iter().cloned());
    }
    let domain = domain_of(&names.subdomain, &mut search);
    let lease = lease4(interface, config, address);
    // The gateway passes questions on: the guest's own, or that of the node where the guest is bridged.
    let of_node = (!names.own_only).then_some(lease.gateway);
    let dhcp = interface.dhcp.clone();
    Guest {
        mac: nic.mac.octets(),
        mtu: u16::try_from(config.mtu).unwrap_or(u16::MAX),
        v4: Some(Lease4 {
            dns: of_node
                .into_iter()
                .chain(names.servers.iter().filter_map(v4_of))
                .collect(),
            ..lease
        }),
        v6: None,
        hostname: vmi.hostname.clone(),
        domain,
        search,
        boot_file: dhcp.boot_file,
        tftp_server: dhcp.tftp_server,
        ntp_servers: dhcp.ntp_servers,
        private: dhcp.private,
    }
}

/// The domain that the guest's own name is in. With a subdomain it is searched first, as under KubeVirt, unless the first of
/// those that are searched is below the subdomain already.
fn domain_of(subdomain: &str, search: &mut Vec<String>) -> String {
    let first = search.first().cloned().unwrap_or_default();
    if subdomain.is_empty() || first.starts_with(&format!("{subdomain}.")) {
        return first;
    }
    if first.is_empty() {
        return subdomain.to_owned();
    }
    let domain = format!("{subdomain}.{first}");
    search.insert(0, domain.clone());
    domain
}

fn v4_of(address: &IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    }
}

fn v6_of(address: &IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(*address),
        IpAddr::V4(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use agent_domain::DhcpOptions;

    use super::*;

    fn config(routes: &[(&str, u8)]) -> PodNetworkConfig {
        let routes = routes.iter();
        PodNetworkConfig {
            routes: routes
                .map(|(network, bits)| (network.parse().unwrap(), *bits))
                .collect(),
            ..PodNetworkConfig::of_tests()
        }
    }

    #[test]
    fn each_guest_gets_the_routes_that_leave_it_its_gateway() {
        let config = config(&[
            ("10.0.0.0", 8),
            ("10.214.0.0", 16),
            ("fd00:214::", 64),
            ("192.168.66.128", 25),
        ]);
        let mut interface = PodInterface {
            binding: PodBinding::Masquerade,
            v4: GuestNetwork::default(),
            v6: GuestNetwork::default(),
            ports: Vec::new(),
            dhcp: DhcpOptions::default(),
        };
        let address = Ipv4Addr::new(10, 213, 0, 7);
        let mut answers = |change: fn(&mut PodInterface)| {
            change(&mut interface);
            let lease = lease4(&interface, &config, address);
            let last = lease.routes.iter().map(|(network, _)| network.octets()[0]);
            (lease.gateway.octets(), last.collect::<Vec<_>>())
        };
        assert_eq!(answers(|_| ()), ([10, 0, 2, 1], vec![10, 10, 192]));
        let own = |interface: &mut PodInterface| {
            interface.v4 = GuestNetwork {
                guest: Ipv4Addr::new(192, 168, 66, 2),
                gateway: Ipv4Addr::new(192, 168, 66, 1),
                prefix: 24,
            };
        };
        assert_eq!(answers(own), ([192, 168, 66, 1], vec![10, 10]));
        let bridged = |interface: &mut PodInterface| interface.binding = PodBinding::Bridge;
        assert_eq!(answers(bridged), ([10, 213, 0, 1], vec![10, 10, 192]));
    }

    #[test]
    fn a_subdomain_is_searched_first_and_once() {
        for (subdomain, searched, domain, wanted) in [
            ("", "a.test b.test", "a.test", "a.test b.test"),
            ("s", "a.test b.test", "s.a.test", "s.a.test a.test b.test"),
            ("s", "s.a.test b.test", "s.a.test", "s.a.test b.test"),
            ("s", "", "s", ""),
        ] {
            let mut search: Vec<String> = searched.split_whitespace().map(str::to_owned).collect();
            assert_eq!(domain_of(subdomain, &mut search), domain, "{searched}");
            assert_eq!(search.join(" "), wanted, "{searched}");
        }
    }
}
