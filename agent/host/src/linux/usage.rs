//! What one guest has used. A VMM that does not answer costs a second, and the figures that it knows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_domain::{Attachment, PciAddress, PodBinding, SingleDevice, Vmi};
use agent_plan::{PciAddresses, Record, VmmIdentity};
use nix::time::{ClockId, clock_gettime};
use proto_vmm::v1::{self, request::Kind};

use super::LinuxHost;
use super::pod::namespace_of;
use crate::bridge_walls;
use crate::control::{Connection, ControlError, Deadlines, SocketDir};
use crate::failure::chain;
use crate::layout::PathUid;
use crate::netfilter::Netfilter;
use crate::pod::chains;
use crate::process_usage;
use crate::taps;
use crate::usage::{
    DiskUsage, GuestMemory, InterfaceUsage, MachineUsage, NicUsage, RefusedUsage, RequestUsage,
    TrafficUsage, Usage, VmmReply,
};

/// How long a VMM may take for its figures.
const PATIENCE: Duration = Duration::from_secs(1);

/// Statistics that a guest reported longer ago than this are left out.
const MAX_AGE: Duration = Duration::from_secs(300);

impl LinuxHost {
    /// See [`Host::usage`](crate::Host::usage).
    pub(super) async fn figures(&self, vmi: &Vmi, record: &Record) -> Option<Usage> {
        let uid = PathUid::new(&record.id.uid).ok()?;
        let identity = record.launches.present()?.identity.clone()?;
        let dir = self.layout.run_of_vmm(&uid, record.launches.incarnation());
        let asked = tokio::time::timeout(PATIENCE, ask(&dir, vmi, &record.allocations.pci)).await;
        let vmm = match asked {
            Ok(Ok(machine)) => VmmReply::Answer(Box::new(machine)),
            Ok(Err(error)) => VmmReply::Silent(chain(&error)),
            Err(_) => VmmReply::Silent(chain(&ControlError::Late("tell its figures", PATIENCE))),
        };
        let taps: Vec<(String, String)> = vmi
            .interfaces
            .iter()
            .enumerate()
            .map(|(index, interface)| (interface.name.to_string(), taps::tap_name(&uid, index)))
            .collect();
        let judged = judged(&uid, vmi);
        let dhcp = self.dropped_of_dhcp(vmi, &uid, record.launches.incarnation());
        // Many small files, each read at once: not for the threads that carry everything else.
        let whose = identity.clone();
        let usage =
            tokio::task::spawn_blocking(move || kernels(&whose, (&taps, &judged), vmm)).await;
        let mut usage = usage.ok().flatten()?;
        usage.dhcp = dhcp;
        if let Some(within) = refused_within(vmi, &identity).await {
            add_refused(&mut usage.refused, within);
        }
        Some(usage)
    }
}

/// What the kernel counts, with what the VMM said; `None` when the VMM is gone.
fn kernels(
    identity: &VmmIdentity,
    (taps, judged): (&[(String, String)], &[Judged]),
    vmm: VmmReply,
) -> Option<Usage> {
    let (process, vcpus) = match process_usage::of(identity) {
        Ok(None) => return None,
        Ok(Some((process, vcpus))) => (Some(process), vcpus),
        Err(error) => {
            tracing::debug!(pid = identity.pid, %error, "the kernel does not tell what the VMM used");
            (None, Vec::new())
        }
    };
    let interfaces = taps
        .iter()
        .filter_map(|(name, tap)| interface(name, Path::new("/sys/class/net").join(tap)));
    Some(Usage {
        taken_at_ns: boottime_ns(),
        process,
        vcpus,
        interfaces: interfaces.collect(),
        refused: refused(judged),
        dhcp: None,
        vmm,
    })
}

/// An interface whose frames walls judge.
struct Judged {
    name: String,
    table: &'static str,
    link: String,
}

fn judged(uid: &PathUid, vmi: &Vmi) -> Vec<Judged> {
    let interfaces = vmi.interfaces.iter().enumerate();
    let judged = interfaces.map(|(index, interface)| {
        let (table, link) = match interface.attachment {
            Attachment::Network(_) => (bridge_walls::TABLE, taps::tap_name(uid, index)),
            Attachment::Pod(_) => (chains::TABLE, taps::veth_name(uid)),
        };
        Judged {
            name: interface.name.to_string(),
            table,
            link,
        }
    });
    judged.collect()
}

/// Nothing of what the kernel does not tell.
fn refused(judged: &[Judged]) -> Vec<RefusedUsage> {
    let found = Netfilter::open().and_then(|netfilter| {
        let mut found = Vec::new();
        for it in judged {
            let frames = chains::refused_of(&netfilter, it.table, &it.link)?;
            found.extend(frames.map(|frames| RefusedUsage {
                name: it.name.clone(),
                frames,
            }));
        }
        Ok(found)
    });
    found.unwrap_or_else(|error| {
        tracing::debug!(%error, "the kernel gives no count of refused frames");
        Vec::new()
    })
}

/// What the rules within a VMM's namespace have refused of its guest under masquerade: of the VMM alone, in whose namespace a guest
/// cannot be anybody else.
async fn refused_within(vmi: &Vmi, identity: &VmmIdentity) -> Option<RefusedUsage> {
    let (index, pod) = vmi.pod_interface()?;
    if pod.binding != PodBinding::Masquerade {
        return None;
    }
    let (namespace, _vmm) = namespace_of(identity).ok()?;
    let frames = chains::refused_within(namespace).await;
    let frames = frames.unwrap_or_else(|error| {
        tracing::debug!(%error, "the kernel gives no count of frames refused within a namespace");
        None
    });
    Some(RefusedUsage {
        name: vmi.interfaces.get(index)?.name.to_string(),
        frames: frames?,
    })
}

fn add_refused(all: &mut Vec<RefusedUsage>, more: RefusedUsage) {
    match all.iter_mut().find(|it| it.name == more.name) {
        Some(there) => there.frames += more.frames,
        None => all.push(more),
    }
}

fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// A tap's counts; its two directions are the guest's, turned round.
fn interface(name: &str, device: PathBuf) -> Option<InterfaceUsage> {
    let statistics = device.join("statistics");
    let count = |what: &str| -> Option<u64> {
        let text = fs::read_to_string(statistics.join(what)).ok()?;
        text.trim().parse().ok()
    };
    let traffic = |side: &str| -> Option<TrafficUsage> {
        Some(TrafficUsage {
            bytes: count(&format!("{side}_bytes"))?,
            packets: count(&format!("{side}_packets"))?,
            errors: count(&format!("{side}_errors"))?,
            dropped: count(&format!("{side}_dropped"))?,
        })
    };
    Some(InterfaceUsage {
        name: name.to_owned(),
        receive: traffic("tx")?,
        transmit: traffic("rx")?,
    })
}

/// Asks the VMM.
async fn ask(
    dir: &Path,
    vmi: &Vmi,
    addresses: &PciAddresses,
) -> Result<MachineUsage, ControlError> {
    let socket = SocketDir::open(dir).map_err(ControlError::Io)?;
    let mut connection = Connection::open(&socket, Deadlines::of_an_observation()).await?;
    let status = connection.hello().status.clone().unwrap_or_default();
    let mut usage = MachineUsage {
        release: connection.hello().version.clone(),
        panics: status.panics,
        resets: status.resets,
        route_failures: status.interrupt_route_failures,
        balloon_bytes: status.balloon_actual_bytes,
        ..MachineUsage::default()
    };
    if !vmi.disks.is_empty() {
        let asked = connection.ask(Kind::GetDiskStats(v1::GetDiskStats {}));
        usage.disks = known(asked.await)?
            .map(|response| disks(vmi, addresses, response.disk_stats))
            .unwrap_or_default();
    }
    if !vmi.interfaces.is_empty() {
        let asked = connection.ask(Kind::GetNetStats(v1::GetNetStats {}));
        usage.nics = known(asked.await)?
            .map(|response| nics(vmi, addresses, &response.net_stats))
            .unwrap_or_default();
    }
    if vmi.has(SingleDevice::Balloon) {
        // New ones come in the guest's own time, for the next who asks.
        let wanted = v1::GetBalloonStats { refresh: true };
        let asked = connection.ask(Kind::GetBalloonStats(wanted));
        let stats = known(asked.await)?.and_then(|response| response.balloon_stats);
        usage.memory = stats.and_then(memory);
    }
    Ok(usage)
}

/// Nothing from a VMM that is older than the question, or whose machine is not there (any more).
fn known(asked: Result<v1::Response, ControlError>) -> Result<Option<v1::Response>, ControlError> {
    match asked {
        Ok(response) => Ok(Some(response)),
        Err(ControlError::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The disks by their names, in the order of the spec.
fn disks(vmi: &Vmi, addresses: &PciAddresses, stats: Vec<v1::DiskStats>) -> Vec<DiskUsage> {
    let mut by_address: BTreeMap<(u32, u32), v1::DiskStats> = stats
        .into_iter()
        .filter_map(|stats| Some((stats.disk.map(|disk| (disk.bus, disk.device))?, stats)))
        .collect();
    let mut take =
        |address: &PciAddress| by_address.remove(&(address.bus.into(), address.device.into()));
    vmi.disks
        .iter()
        .filter_map(|disk| {
            let stats = take(addresses.disks.get(disk.name.as_str())?)?;
            Some(DiskUsage {
                name: disk.name.to_string(),
                reads: requests(stats.reads),
                writes: requests(stats.writes),
                flushes: requests(stats.flushes),
                host_errors: stats.host_errors,
            })
        })
        .collect()
}

/// The NICs by the names of their interfaces, in the order of the spec.
fn nics(vmi: &Vmi, addresses: &PciAddresses, stats: &[v1::NetStats]) -> Vec<NicUsage> {
    let at = |address: &PciAddress| {
        let address = (u32::from(address.bus), u32::from(address.device));
        let is_there = |stats: &&v1::NetStats| {
            let nic = stats.card.as_ref();
            nic.is_some_and(|nic| (nic.bus, nic.device) == address)
        };
        stats.iter().find(is_there)
    };
    vmi.interfaces
        .iter()
        .filter_map(|interface| {
            let name = interface.name.to_string();
            let stats = at(addresses.interfaces.get(&name)?)?;
            Some(NicUsage {
                name,
                receive_dropped: stats.receive_dropped,
                transmit_dropped: stats.send_dropped,
                tap_errors: stats.tap_errors,
            })
        })
        .collect()
}

fn requests(count: Option<v1::DiskCount>) -> RequestUsage {
    let count = count.unwrap_or_default();
    RequestUsage {
        requests: count.requests,
        bytes: count.bytes,
        time_ns: count.time_ns,
    }
}

/// What a guest said of its memory, unless it said nothing for long.
fn memory(stats: v1::BalloonStats) -> Option<GuestMemory> {
    let age = Duration::from_millis(stats.age_ms?);
    (age <= MAX_AGE).then_some(GuestMemory {
        total_bytes: stats.total_bytes,
        free_bytes: stats.free_bytes,
        available_bytes: stats.available_bytes,
        cache_bytes: stats.cache_bytes,
        swap_in_bytes: stats.swap_in_bytes,
        swap_out_bytes: stats.swap_out_bytes,
        major_faults: stats.major_faults,
        minor_faults: stats.minor_faults,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_receives_what_its_tap_sends() {
        let dir = tempfile::tempdir().unwrap();
        let statistics = dir.path().join("statistics");
        fs::create_dir(&statistics).unwrap();
        for (number, side) in ["rx", "tx"].iter().enumerate() {
            for (place, what) in ["bytes", "packets", "errors", "dropped"].iter().enumerate() {
                let count = format!("{}\n", number * 10 + place);
                fs::write(statistics.join(format!("{side}_{what}")), count).unwrap();
            }
        }
        let usage = interface("lan", dir.path().to_owned()).unwrap();
        let counts = |traffic: TrafficUsage| {
            [
                traffic.bytes,
                traffic.packets,
                traffic.errors,
                traffic.dropped,
            ]
        };
        assert_eq!(counts(usage.transmit), [0, 1, 2, 3]);
        assert_eq!(counts(usage.receive), [10, 11, 12, 13]);
        fs::remove_file(statistics.join("tx_bytes")).unwrap();
        assert_eq!(interface("lan", dir.path().to_owned()), None);
    }

    #[test]
    fn what_a_guest_reported_long_ago_is_left_out() {
        let said = |age_ms| {
            memory(v1::BalloonStats {
                age_ms,
                free_bytes: Some(7),
                ..v1::BalloonStats::default()
            })
        };
        assert_eq!(said(None), None);
        assert_eq!(said(Some(300_001)), None);
        assert_eq!(said(Some(9)).unwrap().free_bytes, Some(7));
    }
}
