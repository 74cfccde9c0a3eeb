//! virtio-rng (VIRTIO 1.2, 5.4): entropy from the host's `getrandom(2)`.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::device::{ActivateError, ActiveContext, DeviceEvent, DeviceKind, VirtioDevice};
use super::fault::DeviceFault;
use super::queue::{Budget, Chain, ChainOutcome, VirtQueue, copy_in, serve, window};
use vmm_memory::GuestRam;

const KIND: DeviceKind = DeviceKind {
    id: 4,
    class: 0x00_ff00,
};

const QUEUE_SIZES: [u16; 1] = [256];

/// Most bytes that one request gets. A driver could ask for 4 GiB with one chain: a buffer of that
/// size on our side, and seconds of `getrandom` while other devices wait. The specification lets
/// the device fill less than was offered; Linux asks for 64 bytes at a time.
const MAX_REQUEST_BYTES: usize = 64 << 10;

const BUDGET: Budget = Budget {
    chains: 256,
    bytes: 256 << 10,
};

/// A source of entropy.
#[derive(Default)]
pub struct RngDevice {
    active: Option<(Arc<GuestRam>, VirtQueue)>,
}

impl RngDevice {
    /// A device that is not active.
    pub fn new() -> Self {
        Self::default()
    }
}

impl VirtioDevice for RngDevice {
    fn kind(&self) -> DeviceKind {
        KIND
    }

    fn queue_sizes(&self) -> &[u16] {
        &QUEUE_SIZES
    }

    fn features(&self) -> u64 {
        0
    }

    fn config(&self) -> Vec<u8> {
        Vec::new()
    }

    fn activate(&mut self, context: ActiveContext) -> Result<(), ActivateError> {
        let queue = context.queues.into_iter().next();
        self.active = queue.map(|queue| (context.memory, queue));
        Ok(())
    }

    fn reset(&mut self) {
        self.active = None;
    }

    fn queues(&self) -> Vec<&VirtQueue> {
        self.active.iter().map(|(_, queue)| queue).collect()
    }

    fn handle(&mut self, _event: DeviceEvent) -> Result<(), DeviceFault> {
        match &mut self.active {
            Some((memory, queue)) => serve(queue, BUDGET, |chain| fill(memory, chain)),
            None => Ok(()),
        }
    }
}

/// Fills the writable buffers of a request. One outside of RAM, or a host that has no entropy,
/// gives the driver nothing, and it has to look at the length anyway.
fn fill(memory: &GuestRam, chain: &Chain) -> ChainOutcome {
    let offered = usize::try_from(chain.writable_bytes()).unwrap_or(usize::MAX);
    let mut entropy = vec![0; offered.min(MAX_REQUEST_BYTES)];
    let buffers = window(&chain.writable, 0, entropy.len() as u64);
    let written = vmm_sys::entropy::fill_random(&mut entropy)
        .and_then(|()| copy_in(memory, buffers, &entropy))
        .unwrap_or(0);
    ChainOutcome {
        written: u32::try_from(written).unwrap_or(0),
        moved: entropy.len() as u64,
    }
}
