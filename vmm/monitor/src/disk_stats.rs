//! What the disks have done. Like all questions it waits for nobody.

use proto_vmm::v1::{self, frame::Body};
use vmm_devices::virtio::blk::{DiskCount, DiskCounts};
use vmm_machine::PciAddress;

use crate::requests::Asker;
use crate::server::Server;
use crate::status;

impl Server {
    pub(crate) fn answer_disk_stats(&mut self, asker: Asker) -> Result<(), v1::Error> {
        let counts = self.live_machine()?.disk_counts();
        let response = v1::Response {
            id: asker.request,
            status: Some(self.status()),
            disk_stats: counts.iter().map(stats).collect(),
            ..v1::Response::default()
        };
        self.send(asker.connection, Body::Response(response));
        Ok(())
    }
}

fn stats((address, counts): &(PciAddress, DiskCounts)) -> v1::DiskStats {
    v1::DiskStats {
        disk: Some(status::disk_address(*address)),
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
