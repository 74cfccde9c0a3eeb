//! A socket device with a broker that is there or not, and no listening socket.

use std::sync::Arc;

use vmm_devices::Payloads;
use vmm_devices::virtio::VirtioDevice;
use vmm_devices::virtio::vsock::{VsockConfig, VsockControl, VsockDevice};

use crate::driver::Peer;
use crate::input::Input;

/// The guest's address.
pub(super) const CID: u32 = 42;
const HOST_CID: u64 = 2;

/// The host's side.
pub struct VsockPeer {
    control: Arc<VsockControl>,
}

impl VsockPeer {
    /// Without a broker: every connection of the guest is refused.
    pub fn new() -> Self {
        let control = Arc::new(VsockControl::new().expect("descriptors"));
        Self { control }
    }

    fn config(&self) -> VsockConfig {
        VsockConfig {
            guest_cid: CID,
            listener: None,
            control: Arc::clone(&self.control),
        }
    }
}

impl Peer for VsockPeer {
    fn device(&self) -> Box<dyn VirtioDevice> {
        Box::new(VsockDevice::new(self.config()).expect("a device"))
    }

    fn restored(&self, payloads: &mut Payloads) -> Option<Box<dyn VirtioDevice>> {
        let device = VsockDevice::restored(self.config(), payloads).ok()?;
        Some(Box::new(device))
    }

    fn request(&self, input: &mut Input<'_>) -> Vec<u8> {
        let host_port = u32::from(input.u8() % 4);
        header(input, host_port)
    }
}

/// The header of a packet to `host_port`, nearly right.
pub(super) fn header(input: &mut Input<'_>, host_port: u32) -> Vec<u8> {
    let mut header = Vec::with_capacity(44);
    let source = if input.u8() < 230 {
        CID.into()
    } else {
        input.u64()
    };
    let destination = if input.u8() < 230 {
        HOST_CID
    } else {
        input.u64()
    };
    header.extend(source.to_le_bytes());
    header.extend(destination.to_le_bytes());
    header.extend(u32::from(input.u8() % 4).to_le_bytes());
    header.extend(host_port.to_le_bytes());
    let length = if input.u8() < 200 {
        u32::from(input.u8())
    } else {
        input.u32()
    };
    header.extend(length.to_le_bytes());
    header.extend(u16::from(input.u8() < 230).to_le_bytes());
    header.extend(u16::from(input.u8() % 9).to_le_bytes());
    header.extend(u32::from(input.u8() % 5).to_le_bytes());
    header.extend(input.u32().to_le_bytes());
    header.extend(input.u32().to_le_bytes());
    header
}
