//! The function as PCI and the device thread see it.

use std::sync::Arc;

use vmm_sys::event;

use super::layout::{self, BAR, KICK_BYTES, Region};
use super::registers::View;
use super::{DEVICE_TOKENS, VirtioPciFunction};
use crate::event::{EventSource, IoEvent};
use crate::pci::function::{BarWindow, ConfigEffect, ConfigImage, PciFunction};
use crate::quiesce::QuiesceError;
use crate::state::{DeviceState, Payload};
use crate::virtio::device::DeviceEvent;

impl PciFunction for VirtioPciFunction {
    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        if self.touches_window(offset, data)
            && let Some((at, length)) = self.window()
        {
            let mut value = [0; 4];
            if let Some(part) = value.get_mut(..length) {
                self.bar_read(BAR, at, part);
            }
            self.config.poke(self.offsets.window + 16, &value);
        }
        self.config.read(offset, data);
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) -> ConfigEffect {
        let bars = self.config.bars();
        let control = self.config.u16_at(self.offsets.msix_control);
        let was_master = self.config.is_bus_master();
        self.config.write(offset, data);
        let is_master = self.config.is_bus_master();
        if is_master && !was_master && self.active {
            self.go_on();
        }
        let new_control = self.config.u16_at(self.offsets.msix_control);
        if new_control != control {
            self.interrupts.msix().set_control(new_control);
        }
        if self.touches_window(offset, data)
            && let Some((at, length)) = self.window()
        {
            let value = self.config.u32_at(self.offsets.window + 16).to_le_bytes();
            self.bar_write(BAR, at, value.get(..length).unwrap_or_default());
        }
        ConfigEffect {
            bars_changed: self.config.bars() != bars,
            dma_ended: was_master && !is_master && (self.active || self.resetting),
        }
    }

    fn config_image(&self) -> Option<ConfigImage<'_>> {
        // Reads of the window's data are reads of the BAR once it is set up.
        self.window().is_none().then(|| self.config.image())
    }

    fn bars(&self) -> Vec<BarWindow> {
        self.config.bars()
    }

    fn set_bar(&mut self, index: usize, base: u64) {
        self.config.set_bar(index, base);
    }

    fn bar_read(&mut self, bar: usize, offset: u64, data: &mut [u8]) {
        data.fill(0);
        let Some((region, at)) = Region::at(offset).filter(|_| bar == BAR) else {
            return;
        };
        match region {
            Region::Common => {
                self.finish_reset();
                let view = View {
                    device_features: self.features(),
                    config_generation: self.device.config_generation(),
                    interrupts: &self.interrupts,
                };
                self.registers.read(at, data, &view);
            }
            Region::Isr => {
                if let (0, Some(byte)) = (at, data.first_mut()) {
                    *byte = self.interrupts.take_isr();
                }
            }
            Region::Device => {
                let config = self.device.config();
                let start = usize::try_from(at).unwrap_or(usize::MAX);
                for (byte, value) in data.iter_mut().zip(config.iter().skip(start)) {
                    *byte = *value;
                }
            }
            Region::Kick => {}
            Region::MsixTable => self.interrupts.msix().read_table(at, data),
            Region::MsixPending => self.interrupts.msix().read_pending(at, data),
        }
    }

    fn bar_write(&mut self, bar: usize, offset: u64, data: &[u8]) {
        let Some((region, at)) = Region::at(offset).filter(|_| bar == BAR) else {
            return;
        };
        match region {
            Region::Common => self.common_write(at, data),
            Region::Kick => {
                let index = usize::try_from(at / KICK_BYTES).unwrap_or(usize::MAX);
                if let Some(kick) = self
                    .kicks
                    .get(index)
                    .filter(|_| at.is_multiple_of(KICK_BYTES))
                {
                    event::signal(kick);
                }
            }
            Region::MsixTable => self.interrupts.msix().write_table(at, data),
            Region::Device => self.device.write_config(at, data),
            Region::Isr | Region::MsixPending => {}
        }
    }

    fn io_events(&self) -> Vec<IoEvent> {
        let kicks = self.kicks.iter().enumerate();
        kicks
            .map(|(queue, event)| IoEvent {
                bar: BAR,
                offset: layout::kick_offset(queue),
                event: Arc::clone(event),
            })
            .collect()
    }

    fn event_sources(&self) -> Vec<EventSource> {
        use std::os::fd::AsRawFd;

        let kicks = (0..).zip(self.kicks.iter().enumerate());
        let kicks = kicks
            .filter(|(_, (queue, _))| !self.device.is_kicked_elsewhere(*queue))
            .map(|(token, (_, kick))| EventSource {
                token,
                fd: kick.as_raw_fd(),
            });
        let own = self.device.event_sources();
        kicks
            .chain(own.into_iter().map(|source| EventSource {
                token: DEVICE_TOKENS + source.token,
                fd: source.fd,
            }))
            .collect()
    }

    fn handle_event(&mut self, token: u64) {
        if self.active && !self.config.is_bus_master() {
            // The edge does not come again, but the kicks by which the device goes on do.
            self.missed.insert(token);
            return;
        }
        for missed in std::mem::take(&mut self.missed) {
            self.dispatch(missed);
        }
        self.dispatch(token);
    }

    fn reset(&mut self) {
        self.device_reset();
        self.interrupts.msix().reset();
        self.config.reset();
    }

    fn is_idle(&mut self) -> bool {
        self.finish_reset();
        !self.resetting
    }

    fn quiesce(&mut self) -> Result<(), QuiesceError> {
        // Whether or not a driver is there: the host may still be busy for one that was.
        self.device.quiesce()?;
        self.finish_reset();
        Ok(())
    }

    fn resume(&mut self) {
        self.interrupts.msix().send_pending();
        if self.active && self.config.is_bus_master() {
            self.go_on();
        }
    }

    fn save(&self) -> Vec<Payload> {
        let mut payloads = vec![self.state().to_payload()];
        payloads.extend(self.device.save());
        payloads
    }
}

impl VirtioPciFunction {
    /// Has the device go on after it was at rest.
    fn go_on(&mut self) {
        self.device.resume();
        for kick in &self.kicks {
            // A kick may have come to whoever was before.
            event::signal(kick);
        }
    }

    fn dispatch(&mut self, token: u64) {
        if let Some(own) = token.checked_sub(DEVICE_TOKENS) {
            return self.deliver(DeviceEvent::Source(own));
        }
        let index = usize::try_from(token).unwrap_or(usize::MAX);
        // The count stays: every kick is an edge, and to take it off would be one more system call.
        if index < self.kicks.len() {
            self.deliver(DeviceEvent::Kick(index));
        }
    }
}
