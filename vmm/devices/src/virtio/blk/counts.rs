//! Counters of a disk since it was made, readable while its guest runs.

use std::sync::atomic::{AtomicU64, Ordering};

use super::request::Request;

/// Requests of one kind that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCount {
    /// Number of requests.
    pub requests: u64,
    /// Bytes that they were about; 0 for flushes.
    pub bytes: u64,
    /// Nanoseconds from taking them out of their rings to their answers, summed up.
    pub time_ns: u64,
}

/// Counters of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// `VIRTIO_BLK_T_IN`.
    pub reads: DiskCount,
    /// Writes, those of zeroes among them.
    pub writes: DiskCount,
    /// `VIRTIO_BLK_T_FLUSH`.
    pub flushes: DiskCount,
    /// `VIRTIO_BLK_T_DISCARD`.
    pub discards: DiskCount,
    /// How often the host failed a request, one that is tried again later too. Requests that fail because a sync has failed
    /// before count likewise, though the host is not asked.
    pub host_errors: u64,
}

/// A count that one thread writes and any may read: an addition needs no locked instruction.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self, more: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(more);
        self.0.store(sum, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Kind {
    requests: Counter,
    bytes: Counter,
    time_ns: Counter,
}

impl Kind {
    fn count(&self) -> DiskCount {
        DiskCount {
            requests: self.requests.get(),
            bytes: self.bytes.get(),
            time_ns: self.time_ns.get(),
        }
    }
}

/// The counts, written by the thread that serves the disk.
#[derive(Debug, Default)]
pub(super) struct Counters {
    reads: Kind,
    writes: Kind,
    flushes: Kind,
    discards: Kind,
    host_errors: Counter,
}

impl Counters {
    /// A request succeeded.
    pub(super) fn note(&self, request: Request, took_ns: u64) {
        let (kind, bytes) = match request {
            Request::Read(extent) => (&self.reads, extent.bytes),
            Request::Write(extent) | Request::WriteZeroes { extent, .. } => {
                (&self.writes, extent.bytes)
            }
            Request::Flush => (&self.flushes, 0),
            Request::Discard(extent) => (&self.discards, extent.bytes),
            // Says who the disk is and touches nothing.
            Request::GetId => return,
        };
        kind.requests.add(1);
        kind.bytes.add(bytes);
        kind.time_ns.add(took_ns);
    }

    /// The host failed a request, or had failed a sync before.
    pub(super) fn note_host_error(&self) {
        self.host_errors.add(1);
    }

    /// As they are now. Counts of one kind may be those of two moments.
    pub(super) fn read(&self) -> DiskCounts {
        DiskCounts {
            reads: self.reads.count(),
            writes: self.writes.count(),
            flushes: self.flushes.count(),
            discards: self.discards.count(),
            host_errors: self.host_errors.get(),
        }
    }
}
