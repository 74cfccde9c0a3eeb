//! What a machine's parts make of each other: its memory's content, its bus, its firmware.

use std::sync::Arc;

use vmm_kvm::{Backing, GuestCpu, Overlay, StartState, Vm};
use vmm_memory::{ECAM_BASE, GuestRam, Layout, RomMemory, Window};

use super::made::Parts;
use crate::acpi::DescribedPci;
use crate::build::error::BuildError;
use crate::chain::chain;
use crate::change_limiter::ChangeLimiter;
use crate::config::{BootSource, MachineConfig};
use crate::events::GuestEvents;
use crate::firmware::order::BootOrder;
use crate::firmware::{self, Plan, Platform};
use crate::guest_event::GuestEvent;
use crate::pci::hooks::{BindKick, Unbind};
use crate::pci::{self, ConfigPages, MapPage, PciBus, PlacedFunction};
use crate::snapshot::error::SnapshotError;
use crate::snapshot::{Snapshot, kvm_error};
use crate::{boot, direct_boot_tables};

/// Tables, kernel, initrd and command line into RAM; nothing for firmware, which does that itself.
pub(super) fn load(
    ram: &GuestRam,
    config: &MachineConfig,
    cpu: &GuestCpu,
    layout: &Layout,
    pci: &DescribedPci,
) -> Result<Option<StartState>, BuildError> {
    let BootSource::Kernel(kernel) = &config.boot else {
        return Ok(None);
    };
    let firmware = direct_boot_tables::write(ram, config, cpu, layout, pci)?;
    Ok(Some(boot::load(ram, layout, kernel, firmware)?))
}

impl Parts {
    /// What was loaded at first, into RAM that is zero again.
    pub(crate) fn load(&self) -> Result<Option<StartState>, BuildError> {
        let ram = self.vm.ram();
        load(ram, &self.config, &self.cpu, &self.layout, &self.pci)
    }

    /// What firmware needs, if the machine boots by it.
    pub(super) fn platform(
        &self,
        order: &BootOrder,
        events: &GuestEvents,
    ) -> Result<Option<Arc<Platform>>, BuildError> {
        let Some(config) = self.config.boot.firmware() else {
            return Ok(None);
        };
        let plan = Plan {
            config,
            machine: firmware::Machine {
                layout: &self.layout,
                cpu: &self.cpu,
                smbios: self.config.smbios.as_ref(),
                generation: self.config.life.vm_gen_id,
                order,
            },
            pci: &self.pci,
            nodes: &self.config.numa_nodes,
            fixed: self.config.fixed,
        };
        Ok(Some(Arc::new(Platform::new(&plan, &self.vm, events)?)))
    }

    /// The bus, with all that was saved in its place, or as it is at power-on.
    pub(super) fn bus(
        &self,
        functions: Vec<PlacedFunction>,
        platform: Option<&Platform>,
        snapshot: Option<&mut Snapshot>,
        events: &GuestEvents,
    ) -> Result<PciBus, BuildError> {
        let bind = bind_kick(Arc::clone(&self.vm));
        let is_new = snapshot.is_none();
        let mut bus = match platform {
            Some(platform) => {
                let bridges = platform.bridges(snapshot)?;
                PciBus::with_firmware(bind, self.layout, bridges, functions)
            }
            None => PciBus::new(bind, self.layout, functions),
        };
        bus.when_stopped(events.quiesce_sink());
        if is_new {
            bus.place()?;
        } else {
            bus.remap_all();
        }
        if self.config.boot.maps_pci() {
            let memory = Arc::new(RomMemory::zeroed(bus.slots().count())?);
            let map_page = page_mapper(Arc::clone(&self.vm), Arc::clone(&memory), events.clone());
            bus.map_config_pages(ConfigPages::new(memory, map_page));
        }
        Ok(bus)
    }

    pub(super) fn restore_vm(&self, snapshot: &mut Snapshot) -> Result<(), SnapshotError> {
        let state = snapshot.take_vm()?;
        self.vm.restore(&state).map_err(kvm_error("vm"))
    }
}

/// Kicks by ioeventfd. Refused where another function is kicked at that very address.
fn bind_kick(vm: Arc<Vm>) -> BindKick {
    Box::new(move |event, address| {
        let binding = vm.bind_io_event(event, address).ok()?;
        let (vm, event) = (Arc::clone(&vm), Arc::clone(event));
        // Undoing only fails for what is not bound any more.
        Some(Box::new(move || drop(vm.unbind_io_event(&event, binding))) as Unbind)
    })
}

/// Shows configuration space by overlays, of which a machine without firmware has no others. A guest that
/// has functions come and go by their bridges is held back.
fn page_mapper(vm: Arc<Vm>, memory: Arc<RomMemory>, events: GuestEvents) -> MapPage {
    let limiter = ChangeLimiter::default();
    Box::new(move |page, offset| {
        limiter.wait(1);
        let bytes = pci::PAGE_BYTES as u64;
        let overlay = |offset: u64| Overlay {
            range: Window {
                base: ECAM_BASE + offset,
                bytes,
            },
            backing: Backing::Rom(Arc::clone(&memory), page as u64 * bytes),
        };
        let Ok(number) = u16::try_from(page) else {
            return false;
        };
        if let Err(error) = vm.show(number, None) {
            // The guest would go on seeing registers that are not there.
            events.post(GuestEvent::HostFailure(chain(&error)));
        }
        offset.is_some_and(|offset| vm.show(number, Some(overlay(offset))).is_ok())
    })
}
