//! Fixed hardware of ACPI (ACPI 6.3, 4.8): power button, sleep control, timer, and the interrupt that
//! tells of them and of general purpose events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vmm_devices::BusDevice;
use vmm_kvm::Vm;

use super::gpe::GeneralEvents;
use super::state::{PowerState, wrong};
use crate::acpi::{
    GPE0, GPE0_BYTES, PM_BASE, PM_TIMER, PM1A_CONTROL, PM1A_EVENT, SCI_GSI, SLEEP_TYPE_S5,
};
use crate::events::GuestEvents;
use crate::guest_event::GuestEvent;
use crate::port_device::{PortDevice, SavedChipset};
use crate::snapshot::error::SnapshotError;

const STATUS: u16 = PM1A_EVENT;
const ENABLE: u16 = PM1A_EVENT + 2;
const POWER_BUTTON: u16 = 1 << 8;
/// Global lock, power button, sleep button and RTC can be enabled; the timer too.
const ENABLE_MASK: u16 = 1 | 1 << 5 | POWER_BUTTON | 1 << 9 | 1 << 10;

const SCI_ENABLED: u16 = 1;
const SLEEP_ENABLE: u16 = 1 << 13;
const SLEEP_TYPE_SHIFT: u16 = 10;
const SLEEP_TYPE_MASK: u16 = 7;

/// SMI_EN of the ICH9.
const SMI_ENABLE: u16 = PM_BASE + 0x30;
/// Writes to port 0xb2 make SMIs: firmware that sees that does not set up system management mode.
const SMI_BY_APM: u32 = 1 << 5;

const TIMER_HZ: u128 = 3_579_545;

/// Registers and the interrupt that they raise.
pub(crate) struct PowerManagement {
    status: u16,
    enable: u16,
    control: u16,
    general: GeneralEvents,
    /// What the interrupt line was last set to; `None`: it is to be set whatever it is.
    line: Option<bool>,
    started: Instant,
    /// When it was loaded, until the guest goes on.
    loaded: Option<Instant>,
    /// What SMI_EN reads as.
    smi_enable: u32,
    vm: Arc<Vm>,
    events: GuestEvents,
}

impl PowerManagement {
    pub(crate) fn new(vm: Arc<Vm>, events: GuestEvents) -> Self {
        Self {
            status: 0,
            enable: 0,
            control: SCI_ENABLED,
            general: GeneralEvents::default(),
            line: None,
            started: Instant::now(),
            loaded: None,
            smi_enable: 0,
            vm,
            events,
        }
    }

    /// As firmware wants to find it: as if system management mode were set up already.
    pub(crate) fn with_firmware(mut self) -> Self {
        self.smi_enable = SMI_BY_APM;
        self
    }

    /// The guest's clocks go on now: the time since its load is none of the guest's.
    pub(crate) fn start_clock(&mut self) {
        if let Some(loaded) = self.loaded.take() {
            self.started += loaded.elapsed();
        }
    }

    /// The power button is pressed and released.
    pub(crate) fn press_power_button(&mut self) {
        self.status |= POWER_BUTTON;
        self.update_interrupt();
    }

    /// A general purpose event happened.
    pub(crate) fn raise(&mut self, event: u8) {
        self.general.raise(event);
        self.update_interrupt();
    }

    fn update_interrupt(&mut self) {
        let pending = self.status & self.enable != 0 || self.general.is_pending();
        if self.line == Some(pending) {
            return;
        }
        self.line = Some(pending);
        if let Err(error) = self.vm.set_line(SCI_GSI, pending) {
            self.events.post(GuestEvent::HostFailure(error.to_string()));
        }
    }

    /// Registers as bytes: narrow and wide accesses see the same.
    fn register_byte(&self, port: u16) -> u8 {
        let pick =
            |bytes: &[u8], first: u16| bytes.get(usize::from(port - first)).copied().unwrap_or(0);
        match port {
            STATUS..ENABLE => pick(&self.status.to_le_bytes(), STATUS),
            ENABLE..PM1A_CONTROL => pick(&self.enable.to_le_bytes(), ENABLE),
            PM1A_CONTROL..0x606 => pick(&self.control.to_le_bytes(), PM1A_CONTROL),
            SMI_ENABLE..0x634 => pick(&self.smi_enable.to_le_bytes(), SMI_ENABLE),
            _ => general_offset(port).map_or(0, |offset| self.general.read(offset)),
        }
    }

    fn timer(&self) -> u32 {
        let ticks = self.started.elapsed().as_nanos() * TIMER_HZ / 1_000_000_000;
        // The register is 32 bits wide and wraps.
        u32::try_from(ticks & u128::from(u32::MAX)).unwrap_or(0)
    }

    fn write_word(&mut self, port: u16, value: u16) {
        match port {
            STATUS => self.status &= !value,
            ENABLE => self.enable = value & ENABLE_MASK,
            PM1A_CONTROL => self.write_control(value),
            _ => return,
        }
        self.update_interrupt();
    }

    fn write_control(&mut self, value: u16) {
        // SLP_EN is write only; ACPI mode cannot be left.
        self.control = value & !SLEEP_ENABLE | SCI_ENABLED;
        let sleep_type = value >> SLEEP_TYPE_SHIFT & SLEEP_TYPE_MASK;
        if value & SLEEP_ENABLE != 0 && sleep_type == u16::from(SLEEP_TYPE_S5) {
            self.events.post(GuestEvent::PowerOff);
        }
    }
}

/// Where a port is within the block of general purpose events.
fn general_offset(port: u16) -> Option<u16> {
    port.checked_sub(GPE0)
        .filter(|offset| *offset < u16::from(GPE0_BYTES))
}

impl PortDevice for PowerManagement {
    fn reset(&mut self) {
        self.status = 0;
        self.enable = 0;
        self.control = SCI_ENABLED;
        self.general = GeneralEvents::default();
        // The interrupt chips were reset, too.
        self.line = None;
        self.update_interrupt();
    }

    fn save(&self, saved: &mut SavedChipset<'_>) {
        let elapsed = self.started.elapsed().as_nanos();
        saved.legacy.power = Some(PowerState {
            status: self.status.into(),
            enable: self.enable.into(),
            control: self.control.into(),
            gpe_enable: self.general.enable(),
            gpe_status: self.general.status(),
            timer_ns: u64::try_from(elapsed).unwrap_or(u64::MAX),
        });
    }

    fn load(&mut self, saved: &mut SavedChipset<'_>) -> Result<(), SnapshotError> {
        let state = saved
            .legacy
            .power
            .ok_or_else(|| wrong("no registers of power management"))?;
        let words = [state.status, state.enable, state.control].map(u16::try_from);
        let [Ok(status), Ok(enable), Ok(control)] = words else {
            return Err(wrong("registers of power management"));
        };
        let counted = Duration::from_nanos(state.timer_ns);
        // A timer that counted for longer than this host is up starts over, which a guest sees as a
        // wrap.
        let now = Instant::now();
        self.started = now.checked_sub(counted).unwrap_or(now);
        self.loaded = Some(now);
        self.status = status;
        self.enable = enable & ENABLE_MASK;
        self.control = control | SCI_ENABLED;
        self.general = GeneralEvents::new(state.gpe_status, state.gpe_enable);
        self.line = None;
        self.update_interrupt();
        Ok(())
    }
}

impl BusDevice for PowerManagement {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        let port = u16::try_from(offset).map_or(u16::MAX, |offset| PM_BASE.saturating_add(offset));
        if port == PM_TIMER {
            let timer = self.timer().to_le_bytes();
            for (to, from) in data.iter_mut().zip(timer) {
                *to = from;
            }
            return;
        }
        for (port, byte) in (port..=u16::MAX).zip(data) {
            *byte = self.register_byte(port);
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let port = u16::try_from(offset).map_or(u16::MAX, |offset| PM_BASE.saturating_add(offset));
        if general_offset(port).is_some() {
            for (port, byte) in (port..=u16::MAX).zip(data) {
                if let Some(offset) = general_offset(port) {
                    self.general.write(offset, *byte);
                }
            }
            self.update_interrupt();
            return;
        }
        match *data {
            [low, high] => self.write_word(port, u16::from_le_bytes([low, high])),
            [a, b, c, d] if port == STATUS => {
                self.write_word(STATUS, u16::from_le_bytes([a, b]));
                self.write_word(ENABLE, u16::from_le_bytes([c, d]));
            }
            [a, b, _, _] if port == PM1A_CONTROL => {
                self.write_word(PM1A_CONTROL, u16::from_le_bytes([a, b]));
            }
            [value] => self.write_byte(port, value),
            _ => {}
        }
    }
}

impl PowerManagement {
    /// Bytes are merged into the register that they belong to; status bytes only clear.
    fn write_byte(&mut self, port: u16, value: u8) {
        let base = port & !1;
        let merge = |current: u16| {
            let [low, high] = current.to_le_bytes();
            if port == base {
                u16::from_le_bytes([value, high])
            } else {
                u16::from_le_bytes([low, value])
            }
        };
        match base {
            STATUS => self.write_word(STATUS, merge(0)),
            ENABLE => self.write_word(ENABLE, merge(self.enable)),
            PM1A_CONTROL => self.write_word(PM1A_CONTROL, merge(self.control)),
            _ => {}
        }
    }
}
