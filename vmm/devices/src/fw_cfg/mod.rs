//! Firmware configuration (QEMU, `docs/specs/fw_cfg.rst`): how firmware learns what machine it is on.
//!
//! Items are read by selecting their key and then byte by byte, or at once by DMA. What is in them is
//! the machine's business; the device hands them out, and keeps what firmware writes to those few that
//! may be written.

mod dma;
mod items;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use vmm_memory::GuestRam;

use crate::bus::BusDevice;
use crate::state::{DeviceState, Payload, StateError};

pub use items::{Content, ItemError, Items, MAX_FILE_NAME_BYTES};
pub use state::FwCfgState;

/// First port: the selector. Data is at the next.
pub const PORT: u16 = 0x510;
/// Number of ports.
pub const PORTS: u16 = 12;

const SELECTOR: u64 = 0;
const DATA: u64 = 1;
const DMA_HIGH: u64 = 4;
const DMA_LOW: u64 = 8;
/// What the DMA register reads as, big-endian.
const DMA_SIGNATURE: [u8; 8] = *b"QEMU CFG";

/// The device.
pub struct FwCfg {
    items: Items,
    ram: Arc<GuestRam>,
    key: u16,
    offset: u32,
    /// Content of the item that is selected, as it was when it was.
    content: Vec<u8>,
    dma_high: u32,
}

impl FwCfg {
    /// The device with its items, nothing selected but the signature. DMA reaches `ram`.
    #[must_use]
    pub fn new(items: Items, ram: Arc<GuestRam>) -> Self {
        let mut device = Self {
            items,
            ram,
            key: 0,
            offset: 0,
            content: Vec::new(),
            dma_high: 0,
        };
        device.select(0);
        device
    }

    /// Back to power-on: what was written is gone.
    pub fn reset(&mut self) {
        self.items.forget_written();
        self.dma_high = 0;
        self.select(0);
    }

    /// What firmware wrote to a file; `None` when it may not be written, or there is none.
    #[must_use]
    pub fn written(&self, name: &str) -> Option<&[u8]> {
        self.items.written(name)
    }

    /// The state.
    #[must_use]
    pub fn save(&self) -> Payload {
        FwCfgState {
            key: self.key.into(),
            offset: self.offset,
            dma_high: self.dma_high,
            written: self.items.all_written(),
        }
        .to_payload()
    }

    /// Goes on where `payload` was taken.
    ///
    /// # Errors
    /// It is no state of this device, or of one with other items to write.
    pub fn load(&mut self, payload: &Payload) -> Result<(), StateError> {
        let state = FwCfgState::from_payload(payload)?;
        let key = u16::try_from(state.key)
            .map_err(|_| FwCfgState::wrong(format!("the key {:#x}", state.key)))?;
        if !self.items.set_written(&state.written) {
            return Err(FwCfgState::wrong("what was written is of other items"));
        }
        self.select(key);
        self.offset = state.offset;
        self.dma_high = state.dma_high;
        Ok(())
    }

    fn select(&mut self, key: u16) {
        self.key = key;
        self.offset = 0;
        self.content = self.items.content(key);
    }

    /// Moves on by `bytes`, never beyond the largest offset.
    fn skip(&mut self, bytes: u32) {
        self.offset = self.offset.saturating_add(bytes);
    }

    /// What is left of the item that is selected.
    fn rest(&self) -> &[u8] {
        let offset = usize::try_from(self.offset).unwrap_or(usize::MAX);
        self.content.get(offset..).unwrap_or_default()
    }
}

impl BusDevice for FwCfg {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        match offset {
            DATA => {
                // Zeros follow an item's end.
                for byte in data.iter_mut() {
                    *byte = self.rest().first().copied().unwrap_or(0);
                    self.skip(1);
                }
            }
            DMA_HIGH..=11 => {
                let bytes = DMA_SIGNATURE
                    .iter()
                    .skip(usize::try_from(offset - DMA_HIGH).unwrap_or(8));
                data.fill(0xff);
                for (to, from) in data.iter_mut().zip(bytes) {
                    *to = *from;
                }
            }
            // The selector is write only.
            SELECTOR => data.fill(0),
            _ => data.fill(0xff),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        match (offset, data) {
            (SELECTOR, [low, high]) => self.select(u16::from_le_bytes([*low, *high])),
            (DMA_HIGH, [a, b, c, d]) => self.dma_high = u32::from_be_bytes([*a, *b, *c, *d]),
            (DMA_LOW, [a, b, c, d]) => {
                let low = u32::from_be_bytes([*a, *b, *c, *d]);
                let address = u64::from(std::mem::take(&mut self.dma_high)) << 32 | u64::from(low);
                self.dma(address);
            }
            // Data can be written by DMA only (since QEMU 2.4).
            _ => {}
        }
    }
}
