//! The devices at fixed ports: the one place where each is made and gets its ports.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use vmm_devices::pvpanic::PvpanicPort;
use vmm_devices::serial::SerialPort;

use crate::acpi::{COM1_PORT, COM1_PORTS, PVPANIC_PORT};
use crate::config::DebugIoPorts;
use crate::events::GuestEvents;
use crate::fixed_devices::FixedDevices;
use crate::legacy::{
    Clock, DEBUG_EXIT_PORT, DebugExit, KEYBOARD_COMMAND_PORT, KeyboardReset, RTC_PORT,
    TIMESTAMP_PORT, Timestamp,
};
use crate::pci::ConfigPorts;
use crate::pci::config_io_ports::{CONFIG_PORT, CONFIG_PORTS};
use crate::port_device::{PlacedDevice, PortDevice, SavedChipset};
use crate::snapshot::device_error;
use crate::snapshot::error::SnapshotError;

/// Which devices there are, and what they are made of.
pub(crate) struct ChipsetPlan<'a> {
    pub(crate) com1: Arc<Mutex<SerialPort>>,
    pub(crate) config_ports: ConfigPorts,
    pub(crate) clock: Clock,
    pub(crate) fixed: FixedDevices,
    pub(crate) debug: DebugIoPorts,
    /// Where the timestamp port notes the time of the first write.
    pub(crate) first_timestamp: Arc<AtomicU64>,
    pub(crate) events: &'a GuestEvents,
}

/// Makes all devices but ACPI's hardware, whose ports firmware may move, and those that only firmware uses.
pub(crate) fn devices(plan: ChipsetPlan<'_>) -> Vec<PlacedDevice> {
    let ChipsetPlan {
        com1,
        config_ports,
        clock,
        fixed: FixedDevices { isa_pvpanic },
        debug: DebugIoPorts { timestamp, exit },
        first_timestamp,
        events,
    } = plan;
    let keyboard = KeyboardReset::new(events.clone());
    let mut devices = vec![
        PlacedDevice::shared(COM1_PORT, COM1_PORTS, com1),
        PlacedDevice::new(CONFIG_PORT, CONFIG_PORTS, config_ports),
        PlacedDevice::new(KEYBOARD_COMMAND_PORT, 1, keyboard),
        PlacedDevice::new(RTC_PORT, 2, clock),
    ];
    if isa_pvpanic {
        let device = PvpanicPort::new(events.life_sink());
        devices.push(PlacedDevice::new(PVPANIC_PORT, 1, device));
    }
    if timestamp {
        let device = Timestamp::new(first_timestamp);
        devices.push(PlacedDevice::new(TIMESTAMP_PORT, 1, device));
    }
    if exit {
        let device = DebugExit::new(events.clone());
        devices.push(PlacedDevice::new(DEBUG_EXIT_PORT, 1, device));
    }
    devices
}

impl PortDevice for SerialPort {
    fn reset(&mut self) {
        Self::reset(self);
    }

    fn save(&self, saved: &mut SavedChipset<'_>) {
        saved.snapshot.put_com1(Self::save(self));
    }

    fn load(&mut self, saved: &mut SavedChipset<'_>) -> Result<(), SnapshotError> {
        let state = saved.snapshot.take_com1()?;
        Self::load(self, &state).map_err(device_error("com1"))
    }
}

impl PortDevice for PvpanicPort {
    fn reset(&mut self) {
        Self::reset(self);
    }

    fn save(&self, saved: &mut SavedChipset<'_>) {
        saved.legacy.pvpanic_crash_was_reported = self.crash_was_reported();
    }

    fn load(&mut self, saved: &mut SavedChipset<'_>) -> Result<(), SnapshotError> {
        self.set_crash_was_reported(saved.legacy.pvpanic_crash_was_reported);
        Ok(())
    }
}
