//! What a balloon does with its queues. All that a guest names is a hint which of its own pages it
//! does without: what is no RAM is left alone, and what it still uses is its own loss.

use std::sync::Arc;

use vmm_memory::{GuestRam, Window, page_runs, release};

use super::config::{REPORTING, STATS_VQ};
use super::control::BalloonControl;
use super::stats::BalloonStats;
use crate::virtio::device::ActiveContext;
use crate::virtio::fault::DeviceFault;
use crate::virtio::interrupt::ConfigCall;
use crate::virtio::queue::{Budget, Chain, ChainOutcome, VirtQueue, copy_out, serve, window};

/// Page numbers that are read of one request, 4 bytes each. One chain could hold a billion of them;
/// Windows' driver sends 1024 at most, Linux and FreeBSD 256. The others are acknowledged, and stay
/// where they are.
const MAX_NUMBERS: usize = 1024;
const NUMBER_BYTES: usize = 4;

/// Bytes of one report that are given back; Linux reports 128 MiB at most at a time. As for page
/// numbers, the rest is acknowledged and stays.
const MAX_REPORT_BYTES: u64 = 256 << 20;

/// What a call of the host costs beyond the pages that it gives back, as so many bytes: the guest's
/// page tables are searched and its CPUs interrupted, however small a run is.
const CALL_BYTES: u64 = 64 << 10;

/// At most a thousand runs and then one request: a few milliseconds.
const BUDGET: Budget = Budget {
    chains: 128,
    bytes: 64 << 20,
};

/// Buffers of statistics that are read at a time. A driver has one.
const STATS_TURN: u32 = 16;

/// The queue of statistics, if they were agreed on.
pub(super) const STATS_QUEUE: usize = 2;

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Inflate,
    Deflate,
    Stats,
    Report,
    None,
}

impl Role {
    /// The specification gives each queue a fixed number (5.5.2): 2 statistics, 3 free page hints, 4
    /// reports. Linux (but for a few releases) and QEMU count those queues only whose features were
    /// agreed on. As hints are never offered, no number means two things.
    fn of(queue: usize, features: u64) -> Self {
        match queue {
            0 => Self::Inflate,
            1 => Self::Deflate,
            STATS_QUEUE if features & STATS_VQ != 0 => Self::Stats,
            2..=4 if features & REPORTING != 0 => Self::Report,
            _ => Self::None,
        }
    }
}

/// A balloon whose driver is ready.
pub(super) struct Active {
    memory: Arc<GuestRam>,
    queues: Vec<VirtQueue>,
    features: u64,
    config_call: ConfigCall,
    /// The buffer for statistics: given back when new ones are wanted.
    held: Option<u16>,
}

impl Active {
    pub(super) fn new(context: ActiveContext, held: Option<u16>) -> Self {
        Self {
            memory: context.memory,
            queues: context.queues,
            features: context.features,
            config_call: context.config_call,
            held,
        }
    }

    pub(super) fn queues(&self) -> &[VirtQueue] {
        &self.queues
    }

    pub(super) fn held(&self) -> Option<u16> {
        self.held
    }

    pub(super) fn has_stats_queue(&self) -> bool {
        self.features & STATS_VQ != 0
    }

    /// Notifies the driver of a new target, by a configuration change.
    pub(super) fn announce_config(&self) {
        self.config_call.send();
    }

    pub(super) fn serve(
        &mut self,
        index: usize,
        control: &BalloonControl,
    ) -> Result<(), DeviceFault> {
        let role = Role::of(index, self.features);
        let (memory, held) = (&*self.memory, &mut self.held);
        let Some(queue) = self.queues.get_mut(index) else {
            return Ok(());
        };
        match role {
            Role::Inflate => serve(queue, BUDGET, |chain| inflate(memory, chain, control)),
            // The driver may use its pages again without asking (`MUST_TELL_HOST` is not offered).
            Role::Deflate => serve(queue, BUDGET, |_| ChainOutcome::default()),
            Role::Report => serve(queue, BUDGET, |chain| report(memory, chain, control)),
            Role::Stats => take_stats(memory, queue, held, control),
            Role::None => Ok(()),
        }
    }

    /// Asks the driver for new statistics, unless it is at them already.
    pub(super) fn ask_for_stats(&mut self) -> Result<(), DeviceFault> {
        let queue = self.queues.get_mut(STATS_QUEUE);
        let (Some(queue), Some(head)) = (queue, self.held.take()) else {
            return Ok(());
        };
        queue.add_used(head, 0)?;
        queue.signal_used()
    }
}

/// Gives the pages of an inflation back.
fn inflate(memory: &GuestRam, chain: &Chain, control: &BalloonControl) -> ChainOutcome {
    let mut bytes = [0; MAX_NUMBERS * NUMBER_BYTES];
    let buffers = window(&chain.readable, 0, bytes.len() as u64);
    // Numbers in memory that is no RAM are none.
    let count = copy_out(memory, buffers, &mut bytes).unwrap_or(0);
    let mut numbers: Vec<u32> = (bytes.get(..count).unwrap_or_default())
        .chunks_exact(NUMBER_BYTES)
        .filter_map(|number| Some(u32::from_le_bytes(number.try_into().ok()?)))
        .collect();
    let runs = page_runs(&mut numbers);
    give_back(memory, runs, control)
}

/// Gives the pages of a report back.
fn report(memory: &GuestRam, chain: &Chain, control: &BalloonControl) -> ChainOutcome {
    let buffers = window(&chain.writable, 0, MAX_REPORT_BYTES);
    let ranges = buffers.map(|buffer| Window {
        base: buffer.address,
        bytes: buffer.bytes.into(),
    });
    give_back(memory, ranges, control)
}

fn give_back(
    memory: &GuestRam,
    ranges: impl Iterator<Item = Window>,
    control: &BalloonControl,
) -> ChainOutcome {
    let mut moved = 0;
    for range in ranges {
        // A host that refuses keeps the pages it has: nothing is lost but room.
        let released = release(memory, range).unwrap_or(0);
        control.add_released(released);
        moved += CALL_BYTES + released;
    }
    ChainOutcome { written: 0, moved }
}

/// Takes the statistics of the driver, and keeps its buffer until new values are wanted.
fn take_stats(
    memory: &GuestRam,
    queue: &mut VirtQueue,
    held: &mut Option<u16>,
    control: &BalloonControl,
) -> Result<(), DeviceFault> {
    let mut chain = Chain::default();
    for _ in 0..STATS_TURN {
        if !queue.pop(&mut chain)? {
            if queue.enable_notification()? {
                continue;
            }
            return queue.signal_used();
        }
        if let Some(stats) = BalloonStats::read(memory, &chain) {
            control.set_stats(stats, std::time::Duration::ZERO);
        }
        // A driver with more than one buffer gets the older one back.
        if let Some(older) = held.replace(chain.head) {
            queue.add_used(older, 0)?;
        }
    }
    queue.reschedule();
    queue.signal_used()
}
