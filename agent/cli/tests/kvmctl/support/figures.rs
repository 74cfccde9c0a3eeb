//! What guests of the agent in memory printed and used.

use proto_node::node::{
    DiskUsage, GetUsageResponse, GuestUsage, InterfaceUsage, LogsRequest, LogsResponse,
};
use proto_node::{FailureReason, failure};
use tonic::Status;

use super::Agent;

impl Agent {
    /// The next log that is followed breaks off in the middle.
    pub fn cut_off_logs(&self) {
        self.store.lock().unwrap().cut_off = true;
    }

    pub(super) fn printed(
        &self,
        request: &LogsRequest,
    ) -> Result<Vec<Result<LogsResponse, Status>>, Status> {
        let mut store = self.store.lock().unwrap();
        store.requests.push(format!(
            "logs {} since {:?} of {:?}",
            request.name, request.since_offset, request.uid
        ));
        if request.previous {
            return Err(failure(FailureReason::Forbidden, "nothing is kept"));
        }
        let output = b"abc\x1b[2Jdefghijklm";
        let piece = |offset: usize, end: usize, lost_bytes| {
            Ok(LogsResponse {
                offset: Some(offset as u64),
                data: output[offset..end].to_vec(),
                lost_bytes,
                uid: "uid-of-web".to_owned(),
            })
        };
        let since = usize::try_from(request.since_offset.unwrap_or(0)).unwrap();
        if std::mem::take(&mut store.cut_off) {
            let lost = Err(Status::unavailable("the agent is ending"));
            return Ok(vec![piece(0, 9, 0), lost]);
        }
        if since > 0 {
            return Ok(vec![piece(since, output.len(), 0)]);
        }
        Ok(vec![piece(0, 9, 0), piece(11, output.len(), 2)])
    }

    pub(super) fn next_usage(&self) -> GetUsageResponse {
        let mut store = self.store.lock().unwrap();
        store.reads += 1;
        let reads = store.reads;
        let item = |name: &str, share: u64| GuestUsage {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            taken_at_ns: reads * 2_000_000_000,
            cpu_ns: Some(reads * share * 20_000_000),
            vcpus: 2,
            memory_bytes: 1 << 30,
            resident_bytes: Some(share << 20),
            disks: vec![DiskUsage {
                name: "data".to_owned(),
                write_requests: reads * 10,
                write_bytes: reads * 81_920,
                ..DiskUsage::default()
            }],
            interfaces: vec![InterfaceUsage::default()],
            ..GuestUsage::default()
        };
        GetUsageResponse {
            items: vec![item("db", 5), item("web", 50)],
        }
    }
}
