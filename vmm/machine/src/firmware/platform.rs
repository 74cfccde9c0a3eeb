//! All that a machine with firmware has besides.

use std::sync::{Arc, Mutex};

use vmm_devices::DeviceState;
use vmm_devices::fw_cfg::{self, FwCfg};
use vmm_devices::pflash::Flash;
use vmm_kvm::{Backing, KvmError, Overlay, Vm};
use vmm_memory::RomMemory;

use super::debug::{self, DebugPort};
use super::flash::PlacedFlash;
use super::items::{self, Machine};
use super::script::GENERATION_ADDRESS_FILE;
use super::shadow;
use super::state::PlatformState;
use super::tables::TableSource;
use super::{cmos, image};
use crate::acpi::DescribedPci;
use crate::build::error::BuildError;
use crate::chain::chain;
use crate::change_limiter::ChangeLimiter;
use crate::durable::Variables;
use crate::events::GuestEvents;
use crate::firmware::config::{DebugLog, FirmwareConfig};
use crate::firmware::decode::Decode;
use crate::firmware::error::FirmwareError;
use crate::firmware::shadow::Shadow;
use crate::fixed_devices::FixedDevices;
use crate::guest_event::GuestEvent;
use crate::legacy::{A20_PORT, APM_PORT, APM_PORTS, Apm, ClockMemory, FastA20};
use crate::pci::address::PciAddress;
use crate::pci::{Bridges, HostBridge, LpcBridge, Moves};
use crate::port_device::{PlacedDevice, PortDevice, SavedChipset, lock};
use crate::snapshot::error::SnapshotError;
use crate::snapshot::{Snapshot, device_error};

/// Numbers of overlays, behind those of the shadow.
const IMAGE_SLOT: u16 = shadow::SLOTS;
const FLASH_SLOT: u16 = shadow::SLOTS + 1;

/// General control of the root complex: the watchdog of the chipset cannot reset (bit 5); there is
/// none.
const GENERAL_CONTROL: u64 = 0x3410;
const NO_REBOOT: u8 = 1 << 5;

const FW_CFG: &str = "fw-cfg";
const FLASH: &str = "pflash";
const PLATFORM: &str = "platform";

/// What the platform is made of.
pub(crate) struct Plan<'a> {
    pub(crate) config: &'a FirmwareConfig,
    pub(crate) machine: Machine<'a>,
    pub(crate) pci: &'a DescribedPci,
    pub(crate) nodes: &'a [crate::numa::NumaNode],
    pub(crate) fixed: FixedDevices,
}

/// Firmware and its surroundings.
pub(crate) struct Platform {
    decode: Arc<Decode>,
    shadow: Arc<Shadow>,
    image: Arc<RomMemory>,
    flash: Option<PlacedFlash>,
    fw_cfg: Arc<Mutex<FwCfg>>,
    /// At fixed ports; `fw_cfg` is one of them.
    devices: Vec<PlacedDevice>,
    clock_memory: ClockMemory,
    events: GuestEvents,
}

impl Platform {
    /// Puts firmware in its place, and gets ready what it looks for.
    pub(crate) fn new(
        plan: &Plan<'_>,
        vm: &Arc<Vm>,
        events: &GuestEvents,
    ) -> Result<Self, BuildError> {
        let Plan {
            config, machine, ..
        } = plan;
        let image = image::read(&config.code)?;
        show_image(vm, &image)?;
        let limiter = Arc::new(ChangeLimiter::default());
        let flash = place_flash(
            config,
            vm,
            image.bytes() as u64,
            (Arc::clone(&limiter), events),
        )?;
        let decode = Arc::new(Decode::power_on());
        let source = TableSource {
            layout: *machine.layout,
            pci: plan.pci.clone(),
            topology: machine.cpu.topology(),
            nodes: plan.nodes.to_vec(),
            has_generation: machine.generation.is_some(),
            fixed: plan.fixed,
            decode: Arc::clone(&decode),
        };
        let items = items::items(config, machine, &source)?;
        let fw_cfg = FwCfg::new(items, Arc::new(vm.ram().clone()));
        let fw_cfg = Arc::new(Mutex::new(fw_cfg));
        let mut devices = vec![
            PlacedDevice::shared(fw_cfg::PORT, fw_cfg::PORTS, Arc::clone(&fw_cfg) as _),
            PlacedDevice::new(APM_PORT, APM_PORTS, Apm::default()),
            PlacedDevice::new(A20_PORT, 1, FastA20::new(events.clone())),
        ];
        if let Some(device) = debug_port(config.debug_log.as_ref())? {
            devices.push(PlacedDevice::new(debug::PORT, 1, device));
        }
        Ok(Self {
            shadow: Arc::new(Shadow::new(Arc::clone(vm), Arc::clone(&image), limiter)?),
            decode,
            image,
            flash,
            fw_cfg,
            devices,
            clock_memory: cmos::memory(machine.layout, machine.cpu.topology().count()),
            events: events.clone(),
        })
    }

    /// Where firmware puts things.
    pub(crate) fn decode(&self) -> &Arc<Decode> {
        &self.decode
    }

    /// Where firmware keeps its variables, if it does.
    pub(crate) fn variables(&self) -> Option<Arc<Variables>> {
        self.flash.as_ref().map(PlacedFlash::variables)
    }

    /// What the clock's memory is at power-on.
    pub(crate) fn clock_memory(&self) -> ClockMemory {
        self.clock_memory
    }

    /// The chipset's own functions: new, or as they were saved.
    pub(crate) fn bridges(&self, snapshot: Option<&mut Snapshot>) -> Result<Bridges, BuildError> {
        let mut host = HostBridge::with_firmware(Moves {
            decode: Arc::clone(&self.decode),
            shadow: Arc::clone(&self.shadow),
            events: self.events.clone(),
        });
        let mut isa = LpcBridge::isa(Arc::clone(&self.decode));
        if let Some(snapshot) = snapshot {
            let mut state = snapshot.take_function(PciAddress::HOST_BRIDGE);
            let loaded = host.load(&mut state).and_then(|()| state.finish());
            loaded.map_err(device_error("the host bridge"))?;
            let mut state = snapshot.take_function(PciAddress::ISA_BRIDGE);
            let loaded = isa.load(&mut state).and_then(|()| state.finish());
            loaded.map_err(device_error("the ISA bridge"))?;
        }
        Ok(Bridges::with_firmware(host, isa))
    }

    /// Devices at fixed ports that only firmware looks for.
    pub(crate) fn devices(&self) -> &[PlacedDevice] {
        &self.devices
    }

    /// A read of memory that is neither RAM nor configuration space; false when it is nothing of this.
    pub(crate) fn read(&self, address: u64, data: &mut [u8]) -> bool {
        if let Some(offset) = self.decode.root_complex_offset(address) {
            for (at, byte) in (offset..).zip(data) {
                *byte = if at == GENERAL_CONTROL { NO_REBOOT } else { 0 };
            }
            return true;
        }
        self.flash
            .as_ref()
            .is_some_and(|flash| flash.read(address, data))
    }

    /// A write, likewise.
    pub(crate) fn write(&self, address: u64, data: &[u8]) -> bool {
        let flashed = self
            .flash
            .as_ref()
            .and_then(|flash| flash.write(address, data));
        if let Some(result) = flashed {
            self.check(result);
            return true;
        }
        self.shadow.write(address, data) || self.decode.root_complex_offset(address).is_some()
    }

    fn check(&self, result: Result<(), KvmError>) {
        if let Err(error) = result {
            self.events.post(GuestEvent::HostFailure(chain(&error)));
        }
    }

    /// Back to power-on; the bridges are reset with all functions, devices at ports with those of the chipset.
    pub(crate) fn reset(&self) -> Result<(), KvmError> {
        self.flash.as_ref().map_or(Ok(()), PlacedFlash::reset)
    }

    /// Where firmware put the generation id, once it has.
    pub(crate) fn generation_address(&self) -> Option<u64> {
        let fw_cfg = lock(&self.fw_cfg);
        let written = fw_cfg.written(GENERATION_ADDRESS_FILE)?;
        let address = u64::from_le_bytes(written.try_into().ok()?);
        (address != 0).then_some(address)
    }

    /// Adds the state of all but the bridges; that of the devices at ports is in `saved` already.
    pub(crate) fn save(&self, saved: &mut SavedChipset<'_>) {
        if let Some(flash) = &self.flash {
            saved.snapshot.put_part(FLASH, flash.save());
        }
        saved.platform.code_bytes = self.image.bytes() as u64;
        let state = saved.platform.to_payload();
        saved.snapshot.put_part(PLATFORM, state);
    }

    /// Goes on where `saved` was taken; leaves in it what the devices at ports go on with.
    pub(crate) fn load(&self, saved: &mut SavedChipset<'_>) -> Result<(), SnapshotError> {
        if let Some(flash) = &self.flash {
            let state = saved.snapshot.take_part(FLASH)?;
            flash.load(&state).map_err(device_error(FLASH))?;
            self.check(flash.follow());
        }
        let state = saved.snapshot.take_part(PLATFORM)?;
        saved.platform = PlatformState::from_payload(&state).map_err(device_error(PLATFORM))?;
        if saved.platform.code_bytes != self.image.bytes() as u64 {
            return Err(wrong("the firmware image has another length here"));
        }
        Ok(())
    }
}

fn wrong(what: &str) -> SnapshotError {
    device_error(PLATFORM)(PlatformState::wrong(what))
}

impl PortDevice for FwCfg {
    fn reset(&mut self) {
        Self::reset(self);
    }

    fn save(&self, saved: &mut SavedChipset<'_>) {
        saved.snapshot.put_part(FW_CFG, Self::save(self));
    }

    fn load(&mut self, saved: &mut SavedChipset<'_>) -> Result<(), SnapshotError> {
        let state = saved.snapshot.take_part(FW_CFG)?;
        Self::load(self, &state).map_err(device_error(FW_CFG))
    }
}

impl PortDevice for Apm {
    fn reset(&mut self) {
        self.set([0; 2]);
    }

    fn save(&self, saved: &mut SavedChipset<'_>) {
        saved.platform.apm = self.registers().to_vec();
    }

    fn load(&mut self, saved: &mut SavedChipset<'_>) -> Result<(), SnapshotError> {
        let apm = saved.platform.apm.as_slice();
        self.set(apm.try_into().map_err(|_| wrong("registers of APM"))?);
        Ok(())
    }
}

impl PortDevice for FastA20 {
    fn reset(&mut self) {
        Self::reset(self);
    }

    fn save(&self, saved: &mut SavedChipset<'_>) {
        saved.platform.fast_a20 = self.value().into();
    }

    fn load(&mut self, saved: &mut SavedChipset<'_>) -> Result<(), SnapshotError> {
        self.set(u8::try_from(saved.platform.fast_a20).map_err(|_| wrong("port 0x92"))?);
        Ok(())
    }
}

fn show_image(vm: &Vm, image: &Arc<RomMemory>) -> Result<(), KvmError> {
    let overlay = Overlay {
        range: image::below_4_gib(image.bytes() as u64, 0),
        backing: Backing::Rom(Arc::clone(image), 0),
    };
    vm.show(IMAGE_SLOT, Some(overlay))
}

fn place_flash(
    config: &FirmwareConfig,
    vm: &Arc<Vm>,
    image_bytes: u64,
    (limiter, events): (Arc<ChangeLimiter>, &GuestEvents),
) -> Result<Option<PlacedFlash>, BuildError> {
    let Some(file) = &config.variables else {
        return Ok(None);
    };
    let file = file
        .try_clone()
        .map_err(|error| FirmwareError::Descriptor("the variable store", error))?;
    let flash = Flash::new(file).map_err(FirmwareError::from)?;
    let range = image::below_4_gib(flash.bytes(), image_bytes);
    let flash = PlacedFlash::new(
        flash,
        range,
        (Arc::clone(vm), FLASH_SLOT),
        limiter,
        events.clone(),
    );
    flash.follow()?;
    Ok(Some(flash))
}

fn debug_port(log: Option<&DebugLog>) -> Result<Option<DebugPort>, FirmwareError> {
    let Some(log) = log else {
        return Ok(None);
    };
    let file = log
        .file
        .try_clone()
        .map_err(|error| FirmwareError::Descriptor("the debug log", error))?;
    let max_bytes = log.max_bytes;
    Ok(Some(DebugPort::new(DebugLog { file, max_bytes })))
}
