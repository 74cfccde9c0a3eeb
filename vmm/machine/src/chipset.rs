//! The port devices of a machine, with what the machine itself needs of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vmm_devices::DeviceState;
use vmm_devices::pvpanic::PvpanicPort;

use crate::acpi::{COM1_PORT, COM1_PORTS, PM_BASE, PM_PORTS, PVPANIC_PORT};
use crate::config::{DebugIoPorts, SerialConfig};
use crate::events::GuestEvents;
use crate::firmware::Platform;
use crate::io_ports::Buses;
use crate::legacy::{
    Clock, DEBUG_EXIT_PORT, DebugExit, KEYBOARD_COMMAND_PORT, KeyboardReset, LegacyState,
    PowerManagement, RTC_PORT, TIMESTAMP_PORT, Timestamp,
};
use crate::pci::config_io_ports::{CONFIG_PORT, CONFIG_PORTS};
use crate::pci::{ConfigPorts, PciBus};
use crate::shared_device::SharedDevice;
use crate::snapshot::error::SnapshotError;
use crate::snapshot::{Snapshot, device_error};
use crate::status::StatusBoard;

/// Devices with state.
pub(crate) struct Chipset {
    com1: Arc<Mutex<vmm_devices::serial::SerialPort>>,
    config_ports: Arc<Mutex<ConfigPorts>>,
    power: Arc<Mutex<PowerManagement>>,
    clock: Arc<Mutex<Clock>>,
    pvpanic: Option<Arc<Mutex<PvpanicPort>>>,
    platform: Option<Arc<Platform>>,
}

impl Chipset {
    pub(crate) fn new(
        serial: &SerialConfig,
        config_ports: ConfigPorts,
        power: PowerManagement,
        clock: Clock,
        platform: Option<Arc<Platform>>,
    ) -> Self {
        let (power, clock) = match &platform {
            Some(platform) => (
                power.with_firmware(),
                clock.with_memory(platform.clock_memory()),
            ),
            None => (power, clock),
        };
        Self {
            com1: Arc::clone(&serial.port),
            config_ports: Arc::new(Mutex::new(config_ports)),
            power: Arc::new(Mutex::new(power)),
            clock: Arc::new(Mutex::new(clock)),
            pvpanic: None,
            platform,
        }
    }

    /// Adds a panic device.
    pub(crate) fn add_pvpanic(&mut self, device: PvpanicPort) {
        self.pvpanic = Some(Arc::new(Mutex::new(device)));
    }

    /// First port, number of ports and device, of all that a guest finds.
    pub(crate) fn ports(
        &self,
        debug: DebugIoPorts,
        events: &GuestEvents,
        board: &StatusBoard,
    ) -> Vec<(u16, u16, SharedDevice)> {
        let keyboard = KeyboardReset::new(events.clone());
        let mut ports: Vec<(u16, u16, SharedDevice)> = vec![
            (COM1_PORT, COM1_PORTS, Arc::clone(&self.com1) as _),
            (
                CONFIG_PORT,
                CONFIG_PORTS,
                Arc::clone(&self.config_ports) as _,
            ),
            (KEYBOARD_COMMAND_PORT, 1, Arc::new(Mutex::new(keyboard))),
            (RTC_PORT, 2, Arc::clone(&self.clock) as _),
        ];
        match &self.platform {
            Some(platform) => ports.extend(platform.ports()),
            None => ports.push((PM_BASE, PM_PORTS, Arc::clone(&self.power) as _)),
        }
        if let Some(pvpanic) = &self.pvpanic {
            ports.push((PVPANIC_PORT, 1, Arc::clone(pvpanic) as _));
        }
        if debug.timestamp {
            let device = Timestamp::new(board.first_timestamp());
            ports.push((TIMESTAMP_PORT, 1, Arc::new(Mutex::new(device))));
        }
        if debug.exit {
            let device = DebugExit::new(events.clone());
            ports.push((DEBUG_EXIT_PORT, 1, Arc::new(Mutex::new(device))));
        }
        ports
    }

    /// All that exits of vCPUs can reach, by these ports.
    pub(crate) fn buses(&self, bus: Arc<PciBus>, ports: Vec<(u16, u16, SharedDevice)>) -> Buses {
        match &self.platform {
            None => Buses::new(bus, ports),
            Some(platform) => {
                let power = Arc::clone(&self.power) as _;
                Buses::with_firmware(bus, ports, Arc::clone(platform), power)
            }
        }
    }

    /// Back to power-on.
    pub(crate) fn reset(&self) {
        lock(&self.power).reset();
        lock(&self.com1).reset();
        if let Some(pvpanic) = &self.pvpanic {
            lock(pvpanic).reset();
        }
    }

    /// Has the timer of a chipset that was loaded go on.
    pub(crate) fn start_clock(&self) {
        lock(&self.power).start_clock();
    }

    /// Presses the power button.
    pub(crate) fn press_power_button(&self) {
        lock(&self.power).press_power_button();
    }

    /// A general purpose event of ACPI happened.
    pub(crate) fn raise_event(&self, event: u8) {
        lock(&self.power).raise(event);
    }

    /// Adds the state of all.
    pub(crate) fn save(&self, snapshot: &mut Snapshot) {
        snapshot.put_com1(lock(&self.com1).save());
        snapshot.put_legacy(&LegacyState {
            power: Some(lock(&self.power).save()),
            rtc_index: lock(&self.clock).index().into(),
            config_address: lock(&self.config_ports).address(),
            pvpanic_crash_was_reported: self
                .pvpanic
                .as_ref()
                .is_some_and(|pvpanic| lock(pvpanic).crash_was_reported()),
        });
        if let Some(platform) = &self.platform {
            platform.save(lock(&self.clock).memory(), snapshot);
        }
    }

    /// Goes on where `snapshot` was taken.
    pub(crate) fn load(&self, snapshot: &mut Snapshot) -> Result<(), SnapshotError> {
        let com1 = snapshot.take_com1()?;
        lock(&self.com1).load(&com1).map_err(device_error("com1"))?;
        let state: LegacyState = snapshot.take_legacy()?;
        let wrong = |what: &str| device_error("legacy")(LegacyState::wrong(what));
        let power = state
            .power
            .ok_or_else(|| wrong("no registers of power management"))?;
        if !lock(&self.power).load(&power) {
            return Err(wrong("registers of power management"));
        }
        let index = u8::try_from(state.rtc_index).map_err(|_| wrong("index of the clock"))?;
        lock(&self.clock).select(index);
        lock(&self.config_ports).set_address(state.config_address);
        if let Some(pvpanic) = &self.pvpanic {
            lock(pvpanic).set_crash_was_reported(state.pvpanic_crash_was_reported);
        }
        if let Some(platform) = &self.platform {
            let memory = platform.load(snapshot)?;
            if !lock(&self.clock).load_memory(&memory) {
                return Err(wrong("memory of the clock"));
            }
        }
        Ok(())
    }
}

fn lock<T>(device: &Mutex<T>) -> MutexGuard<'_, T> {
    // Registers are whole after each access.
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
