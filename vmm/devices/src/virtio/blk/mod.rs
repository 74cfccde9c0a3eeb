//! virtio-blk (VIRTIO 1.2, 5.2) over a raw image: a regular file or a block device.
//!
//! Requests are carried out where they are found, straight between guest memory and the image. The
//! host's page cache is the disk's write cache: `VIRTIO_BLK_F_FLUSH` is offered and a flush is an
//! `fdatasync`. A driver that does not take the feature gets a disk without write cache.

mod config;
mod request;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use self::config::Geometry;
use self::request::Request;
use super::device::{
    ActivateError, ActiveContext, DeviceEvent, DeviceFault, DeviceKind, VirtioDevice,
};
use super::queue::{Chain, Served, Turn, VirtQueue, serve};
use crate::GuestRam;

/// A mass storage controller of no further kind: PCI class as QEMU has it (SCSI).
const KIND: DeviceKind = DeviceKind {
    id: 2,
    class: 0x01_0000,
};

const QUEUE_SIZES: [u16; 1] = [256];

const TURN: Turn = Turn {
    chains: 64,
    bytes: 8 << 20,
};

/// Length of the answer to `VIRTIO_BLK_T_GET_ID`.
pub const ID_BYTES: usize = 20;

/// A disk can not be made of what was given.
#[derive(Debug, thiserror::Error)]
pub enum BlkError {
    /// The image's size can not be found out.
    #[error("image size")]
    Size(#[source] io::Error),
    /// The serial is longer than the answer to `VIRTIO_BLK_T_GET_ID`.
    #[error("disk serial has {0} bytes, at most {ID_BYTES} are allowed")]
    Serial(usize),
}

/// A disk.
pub struct BlkDevice {
    disk: Disk,
    active: Option<(Arc<GuestRam>, VirtQueue)>,
}

/// What requests work on.
struct Disk {
    image: File,
    geometry: Geometry,
    read_only: bool,
    /// Every write is made durable before it is answered.
    write_through: bool,
    id: [u8; ID_BYTES],
}

impl BlkDevice {
    /// A disk over `image`, as large as the image is now, rounded down to 512 bytes.
    ///
    /// # Errors
    /// The image has no size, or the serial is too long.
    pub fn new(image: OwnedFd, read_only: bool, serial: &str) -> Result<Self, BlkError> {
        let image = File::from(image);
        let geometry = Geometry::of(&image).map_err(BlkError::Size)?;
        let mut id = [0; ID_BYTES];
        match id.get_mut(..serial.len()) {
            Some(field) => field.copy_from_slice(serial.as_bytes()),
            None => return Err(BlkError::Serial(serial.len())),
        }
        let disk = Disk {
            image,
            geometry,
            read_only,
            write_through: true,
            id,
        };
        Ok(Self { disk, active: None })
    }
}

impl VirtioDevice for BlkDevice {
    fn kind(&self) -> DeviceKind {
        KIND
    }

    fn queue_sizes(&self) -> &[u16] {
        &QUEUE_SIZES
    }

    fn features(&self) -> u64 {
        config::features(self.disk.read_only)
    }

    fn config(&self) -> Vec<u8> {
        self.disk.geometry.image()
    }

    fn activate(&mut self, context: ActiveContext) -> Result<(), ActivateError> {
        self.disk.write_through = context.features & config::FLUSH == 0;
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
        let disk = &self.disk;
        match &mut self.active {
            Some((memory, queue)) => serve(queue, TURN, |chain| answer(disk, memory, chain)),
            None => Ok(()),
        }
    }
}

/// Carries out one request. A chain without room for a status can not be answered and comes back
/// with nothing written.
fn answer(disk: &Disk, memory: &GuestRam, chain: &Chain) -> Served {
    match Request::parse(memory, chain) {
        Ok(request) => {
            let outcome = request.execute(disk, memory, chain);
            request::finish(memory, chain, outcome)
        }
        Err(refusal) => request::finish(memory, chain, Err(refusal)),
    }
}
