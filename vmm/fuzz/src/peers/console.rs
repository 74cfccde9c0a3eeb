//! A console with two named ports.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use vmm_devices::Payloads;
use vmm_devices::serial::ConsoleOutput;
use vmm_devices::virtio::VirtioDevice;
use vmm_devices::virtio::console::{ConsoleDevice, ConsolePorts, ConsoleSize, ConsoleSpec};

use crate::driver::Peer;
use crate::input::Input;

/// What nobody reads.
struct Nowhere;

impl ConsoleOutput for Nowhere {
    fn write(&self, _: &[u8]) {}
}

/// The host's side, and who is attached to the named ports.
pub struct ConsolePeer {
    host: Arc<ConsolePorts>,
    attached: [Option<UnixStream>; 2],
}

impl ConsolePeer {
    /// Nobody is attached.
    pub fn new() -> Self {
        Self {
            host: ports(),
            attached: [None, None],
        }
    }
}

fn ports() -> Arc<ConsolePorts> {
    let console = ConsoleSpec {
        name: String::new(),
        output: Arc::new(Nowhere),
        size: ConsoleSize::default(),
    };
    let names = vec!["one".to_owned(), "two".to_owned()];
    ConsolePorts::new(Some(console), names).expect("ports")
}

impl Peer for ConsolePeer {
    fn device(&self) -> Box<dyn VirtioDevice> {
        Box::new(ConsoleDevice::new(Arc::clone(&self.host)))
    }

    fn restored(&self, payloads: &mut Payloads) -> Option<Box<dyn VirtioDevice>> {
        let device = ConsoleDevice::restored(Arc::clone(&self.host), payloads).ok()?;
        Some(Box::new(device))
    }

    fn request(&self, input: &mut Input<'_>) -> Vec<u8> {
        let port = match input.below(8) {
            0 => input.u32(),
            1 => u32::MAX,
            _ => u32::from(input.u8() % 4),
        };
        let mut message = port.to_le_bytes().to_vec();
        message.extend(u16::from(input.u8() % 9).to_le_bytes());
        message.extend(u16::from(input.u8() % 3).to_le_bytes());
        message
    }

    fn happen(&mut self, input: &mut Input<'_>) {
        let index = input.below(2);
        let (Some(place), Some(port)) =
            (self.attached.get_mut(index), self.host.named().get(index))
        else {
            return;
        };
        match input.below(5) {
            0 => {
                let (ours, theirs) = UnixStream::pair().expect("sockets");
                ours.set_nonblocking(true).expect("a socket");
                theirs.set_nonblocking(true).expect("a socket");
                if port.attach(theirs.into(), "fuzz", input.flag()).is_ok() {
                    *place = Some(ours);
                }
            }
            1 => *place = None,
            2 => {
                let text = vec![b'x'; usize::from(input.u16() % 3000)];
                // A peer whose socket is full waits.
                let _ = place.as_mut().map(|socket| socket.write(&text));
            }
            3 => {
                let mut heard = [0; 4096];
                let _ = place.as_mut().map(|socket| socket.read(&mut heard));
            }
            _ => {
                if let Some(console) = self.host.console() {
                    console.input(input.bytes(20));
                }
            }
        }
    }
}
