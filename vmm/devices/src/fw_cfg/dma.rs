//! DMA: the guest leaves a descriptor in its memory and writes where that is.

use vm_memory::{Address, Bytes, GuestAddress};

use super::FwCfg;

const ERROR: u32 = 1;
const READ: u32 = 1 << 1;
const SKIP: u32 = 1 << 2;
const SELECT: u32 = 1 << 3;
const WRITE: u32 = 1 << 4;

/// Control, length and address, big-endian.
const DESCRIPTOR_BYTES: usize = 16;
/// Most bytes of one transfer. An item may be shorter than what is asked for, and zeros follow; this
/// bounds what a guest can have the VMM write for nothing.
const MAX_BYTES: u32 = 16 << 20;
/// Zeros are written in pieces.
const ZEROS: [u8; 4096] = [0; 4096];

struct Descriptor {
    control: u32,
    bytes: u32,
    address: u64,
}

impl Descriptor {
    fn read(bytes: [u8; DESCRIPTOR_BYTES]) -> Self {
        let number = |from: usize, count: usize| {
            let field = bytes.iter().skip(from).take(count);
            field.fold(0, |value, byte| value << 8 | u64::from(*byte))
        };
        let word = |from| u32::try_from(number(from, 4)).unwrap_or(0);
        Self {
            control: word(0),
            bytes: word(4),
            address: number(8, 8),
        }
    }
}

impl FwCfg {
    /// Carries out the descriptor at `address`, and writes the result into it.
    pub(super) fn dma(&mut self, address: u64) {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        let place = GuestAddress(address);
        // Without a descriptor there is nobody to tell.
        if self.ram.read_slice(&mut bytes, place).is_err() {
            return;
        }
        let done = self.carry_out(&Descriptor::read(bytes));
        let outcome = if done { 0 } else { ERROR };
        // It was just read there.
        let _ = self.ram.write_slice(&outcome.to_be_bytes(), place);
    }

    fn carry_out(&mut self, descriptor: &Descriptor) -> bool {
        let Descriptor {
            control,
            bytes,
            address,
        } = *descriptor;
        if control & SELECT != 0 {
            let [high, low, ..] = control.to_be_bytes();
            self.select(u16::from_be_bytes([high, low]));
        }
        // In QEMU's order, where several are asked for.
        if control & READ != 0 {
            return bytes <= MAX_BYTES && self.dma_read(address, bytes);
        }
        if control & WRITE != 0 {
            return self.dma_write(address, bytes);
        }
        if control & SKIP != 0 {
            self.skip(bytes);
        }
        true
    }

    fn dma_read(&mut self, address: u64, bytes: u32) -> bool {
        let wanted = usize::try_from(bytes).unwrap_or(0);
        let rest = self.rest();
        let content = rest.get(..wanted).unwrap_or(rest);
        let mut to = GuestAddress(address);
        if self.ram.write_slice(content, to).is_err() {
            return false;
        }
        let mut left = wanted.saturating_sub(content.len());
        let mut done = content.len();
        while left > 0 {
            let zeros = ZEROS.get(..left).unwrap_or(&ZEROS);
            let Some(next) = to.checked_add(done as u64) else {
                return false;
            };
            to = next;
            if self.ram.write_slice(zeros, to).is_err() {
                return false;
            }
            done = zeros.len();
            left -= done;
        }
        self.skip(bytes);
        true
    }

    fn dma_write(&mut self, address: u64, bytes: u32) -> bool {
        // What may be written is a few bytes.
        let mut data = [0; 64];
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let Some(data) = data.get_mut(..length) else {
            return false;
        };
        if self.ram.read_slice(data, GuestAddress(address)).is_err() {
            return false;
        }
        if !self.items.write(self.key, self.offset, data) {
            return false;
        }
        self.content = self.items.content(self.key);
        self.skip(bytes);
        true
    }
}
