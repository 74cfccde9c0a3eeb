//! The two ways to configuration space: I/O ports 0xCF8/0xCFC and memory (ECAM).

use std::sync::Arc;

use vmm_devices::BusDevice;

use super::bus::PciBus;
use super::search::Search;
use crate::acpi::{RESET_PORT, RESET_VALUE};
use crate::events::GuestEvents;
use crate::guest_event::{GuestEvent, ResetSource};
use crate::port_device::{PortDevice, SavedChipset};
use crate::snapshot::error::SnapshotError;

const CONFIG_ADDRESS: u16 = 0xcf8;
const ENABLE: u32 = 1 << 31;
/// A write with this bit resets; the others choose how much.
const RESET_CPU: u8 = 4;

/// The I/O ports 0xCF8 to 0xCFF, the reset register at 0xCF9 among them.
pub(crate) struct ConfigPorts {
    bus: Arc<PciBus>,
    address: u32,
    events: GuestEvents,
    /// `None`: searches for the I/O ports succeed. Not part of a snapshot: one in the midst of a search succeeds.
    search: Option<Search>,
}

impl ConfigPorts {
    pub(crate) fn new(bus: Arc<PciBus>, events: GuestEvents) -> Self {
        Self {
            bus,
            address: 0,
            events,
            search: None,
        }
    }

    /// Has Linux find no I/O ports, so that it uses configuration space in memory. All others find them.
    pub(crate) fn declining_searches(mut self, declines: bool) -> Self {
        self.search = declines.then(Search::default);
        self
    }

    /// Bus, device with function, and register that `address` selects, plus `offset` in the window.
    fn target(&self, offset: u64, bytes: usize) -> Option<(u64, usize)> {
        let within = usize::try_from(offset).ok()?.checked_sub(4)?;
        if self.address & ENABLE == 0 || within + bytes > 4 {
            return None;
        }
        let selector = u64::from(self.address >> 8 & 0xffff) << 12;
        Some((selector | u64::from(self.address & 0xfc), within))
    }
}

impl PortDevice for ConfigPorts {
    fn save(&self, saved: &mut SavedChipset<'_>) {
        saved.legacy.config_address = self.address;
    }

    fn load(&mut self, saved: &mut SavedChipset<'_>) -> Result<(), SnapshotError> {
        self.address = saved.legacy.config_address;
        Ok(())
    }
}

impl BusDevice for ConfigPorts {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        data.fill(0xff);
        if offset == 0 && data.len() == 4 {
            if self.search.as_mut().is_some_and(Search::ends) {
                return;
            }
            data.copy_from_slice(&self.address.to_le_bytes());
        } else if let Some((register, within)) = self.target(offset, data.len()) {
            ecam_read(&self.bus, register + within as u64, data);
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        if let Some(search) = &mut self.search {
            search.follow(offset, data);
        }
        match (offset, data) {
            (0, [a, b, c, d]) => self.address = u32::from_le_bytes([*a, *b, *c, *d]),
            (at, [value]) if at == u64::from(RESET_PORT - CONFIG_ADDRESS) => {
                if value & RESET_CPU != 0 {
                    debug_assert_eq!(RESET_VALUE & RESET_CPU, RESET_CPU);
                    self.events
                        .post(GuestEvent::Reset(ResetSource::ResetRegister));
                }
            }
            _ => {
                if let Some((register, within)) = self.target(offset, data.len()) {
                    ecam_write(&self.bus, register + within as u64, data);
                }
            }
        }
    }
}

/// Bus, device and register of an offset within configuration space. There is no function but 0.
fn decode(offset: u64) -> Option<(u8, u8, u16)> {
    let bus = u8::try_from(offset >> 20).ok()?;
    let device = u8::try_from(offset >> 15 & 0x1f).ok()?;
    let function = offset >> 12 & 7;
    let register = u16::try_from(offset & 0xfff).ok()?;
    (function == 0).then_some((bus, device, register))
}

/// The parts of an access that lie within one doubleword each, as (offset, range of the data).
fn parts(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let aligned = bytes <= 4 && bytes != 3 && offset % 4 + bytes as u64 <= 4;
    let step = match (aligned, offset % 4) {
        (true, _) => bytes.max(1),
        (false, 0) if bytes.is_multiple_of(4) => 4,
        _ => 1,
    };
    (0..bytes)
        .step_by(step)
        .map(move |at| (offset + at as u64, at..at + step))
}

/// Reads configuration space at `offset` from its start; ones where no function is.
pub(crate) fn ecam_read(bus: &PciBus, offset: u64, data: &mut [u8]) {
    data.fill(0xff);
    for (at, range) in parts(offset, data.len()) {
        let Some((number, device, register)) = decode(at) else {
            continue;
        };
        if let (Some(slot), Some(part)) = (bus.find(number, device), data.get_mut(range)) {
            slot.function().config_read(register, part);
        }
    }
}

/// Writes configuration space at `offset` from its start.
pub(crate) fn ecam_write(bus: &PciBus, offset: u64, data: &[u8]) {
    for (at, range) in parts(offset, data.len()) {
        let Some((number, device, register)) = decode(at) else {
            continue;
        };
        if let (Some(slot), Some(part)) = (bus.find(number, device), data.get(range)) {
            bus.config_write(slot, register, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn accesses_are_cut_into_parts_of_one_doubleword(offset in 0u64..1 << 28, bytes in 1usize..=8) {
            let mut covered = 0;
            for (at, range) in parts(offset, bytes) {
                prop_assert_eq!(at, offset + range.start as u64);
                prop_assert_eq!(range.start, covered);
                prop_assert!(matches!(range.len(), 1 | 2 | 4));
                prop_assert!(at % 4 + range.len() as u64 <= 4);
                covered = range.end;
            }
            prop_assert_eq!(covered, bytes);
        }
    }

    #[test]
    fn offsets_name_bus_device_and_register_of_function_0() {
        assert_eq!(decode(0x1f << 15 | 0xffc), Some((0, 31, 0xffc)));
        assert_eq!(decode(0x81 << 20 | 1 << 15 | 4), Some((0x81, 1, 4)));
        assert_eq!(decode(1 << 12), None);
        assert_eq!(decode(1 << 28), None);
        assert_eq!(decode(u64::MAX), None);
    }
}
