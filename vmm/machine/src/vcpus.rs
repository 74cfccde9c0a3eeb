//! The vCPU threads.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use vmm_kvm::{Exit, KvmError, KvmHost, PowerOnState, SavedStateError, Vcpu, VcpuKick, VcpuState};
use vmm_sys::threads::{ThreadKind, Threads};

use crate::build::error::BuildError;
use crate::chain::chain;
use crate::coalesced_pio::CoalescedPio;
use crate::config::MachineConfig;
use crate::events::GuestEvents;
use crate::gate::{Command, Gate};
use crate::guest_event::{GuestEvent, ResetSource};
use crate::io_ports::Buses;
use crate::snapshot::error::SnapshotError;
use crate::stuck::StuckVcpus;
use crate::timeline::{Phase, Timeline};

/// A kick cannot be lost, but a vCPU may be held up by the host; then it is kicked again.
const KICK_INTERVAL: Duration = Duration::from_millis(20);
const KICK_ATTEMPTS: u32 = 500;

/// All vCPU threads of a machine.
pub(crate) struct Vcpus {
    gate: Arc<Gate>,
    kicks: Vec<Arc<VcpuKick>>,
    states: StateTable,
}

/// What vCPU threads and machine thread hand each other: a state for each vCPU, or why there is none.
#[derive(Clone, Default)]
struct StateTable(Arc<Mutex<Vec<Result<VcpuState, String>>>>);

impl StateTable {
    fn lock(&self) -> MutexGuard<'_, Vec<Result<VcpuState, String>>> {
        // Entries are whole whatever happened to another holder of the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, index: usize, state: Result<VcpuState, String>) {
        if let Some(entry) = self.lock().get_mut(index) {
            *entry = state;
        }
    }

    fn take(&self, index: usize) -> Result<VcpuState, String> {
        let empty = Err("it was given no state".to_owned());
        match self.lock().get_mut(index) {
            Some(entry) => std::mem::replace(entry, empty),
            None => empty,
        }
    }
}

/// Checks that the host's KVM takes so many vCPUs; those that are yet to come count, too.
pub(crate) fn check_count(config: &MachineConfig, host: &KvmHost) -> Result<(), BuildError> {
    let topology = config.cpus.topology;
    let largest_id = topology.apic_id(topology.max_count() - 1);
    let checks = [
        (topology.max_count(), host.max_vcpus()),
        (largest_id.saturating_add(1), host.max_vcpu_ids()),
    ];
    for (wanted, limit) in checks {
        if usize::try_from(wanted).is_ok_and(|wanted| wanted > limit) {
            return Err(BuildError::TooManyVcpus { wanted, limit });
        }
    }
    Ok(())
}

/// What every vCPU thread needs.
#[derive(Clone)]
pub(crate) struct VcpuContext {
    pub host: Arc<KvmHost>,
    pub gate: Arc<Gate>,
    pub buses: Arc<Buses>,
    pub coalesced_pio: Arc<CoalescedPio>,
    pub events: GuestEvents,
    pub timeline: Timeline,
    /// Firmware sets vCPUs up.
    pub has_firmware: bool,
    /// Guests have memory shown and hidden by vCPU threads.
    pub moves_slots: bool,
}

impl VcpuContext {
    fn thread_kind(&self) -> ThreadKind {
        if self.moves_slots {
            ThreadKind::FirmwareVcpu
        } else {
            ThreadKind::Vcpu
        }
    }
}

impl Vcpus {
    /// Starts one thread for each of `vcpus`, the boot processor first, and has `pin` put it on its
    /// CPUs. They wait at the gate.
    pub(crate) fn start(
        threads: Threads,
        vcpus: Vec<Vcpu>,
        context: &VcpuContext,
        pin: impl Fn(&JoinHandle<()>, u32) -> io::Result<()>,
    ) -> io::Result<Self> {
        let mut kicks = Vec::with_capacity(vcpus.len());
        let states = StateTable::default();
        for (number, (index, vcpu)) in (0u32..).zip(vcpus.into_iter().enumerate()) {
            kicks.push(vcpu.kick_handle());
            let thread = VcpuThread {
                index,
                vcpu,
                states: states.clone(),
                power_on: None,
                context: context.clone(),
            };
            let name = format!("vcpu{index}");
            let thread = threads.spawn(context.thread_kind(), name, move || thread.run())?;
            pin(&thread, number)?;
        }
        Ok(Self {
            gate: Arc::clone(&context.gate),
            kicks,
            states,
        })
    }

    /// The state of every vCPU, while they are held.
    pub(crate) fn save(&self) -> Result<Vec<VcpuState>, SnapshotError> {
        let nothing = || Err("it did not answer".to_owned());
        *self.states.lock() = self.kicks.iter().map(|_| nothing()).collect();
        let stuck = self.command(Command::Save).err();
        self.outcome(stuck)
    }

    /// Brings every vCPU to its state, before any ran.
    pub(crate) fn restore(&self, states: Vec<VcpuState>) -> Result<(), SnapshotError> {
        *self.states.lock() = states.into_iter().map(Ok).collect();
        let stuck = self.command(Command::Restore).err();
        let states = self.outcome(stuck)?;
        *self.states.lock() = states.into_iter().map(Ok).collect();
        let stuck = self.command(Command::StartClock).err();
        self.outcome(stuck).map(drop)
    }

    /// What the threads left in the table.
    fn outcome(&self, stuck: Option<StuckVcpus>) -> Result<Vec<VcpuState>, SnapshotError> {
        if let Some(error) = stuck {
            let (index, reason) = (0, error.to_string());
            return Err(SnapshotError::Vcpu { index, reason });
        }
        std::mem::take(&mut *self.states.lock())
            .into_iter()
            .enumerate()
            .map(|(index, state)| state.map_err(|reason| SnapshotError::Vcpu { index, reason }))
            .collect()
    }

    /// The gate that they pass.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Number of vCPUs.
    pub(crate) fn count(&self) -> usize {
        self.kicks.len()
    }

    /// Gives a command and waits until every vCPU has carried it out; for `Run` it does not wait.
    pub(crate) fn command(&self, command: Command) -> Result<(), StuckVcpus> {
        self.gate.order(command);
        if command == Command::Run {
            return Ok(());
        }
        for _ in 0..KICK_ATTEMPTS {
            for kick in &self.kicks {
                // ESRCH is no error of kick(), and others cannot happen to our own threads.
                drop(kick.kick());
            }
            if self.gate.wait_done(KICK_INTERVAL) {
                return Ok(());
            }
        }
        Err(StuckVcpus)
    }
}

/// Bound on the exits of one instruction. KVM looks for signals between the steps of string instructions, so that none gets near
/// it.
const MOST_ACCESSES: u32 = 65_536;

/// What a vCPU came back after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryOutcome {
    /// Something of the guest, which was seen to.
    Exit,
    /// Nothing: it was called, or held back.
    Interruption,
    /// What ends the guest.
    Failure,
}

struct VcpuThread {
    /// 0 is the boot processor.
    index: usize,
    vcpu: Vcpu,
    states: StateTable,
    /// Read before the first entry.
    power_on: Option<PowerOnState>,
    context: VcpuContext,
}

impl VcpuThread {
    fn run(mut self) {
        let kick = self.vcpu.kick_handle();
        kick.enter_thread();
        let mut seen = 0;
        loop {
            let order = self.context.gate.next_order(seen);
            seen = order.number;
            match order.command {
                Command::Hold => self.report(self.vcpu.note_pause()),
                Command::Leave => {
                    kick.leave_thread();
                    self.context.gate.report_done(order.number);
                    return;
                }
                Command::Reset(start) => {
                    let result = self.reset(start.as_ref());
                    self.report(result);
                }
                Command::Save => {
                    let state = self.vcpu.save(&self.context.host);
                    self.states
                        .put(self.index, state.map_err(|error| chain(&error)));
                }
                Command::Restore => self.restore(),
                Command::StartClock => {
                    self.bring(|vcpu, host, state| vcpu.start_clock(host, state))
                }
                Command::Run => {
                    self.context.gate.report_done(order.number);
                    self.run_guest(&kick);
                    continue;
                }
            }
            self.context.gate.report_done(order.number);
        }
    }

    /// A failure of the host's ends the guest.
    fn report(&self, result: Result<(), KvmError>) {
        if let Err(error) = result {
            let text = chain(&error);
            self.context.events.post(GuestEvent::HostFailure(text));
        }
    }

    fn restore(&mut self) {
        if let Err(error) = self.note_power_on() {
            self.states.put(self.index, Err(chain(&error)));
            return;
        }
        self.bring(|vcpu, host, state| vcpu.restore(host, state));
    }

    /// Brings the vCPU to its state, which goes back into the table, or why it could not be.
    fn bring(&mut self, how: fn(&Vcpu, &KvmHost, &VcpuState) -> Result<(), SavedStateError>) {
        let brought = self.states.take(self.index).and_then(|state| {
            how(&self.vcpu, &self.context.host, &state).map_err(|error| chain(&error))?;
            Ok(state)
        });
        self.states.put(self.index, brought);
    }

    /// What a reset brings back.
    fn note_power_on(&mut self) -> Result<(), KvmError> {
        if !self.context.has_firmware {
            self.vcpu.set_firmware_defaults()?;
        }
        self.power_on = Some(self.vcpu.power_on_state(&self.context.host)?);
        Ok(())
    }

    fn reset(&mut self, start: Option<&vmm_kvm::StartState>) -> Result<(), KvmError> {
        match &self.power_on {
            Some(state) => self.vcpu.reset_to(state)?,
            None => self.note_power_on()?,
        }
        match start {
            Some(start) if self.index == 0 => self.vcpu.start_at(start),
            _ => Ok(()),
        }
    }

    /// Enters the guest until the gate closes.
    fn run_guest(&mut self, kick: &VcpuKick) {
        if self.index == 0 {
            self.context.timeline.note(Phase::FirstEntry);
        }
        while self.context.gate.is_open() {
            if self.enter() == EntryOutcome::Interruption {
                // The flag is cleared before the gate is looked at: no kick is lost.
                kick.acknowledge();
            }
        }
        self.finish_instruction(kick);
    }

    /// Finishes what the guest has begun: an instruction may take several accesses, and KVM has no
    /// state for half of one.
    fn finish_instruction(&mut self, kick: &VcpuKick) {
        let mut is_finished = false;
        for _ in 0..MOST_ACCESSES {
            // KVM completes a pending access only in the next KVM_RUN (api.rst, `immediate_exit`). With the flag set, that
            // returns EINTR, or the next access of the same instruction.
            kick.hold_back();
            is_finished = self.enter() != EntryOutcome::Exit;
            if is_finished {
                break;
            }
        }
        kick.acknowledge();
        if !is_finished {
            let text = format!("an instruction did not end after {MOST_ACCESSES} accesses");
            let event = self.locate(GuestEvent::VcpuFailed(text));
            self.context.events.post(event);
        }
    }

    /// Enters the guest until something happens, and sees to it.
    fn enter(&mut self) -> EntryOutcome {
        let context = &self.context;
        let exit = self.vcpu.run();
        context.coalesced_pio.drain(&context.buses);
        match exit {
            Ok(Exit::PortRead { port, width, data }) => {
                for unit in data.chunks_mut(width) {
                    context.buses.port_read(port, unit);
                }
            }
            Ok(Exit::PortWrite { port, width, data }) => {
                for unit in data.chunks(width) {
                    context.buses.port_write(port, unit);
                }
            }
            Ok(Exit::MmioRead { address, data }) => context.buses.mmio_read(address, data),
            Ok(Exit::MmioWrite { address, data }) => context.buses.mmio_write(address, data),
            Ok(Exit::Answered) => {}
            Ok(Exit::Interrupted) => return EntryOutcome::Interruption,
            Ok(exit) => {
                if let Some(event) = event_of(&exit) {
                    let event = self.locate(event);
                    self.context.events.post(event);
                    return EntryOutcome::Failure;
                }
            }
            Err(error) => {
                let event = GuestEvent::VcpuFailed(chain(&error));
                let event = self.locate(event);
                self.context.events.post(event);
                return EntryOutcome::Failure;
            }
        }
        EntryOutcome::Exit
    }

    /// Adds where the guest was to a failure.
    fn locate(&self, event: GuestEvent) -> GuestEvent {
        match (event, self.vcpu.instruction_pointer()) {
            (GuestEvent::VcpuFailed(text), Some(rip)) => {
                GuestEvent::VcpuFailed(format!("{text} at rip {rip:#x}"))
            }
            (event, _) => event,
        }
    }
}

fn event_of(exit: &Exit<'_>) -> Option<GuestEvent> {
    match exit {
        Exit::Shutdown => Some(GuestEvent::Reset(ResetSource::TripleFault)),
        Exit::SystemReset => Some(GuestEvent::Reset(ResetSource::Hypercall)),
        Exit::SystemPowerOff => Some(GuestEvent::PowerOff),
        Exit::SystemCrash => Some(GuestEvent::Panicked),
        Exit::Failure(detail) => Some(GuestEvent::VcpuFailed(format!("{detail:?}"))),
        _ => None,
    }
}
