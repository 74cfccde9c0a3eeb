//! A disk of 64 sectors.

use std::fs::File;
use std::os::unix::fs::FileExt;

use vm_memory::{Bytes, GuestAddress};
use vmm_devices::Payloads;
use vmm_devices::virtio::VirtioDevice;
use vmm_devices::virtio::blk::{
    BlkConfig, BlkDevice, BlkImage, ErrorPolicies, ErrorPolicy, IoEngine,
};

use crate::driver::{Peer, linked};
use crate::guest::{BUFFERS, Guest, nobody};
use crate::input::Input;

/// Size of the image.
const IMAGE_BYTES: u64 = 64 * 512;

/// Not whole blocks of what an overlay tells apart.
const BASE_SECTORS: u8 = 41;

/// Each sector is filled with a byte of its own.
fn base_content() -> Vec<u8> {
    (0..BASE_SECTORS)
        .flat_map(|sector| [sector | 0x80; 512])
        .collect()
}

/// The disk, its image, and what that is laid over.
pub struct BlkPeer {
    image: File,
    base: Option<File>,
    config: BlkConfig,
    is_damaged: bool,
}

impl BlkPeer {
    /// A disk as the first byte of `input` has it.
    pub fn new(input: &mut Input<'_>) -> Self {
        // /tmp is in memory on some machines, and such images have no ring.
        let image = tempfile::tempfile_in("/var/tmp").expect("a file");
        image.set_len(IMAGE_BYTES).expect("a disk");
        let choice = input.u8();
        let waits = ErrorPolicy::StopOnNoSpace;
        let config = BlkConfig {
            read_only: choice & 1 != 0,
            discard: choice & 2 != 0,
            queues: 2,
            serial: "fuzz".to_owned(),
            // Rings are dear; few programs have one.
            engine: if choice & 0x1c == 0x1c {
                IoEngine::Automatic
            } else {
                IoEngine::Synchronous
            },
            logical_block_bytes: if choice & 0x20 == 0 { 0 } else { 4096 },
            errors: ErrorPolicies {
                read: waits,
                write: waits,
            },
            ..BlkConfig::default()
        };
        let base = (choice & 0xc0 == 0xc0 && !config.read_only).then(|| {
            let base = tempfile::tempfile_in("/var/tmp").expect("a file");
            base.write_all_at(&base_content(), 0).expect("a base");
            base
        });
        Self {
            image,
            base,
            config,
            is_damaged: false,
        }
    }

    /// A disk without a base that begins with the same content, when this one has a base. Requests of a ring may be
    /// carried out in any order, and what a discard leaves is the disk's to choose, so such disks have no model.
    pub fn plain(&self) -> Option<Self> {
        let is_open = self.config.discard || self.config.engine != IoEngine::Synchronous;
        if self.base.is_none() || is_open {
            return None;
        }
        let image = tempfile::tempfile_in("/var/tmp").expect("a file");
        image.set_len(IMAGE_BYTES).expect("a disk");
        image.write_all_at(&base_content(), 0).expect("a disk");
        Some(Self {
            image,
            base: None,
            config: self.config.clone(),
            is_damaged: false,
        })
    }

    /// Whether the disk went on with a damaged state, which says something else of its content.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// What an honest driver reads of the whole disk.
    ///
    /// # Panics
    /// The disk cannot be read: a finding.
    pub fn content(guest: &mut Guest) -> Vec<u8> {
        const STATUS: u64 = BUFFERS + 16;
        const DATA: u64 = BUFFERS + 0x1000;
        guest.write(BUFFERS, &[0; 16]);
        guest.write(STATUS, &[0xff]);
        let bytes = u32::try_from(IMAGE_BYTES).expect("a small disk");
        linked(
            guest,
            0,
            &[(BUFFERS, 16, false), (DATA, bytes, true), (STATUS, 1, true)],
        );
        let mut status = [0xff];
        let memory = &guest.memory;
        memory
            .read(&mut status, GuestAddress(STATUS))
            .expect("guest memory");
        assert_eq!(status, [0], "a disk cannot be read");
        let length = usize::try_from(IMAGE_BYTES).expect("a small disk");
        let mut content = vec![0; length];
        memory
            .read(&mut content, GuestAddress(DATA))
            .expect("guest memory");
        content
    }

    fn image(&self) -> BlkImage {
        let copy = |file: &File| file.try_clone().expect("a descriptor").into();
        BlkImage {
            image: copy(&self.image),
            base: self.base.as_ref().map(copy),
        }
    }
}

impl Peer for BlkPeer {
    fn device(&self) -> Box<dyn VirtioDevice> {
        let device = BlkDevice::new(self.image(), &self.config, nobody());
        Box::new(device.expect("a disk"))
    }

    fn restored(&self, payloads: &mut Payloads) -> Option<Box<dyn VirtioDevice>> {
        let device = BlkDevice::restored(self.image(), &self.config, nobody(), payloads).ok()?;
        // Whoever restores a disk that was stopped has it try again.
        device.control().retry();
        Some(Box::new(device))
    }

    fn take_damage(&mut self) {
        self.is_damaged = true;
    }

    fn request(&self, input: &mut Input<'_>) -> Vec<u8> {
        let kind = u32::from(input.u8() % 16);
        let sector = match input.below(4) {
            0 => input.u64(),
            _ => u64::from(input.u8() % 70),
        };
        let mut header = kind.to_le_bytes().to_vec();
        header.extend([0; 4]);
        header.extend(sector.to_le_bytes());
        if kind > 10 {
            // The segment of a discard.
            header.extend(u64::from(input.u8() % 70).to_le_bytes());
            header.extend((input.u32() >> (input.u8() % 32)).to_le_bytes());
            header.extend(u32::from(input.u8() % 4).to_le_bytes());
        }
        header
    }
}
