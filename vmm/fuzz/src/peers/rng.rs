//! A source of entropy: any buffer is a request.

use vmm_devices::Payloads;
use vmm_devices::virtio::VirtioDevice;
use vmm_devices::virtio::rng::RngDevice;

use crate::driver::Peer;
use crate::input::Input;

/// It has neither state nor requests.
pub struct RngPeer;

impl Peer for RngPeer {
    fn device(&self) -> Box<dyn VirtioDevice> {
        Box::new(RngDevice::new())
    }

    fn restored(&self, _: &mut Payloads) -> Option<Box<dyn VirtioDevice>> {
        Some(self.device())
    }

    fn request(&self, _: &mut Input<'_>) -> Vec<u8> {
        Vec::new()
    }
}
