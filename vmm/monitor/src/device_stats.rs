//! What disks and NICs have done. Like all questions it waits for nobody.

use proto_vmm::v1::{self, frame::Body};
use vmm_devices::virtio::blk::{DiskCount, DiskCounts};
use vmm_machine::{NicCounts, PciAddress};

use crate::answers::Requester;
use crate::server::Server;
use crate::status;

impl Server {
    pub(crate) fn answer_disk_stats(&mut self, requester: Requester) -> Result<(), v1::Error> {
        let counts = self.live_machine()?.disk_counts();
        let response = v1::Response {
            id: requester.request,
            status: Some(self.status()),
            disk_stats: counts.iter().map(stats).collect(),
            ..v1::Response::default()
        };
        self.send(requester.connection, Body::Response(response));
        Ok(())
    }

    pub(crate) fn answer_net_stats(&mut self, requester: Requester) -> Result<(), v1::Error> {
        let counts = self.live_machine()?.nic_counts();
        let response = v1::Response {
            id: requester.request,
            status: Some(self.status()),
            net_stats: counts.iter().map(net_stats).collect(),
            ..v1::Response::default()
        };
        self.send(requester.connection, Body::Response(response));
        Ok(())
    }
}

fn net_stats((address, counts): &(PciAddress, NicCounts)) -> v1::NetStats {
    v1::NetStats {
        card: Some(status::pci_address(*address)),
        received: counts.received,
        receive_dropped: counts.receive_dropped,
        receive_filtered: counts.receive_filtered,
        sent: counts.sent,
        send_dropped: counts.send_dropped,
        tap_errors: counts.tap_errors,
    }
}

fn stats((address, counts): &(PciAddress, DiskCounts)) -> v1::DiskStats {
    v1::DiskStats {
        disk: Some(status::pci_address(*address)),
        reads: Some(count(counts.reads)),
        writes: Some(count(counts.writes)),
        flushes: Some(count(counts.flushes)),
        discards: Some(count(counts.discards)),
        host_errors: counts.host_errors,
    }
}

fn count(count: DiskCount) -> v1::DiskCount {
    v1::DiskCount {
        requests: count.requests,
        bytes: count.bytes,
        time_ns: count.time_ns,
    }
}
