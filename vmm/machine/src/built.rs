//! The machine once it is built: it runs, holds still, starts over, is saved and ends.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use vmm_kvm::Vm;
use vmm_memory::GuestRam;

use crate::build::error::BuildError;
use crate::build::made::{Devices, Parts};
use crate::coalesced_pio::CoalescedPio;
use crate::disks::Disks;
use crate::gate::Command;
use crate::generation;
use crate::generation_id::GenerationState;
use crate::memory;
use crate::nics::Nics;
use crate::snapshot::error::SnapshotError;
use crate::snapshot::{Snapshot, kvm_error};
use crate::status::StatusBoard;
use crate::vcpus::Vcpus;

/// Last phase: everything is there and holds still until it is started.
pub(crate) struct BuiltMachine {
    pub(crate) parts: Parts,
    pub(crate) devices: Devices,
    pub(crate) vcpus: Vcpus,
    pub(crate) coalesced_pio: Arc<CoalescedPio>,
    pub(crate) board: StatusBoard,
    /// Functions were brought to rest, or were never begun with.
    pub(crate) is_at_rest: Cell<bool>,
}

impl BuiltMachine {
    /// Lets the guest run.
    pub(crate) fn run(&self) -> Result<(), BuildError> {
        // A function that works goes on by itself, and may keep whoever touches it.
        if self.is_at_rest.take() {
            self.devices.bus.resume();
        }
        self.devices.threads.resume();
        self.coalesced_pio.begin();
        Ok(self.vcpus.command(Command::Run)?)
    }

    /// When [`Self::poll_coalesced_pio`] has to be called next, if ever.
    pub(crate) fn coalesced_pio_due(&self) -> Option<Instant> {
        self.coalesced_pio.poll_due()
    }

    /// Applies port writes that caused no exit.
    pub(crate) fn poll_coalesced_pio(&self) {
        self.coalesced_pio.poll(&self.devices.buses);
    }

    /// Holds the guest: no vCPU runs, no device is served, and nothing is in flight.
    pub(crate) fn hold(&self) -> Result<(), BuildError> {
        self.hold_threads()?;
        self.is_at_rest.set(true);
        self.devices.bus.quiesce()?;
        self.vcpus.gate().note_quiesced();
        Ok(())
    }

    /// Whether the guest has stopped a device that is not known to be at rest.
    pub(crate) fn is_quiesce_requested(&self) -> bool {
        self.vcpus.gate().is_quiesce_requested()
    }

    fn hold_threads(&self) -> Result<(), BuildError> {
        // Ahead of the vCPUs: one that touches a device waits for the thread that serves it.
        self.devices.threads.ask_to_pause();
        // A vCPU that waits for a device comes out when the device's thread does.
        self.devices.threads.wait_paused()?;
        Ok(self.vcpus.command(Command::Hold)?)
    }

    /// Brings a machine that holds still back to power-on, the kernel loaded anew.
    pub(crate) fn reset(&self) -> Result<(), BuildError> {
        self.devices.bus.reset()?;
        self.devices.chipset.reset()?;
        self.parts.vm.reset_to(&self.parts.chips)?;
        memory::clear(&self.parts.config.memory, self.ram(), &self.board)?;
        let start = self.parts.load()?;
        Ok(self.vcpus.command(Command::Reset(start))?)
    }

    /// Presses the power button.
    pub(crate) fn press_power_button(&self) {
        self.devices.chipset.press_power_button();
    }

    /// The state of a machine that holds still, but for its RAM.
    pub(crate) fn save(&self) -> Result<Snapshot, SnapshotError> {
        let mut snapshot = Snapshot::default();
        snapshot.put_cpus(&self.parts.cpu);
        // Before the vCPUs: what lines are up comes back after them.
        let vm = self.parts.vm.save().map_err(kvm_error("vm"))?;
        snapshot.put_vm(vm);
        for (index, state) in self.vcpus.save()?.into_iter().enumerate() {
            snapshot.put_vcpu(index, state);
        }
        self.devices.bus.save(&mut snapshot);
        self.devices.chipset.save(&mut snapshot);
        let id = self.parts.config.life.vm_gen_id;
        if let (Some(id), Some(address)) = (id, generation::address(&self.devices)) {
            snapshot.put_generation(&GenerationState::new(address, id));
        }
        Ok(snapshot)
    }

    /// The disks, for changes while the guest runs.
    pub(crate) fn disks(&self) -> &Disks {
        &self.devices.disks
    }

    /// The NICs, for changes while the guest runs.
    pub(crate) fn nics(&self) -> &Nics {
        &self.devices.nics
    }

    pub(crate) fn vm(&self) -> &Vm {
        &self.parts.vm
    }

    /// Guest memory.
    pub(crate) fn ram(&self) -> &GuestRam {
        self.parts.vm.ram()
    }

    /// Ends all threads. The guest never runs again.
    pub(crate) fn end(&self) -> Result<(), BuildError> {
        let held = self.hold_threads();
        // One that is stuck ends when the host lets it go, or with the process.
        self.devices.threads.end();
        held?;
        Ok(self.vcpus.command(Command::Leave)?)
    }
}
