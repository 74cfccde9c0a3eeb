//! What a VMM and its guest have used, as the kernel and the VMM count it.
//!
//! Counts begin anew with each VMM. What is not known is absent, never 0.

/// Figures of one guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// `CLOCK_BOOTTIME` nanoseconds when the figures were taken.
    pub taken_at_ns: u64,
    /// Of the VMM's process.
    pub process: Option<ProcessUsage>,
    /// Of each vCPU whose thread there is, by number.
    pub vcpus: Vec<VcpuUsage>,
    /// In the order of the spec; only those that are there.
    pub interfaces: Vec<InterfaceUsage>,
    /// Frames that walls refused, of interfaces that are judged; in the order of the spec.
    pub refused: Vec<RefusedUsage>,
    /// Requests for addresses that were dropped; absent for a guest that has no interface of the pod network.
    pub dhcp: Option<DhcpUsage>,
    /// What the VMM says, or why it says nothing.
    pub vmm: VmmReply,
}

/// Answer of a VMM about its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VmmReply {
    /// It answered.
    Answer(Box<MachineUsage>),
    /// It did not in time, or not in words that are understood.
    Silent(String),
}

impl Default for VmmReply {
    fn default() -> Self {
        Self::Silent(String::from("it was not asked"))
    }
}

/// A process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// CPU time in user mode, that of guest code among it, in nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, in nanoseconds.
    pub system_ns: u64,
    /// Resident memory, that of the guest among it, in bytes.
    pub resident_bytes: u64,
}

/// A vCPU's thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VcpuUsage {
    /// Number of the vCPU.
    pub index: u32,
    /// Time on a CPU, in nanoseconds.
    pub running_ns: u64,
    /// Time for which it waited for a CPU, in nanoseconds; absent where the kernel does not count it.
    pub delayed_ns: Option<u64>,
}

/// What a VMM knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineUsage {
    /// Release of the VMM.
    pub release: String,
    /// How often the guest's kernel gave up.
    pub panics: u64,
    /// How often the guest was reset.
    pub resets: u64,
    /// How often the host refused to connect or disconnect an interrupt of a device.
    pub route_failures: u64,
    /// In the order of the spec; none from a VMM that does not count yet.
    pub disks: Vec<DiskUsage>,
    /// In the order of the spec; none from a VMM that does not count yet.
    pub nics: Vec<NicUsage>,
    /// Memory that the guest does without.
    pub balloon_bytes: Option<u64>,
    /// What the guest says of its memory.
    pub memory: Option<GuestMemory>,
}

/// A disk of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Its name in the spec.
    pub name: String,
    /// Completed read requests.
    pub reads: RequestUsage,
    /// Completed write requests.
    pub writes: RequestUsage,
    /// Completed flush requests.
    pub flushes: RequestUsage,
    /// How often the host failed a request.
    pub host_errors: u64,
}

/// A NIC of a guest, as its VMM sees it. Nothing is counted of frames that the kernel moves by
/// vhost-net.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NicUsage {
    /// Its interface's name in the spec.
    pub name: String,
    /// Frames for the guest that were lost on the way from the tap.
    pub receive_dropped: u64,
    /// Frames of the guest that were lost on the way to the tap.
    pub transmit_dropped: u64,
    /// How often the tap failed.
    pub tap_errors: u64,
}

/// Requests of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestUsage {
    /// Number of requests.
    pub requests: u64,
    /// Bytes that they were about.
    pub bytes: u64,
    /// Time that they took, summed up, in nanoseconds.
    pub time_ns: u64,
}

/// An interface of a guest, counted at its tap and shown from the guest's side.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceUsage {
    /// Its name in the spec.
    pub name: String,
    /// To the guest.
    pub receive: TrafficUsage,
    /// From the guest.
    pub transmit: TrafficUsage,
}

/// Frames of a guest that the node's walls refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusedUsage {
    /// Its interface's name in the spec.
    pub name: String,
    /// Frames, since the guest or the agent has started.
    pub frames: u64,
}

/// Messages of a guest to its server of addresses and to its router that were dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DhcpUsage {
    /// Its interface's name in the spec.
    pub name: String,
    /// Those that make no sense.
    pub malformed: u64,
    /// Those that came too often.
    pub excess: u64,
}

/// One direction of an interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrafficUsage {
    /// Bytes of frames.
    pub bytes: u64,
    /// Frames.
    pub packets: u64,
    /// Frames that were in error.
    pub errors: u64,
    /// Frames that nobody took.
    pub dropped: u64,
}

/// What a guest's balloon driver says of its memory. It may say anything; bytes, but for the faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestMemory {
    /// All that its kernel has.
    pub total_bytes: Option<u64>,
    /// Used by nothing.
    pub free_bytes: Option<u64>,
    /// To be had without swapping.
    pub available_bytes: Option<u64>,
    /// Caches that could be given up.
    pub cache_bytes: Option<u64>,
    /// Read from swap.
    pub swap_in_bytes: Option<u64>,
    /// Written to swap.
    pub swap_out_bytes: Option<u64>,
    /// Page faults that waited for a disk.
    pub major_faults: Option<u64>,
    /// The others.
    pub minor_faults: Option<u64>,
}
