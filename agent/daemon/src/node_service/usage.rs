//! What all guests have used. Collecting it is bounded, whatever VMMs do, and done once for all who ask
//! at a time.

pub(crate) mod figures;

use std::sync::Arc;
use std::time::Duration;

use agent_domain::Vmi;
use agent_host::{DiskUsage, Host, InterfaceUsage, VmmReply};
use agent_sources::{ApiError, Kind};
use agent_store::StoredObject;
use futures_util::stream::{self, StreamExt};
use proto_node::node;
use proto_node::vmi::VirtualMachineInstance;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::error;

pub(crate) use self::figures::{Figures, Guest};
use super::NodeService;
use crate::error::store;
use crate::object;

/// VMMs that are asked at a time.
const AT_ONCE: usize = 32;

/// Guests that are not through by then have no figures.
const PATIENCE: Duration = Duration::from_secs(5);

/// Figures no older than this are given to the next who asks.
const FRESH: Duration = Duration::from_secs(1);

impl<H: Host> NodeService<H> {
    /// The figures of all VMIs.
    pub(super) async fn figures(&self) -> Result<Arc<Figures>, ApiError> {
        let mut last = self.last_figures.0.lock().await;
        if let Some((taken, figures)) = &*last
            && taken.elapsed() < FRESH
        {
            return Ok(Arc::clone(figures));
        }
        let figures = Arc::new(self.collect().await?);
        *last = Some((Instant::now(), Arc::clone(&figures)));
        drop(last);
        let last_figures = Arc::clone(&self.last_figures);
        tokio::spawn(async move {
            sleep(FRESH).await;
            let mut last = last_figures.0.lock().await;
            // Nobody needs them any more, unless they are of a later collection.
            if last.as_ref().is_some_and(|(at, _)| at.elapsed() >= FRESH) {
                *last = None;
            }
        });
        Ok(figures)
    }

    /// What all guests with a VMM have used, for callers.
    pub(super) async fn usage_of_all(&self) -> Result<Vec<node::GuestUsage>, ApiError> {
        let figures = self.figures().await?;
        Ok(figures.guests.iter().filter_map(wire).collect())
    }

    async fn collect(&self) -> Result<Figures, ApiError> {
        let begun = Instant::now();
        let (rows, _) = self
            .store
            .ledger()
            .objects(Kind::VirtualMachineInstance.as_str())
            .map_err(store)?;
        let mut guests = Vec::with_capacity(rows.len());
        let mut unreadable = 0;
        let mut found = stream::iter(rows)
            .map(|(key, row)| async move {
                let found = self.guest(row, begun + PATIENCE).await;
                found.map_err(|error| (key, error))
            })
            .buffered(AT_ONCE);
        while let Some(found) = found.next().await {
            match found {
                Ok(guest) => guests.extend(guest),
                Err((key, error)) => {
                    unreadable += 1;
                    error!(
                        vmi = %format_args!("{}/{}", key.namespace, key.name),
                        %error,
                        "this VMI has no figures: the ledger cannot be read"
                    );
                }
            }
        }
        drop(found);
        Ok(Figures {
            guests,
            unreadable,
            took: begun.elapsed(),
        })
    }

    /// Nothing of a VMI that is gone by now.
    async fn guest(&self, row: StoredObject, deadline: Instant) -> Result<Option<Guest>, ApiError> {
        let (object, vmi) = read(&row)?;
        let Some(record) = self.store.ledger().record(&row.uid).map_err(store)? else {
            return Ok(None);
        };
        let mut usage = None;
        if record.report.end.is_none() && record.launches.present().is_some() {
            let asked = timeout_at(deadline, self.host.usage(&vmi, &record));
            usage = asked.await.ok().flatten();
        }
        Ok(Some(Guest {
            object,
            record,
            vmi,
            usage,
        }))
    }
}

/// A VMI as it was stored.
fn read(row: &StoredObject) -> Result<(VirtualMachineInstance, Vmi), ApiError> {
    let object = object::vmi(row)?;
    let admitted = Vmi::restore(object.clone()).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        ApiError::Internal(format!(
            "this release does not understand what an earlier one accepted: {}",
            errors.join("; ")
        ))
    })?;
    Ok((object, admitted.vmi))
}

/// What callers see of it; nothing of a VMI without a VMM.
fn wire(guest: &Guest) -> Option<node::GuestUsage> {
    let usage = guest.usage.as_ref()?;
    let (machine, silent) = match &usage.vmm {
        VmmReply::Answer(machine) => (Some(machine), String::new()),
        VmmReply::Silent(why) => (None, why.clone()),
    };
    let process = usage.process.as_ref();
    let memory = machine.and_then(|machine| machine.memory);
    Some(node::GuestUsage {
        namespace: guest.record.id.namespace.clone(),
        name: guest.record.id.name.clone(),
        uid: guest.record.id.uid.clone(),
        taken_at_ns: usage.taken_at_ns,
        cpu_ns: process.map(|process| process.user_ns + process.system_ns),
        vcpus: guest.vmi.cpus.count(),
        memory_bytes: guest.vmi.memory_bytes,
        resident_bytes: process.map(|process| process.resident_bytes),
        available_bytes: memory.and_then(|memory| memory.available_bytes),
        disks: machine
            .map(|machine| machine.disks.iter().map(disk).collect())
            .unwrap_or_default(),
        interfaces: usage.interfaces.iter().map(interface).collect(),
        silent,
    })
}

fn disk(disk: &DiskUsage) -> node::DiskUsage {
    node::DiskUsage {
        name: disk.name.clone(),
        read_requests: disk.reads.requests,
        read_bytes: disk.reads.bytes,
        write_requests: disk.writes.requests,
        write_bytes: disk.writes.bytes,
    }
}

fn interface(interface: &InterfaceUsage) -> node::InterfaceUsage {
    node::InterfaceUsage {
        name: interface.name.clone(),
        receive_bytes: interface.receive.bytes,
        receive_packets: interface.receive.packets,
        transmit_bytes: interface.transmit.bytes,
        transmit_packets: interface.transmit.packets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_an_error_and_no_absence() {
        let mut row = object::row(VirtualMachineInstance::default(), 1);
        let error = read(&row).unwrap_err();
        assert!(error.to_string().contains("does not understand"), "{error}");
        row.object = vec![0xff; 3];
        assert!(read(&row).is_err());
    }
}
