//! The devices at I/O ports of a machine, with what the machine itself needs of them.

mod devices;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

use vmm_kvm::KvmError;

pub(crate) use self::devices::{ChipsetPlan, devices};
use crate::acpi::{PM_BASE, PM_PORTS};
use crate::firmware::Platform;
use crate::io_ports::Buses;
use crate::legacy::{LegacyState, PowerManagement};
use crate::pci::PciBus;
use crate::port_device::{PlacedDevice, SavedChipset, lock};
use crate::snapshot::Snapshot;
use crate::snapshot::error::SnapshotError;

/// All devices at I/O ports, and what firmware needs besides.
pub(crate) struct Chipset {
    /// `power` is one of them.
    devices: Vec<PlacedDevice>,
    power: Arc<Mutex<PowerManagement>>,
    platform: Option<Arc<Platform>>,
}

impl Chipset {
    pub(crate) fn new(
        mut plan: ChipsetPlan<'_>,
        mut power: PowerManagement,
        platform: Option<Arc<Platform>>,
    ) -> Self {
        if let Some(platform) = &platform {
            power = power.with_firmware();
            plan.clock = plan.clock.with_memory(platform.clock_memory());
        }
        let power = Arc::new(Mutex::new(power));
        let mut devices = devices(plan);
        devices.push(PlacedDevice {
            // Firmware moves them.
            ports: platform.is_none().then_some((PM_BASE, PM_PORTS)),
            device: Arc::clone(&power) as _,
        });
        if let Some(platform) = &platform {
            devices.extend_from_slice(platform.devices());
        }
        Self {
            devices,
            power,
            platform,
        }
    }

    /// All that exits of vCPUs can reach.
    pub(crate) fn buses(&self, bus: Arc<PciBus>) -> Buses {
        match &self.platform {
            None => Buses::new(bus, &self.devices),
            Some(platform) => {
                let power = Arc::clone(&self.power) as _;
                Buses::with_firmware(bus, &self.devices, Arc::clone(platform), power)
            }
        }
    }

    /// Back to power-on.
    pub(crate) fn reset(&self) -> Result<(), KvmError> {
        for placed in &self.devices {
            placed.lock().reset();
        }
        self.platform
            .as_ref()
            .map_or(Ok(()), |platform| platform.reset())
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
        let mut saved = SavedChipset::new(snapshot, LegacyState::default());
        for placed in &self.devices {
            placed.lock().save(&mut saved);
        }
        if let Some(platform) = &self.platform {
            platform.save(&mut saved);
        }
        let legacy = saved.legacy;
        snapshot.put_legacy(&legacy);
    }

    /// Goes on where `snapshot` was taken.
    pub(crate) fn load(&self, snapshot: &mut Snapshot) -> Result<(), SnapshotError> {
        let legacy = snapshot.take_legacy()?;
        let mut saved = SavedChipset::new(snapshot, legacy);
        if let Some(platform) = &self.platform {
            platform.load(&mut saved)?;
        }
        for placed in &self.devices {
            placed.lock().load(&mut saved)?;
        }
        Ok(())
    }
}
