//! A NIC whose cable is a pair of sockets.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;

use vm_memory::VolatileSlice;
use vm_memory::bitmap::BitmapSlice;
use vmm_devices::Payloads;
use vmm_devices::virtio::VirtioDevice;
use vmm_devices::virtio::net::{NetConfig, NetDevice, PacketBackend};
use vmm_sys::guest_io::{read_packet, write_packet};
use vmm_sys::tap::{TapError, TapOffloads};

use crate::driver::Peer;
use crate::input::Input;

/// One end, in place of a tap.
struct Cable(UnixDatagram);

impl AsRawFd for Cable {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl PacketBackend for Cable {
    fn receive<B: BitmapSlice>(
        &self,
        parts: &[VolatileSlice<'_, B>],
        rest: &mut [u8],
    ) -> io::Result<Option<usize>> {
        match read_packet(&self.0, parts, rest) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn send<B: BitmapSlice>(&self, parts: &[VolatileSlice<'_, B>]) -> io::Result<()> {
        write_packet(&self.0, parts).map(drop)
    }

    fn set_offloads(&self, _: TapOffloads) -> Result<(), TapError> {
        Ok(())
    }

    fn has_queues(&self) -> bool {
        true
    }

    fn set_attached(&self, _: bool) -> Result<(), TapError> {
        Ok(())
    }
}

/// The other ends of two pairs of queues.
pub struct NetPeer {
    near: Vec<UnixDatagram>,
    far: Vec<UnixDatagram>,
    config: NetConfig,
}

impl NetPeer {
    /// A NIC with two pairs of queues.
    pub fn new() -> Self {
        let pair = |_| {
            let (near, far) = UnixDatagram::pair().expect("sockets");
            near.set_nonblocking(true).expect("a socket");
            far.set_nonblocking(true).expect("a socket");
            (near, far)
        };
        let (near, far) = (0..2).map(pair).unzip();
        let config = NetConfig {
            mac: [2, 0, 0, 0, 0, 7],
            mtu: 1500,
            ..NetConfig::default()
        };
        Self { near, far, config }
    }

    fn cables(&self) -> Vec<Cable> {
        let copy = |socket: &UnixDatagram| Cable(socket.try_clone().expect("a descriptor"));
        self.near.iter().map(copy).collect()
    }
}

impl Peer for NetPeer {
    fn device(&self) -> Box<dyn VirtioDevice> {
        Box::new(NetDevice::new(self.cables(), &self.config).expect("a NIC"))
    }

    fn restored(&self, payloads: &mut Payloads) -> Option<Box<dyn VirtioDevice>> {
        let device = NetDevice::restored(self.cables(), &self.config, payloads).ok()?;
        Some(Box::new(device))
    }

    fn request(&self, input: &mut Input<'_>) -> Vec<u8> {
        let count = input.below(48);
        if input.flag() {
            // A command of the control queue.
            let mut command = vec![input.u8() % 7, input.u8() % 7];
            command.extend(input.bytes(count));
            return command;
        }
        // A header, and a frame behind it.
        let mut packet = input.bytes(12).to_vec();
        packet.resize(12, 0);
        packet.extend([0xff; 6]);
        packet.extend(input.bytes(count));
        packet.resize(12 + 60, 0);
        packet
    }

    fn happen(&mut self, input: &mut Input<'_>) {
        let Some(far) = self.far.get(input.below(2)) else {
            return;
        };
        let length = usize::from(input.u16() % 3000);
        let mut packet = input.bytes(32).to_vec();
        packet.resize(length, 0);
        // A cable that is full loses frames.
        let _ = far.send(&packet);
        let mut sent = [0; 2048];
        while far.recv(&mut sent).is_ok() {}
    }
}
