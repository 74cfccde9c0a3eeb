//! A balloon with everything.

use std::time::Duration;

use vmm_devices::Payloads;
use vmm_devices::virtio::VirtioDevice;
use vmm_devices::virtio::balloon::{BalloonConfig, BalloonDevice};

use crate::driver::Peer;
use crate::guest::RAM_BYTES;
use crate::input::Input;

const CONFIG: BalloonConfig = BalloonConfig {
    target_bytes: 0x4_0000,
    deflate_on_oom: true,
    free_page_reporting: true,
    stats_interval: Duration::ZERO,
};

/// Nothing happens on the host's side.
pub struct BalloonPeer;

impl Peer for BalloonPeer {
    fn device(&self) -> Box<dyn VirtioDevice> {
        Box::new(BalloonDevice::new(&CONFIG, RAM_BYTES).expect("a balloon"))
    }

    fn restored(&self, payloads: &mut Payloads) -> Option<Box<dyn VirtioDevice>> {
        let device = BalloonDevice::restored(&CONFIG, RAM_BYTES, payloads).ok()?;
        Some(Box::new(device))
    }

    fn request(&self, input: &mut Input<'_>) -> Vec<u8> {
        let mut numbers = Vec::new();
        for _ in 0..input.below(20) {
            // Pages of the buffers, or any.
            let number = match input.below(6) {
                0 => input.u32(),
                _ => 0x80 + u32::from(input.u8() % 0x80),
            };
            numbers.extend(number.to_le_bytes());
        }
        numbers
    }
}
