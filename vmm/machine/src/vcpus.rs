//! The vCPU threads.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use vmm_kvm::{Exit, KvmError, KvmHost, PowerOnState, Vcpu, VcpuKick};

use crate::events::{GuestEvent, GuestEvents, ResetSource};
use crate::gate::{Command, Gate};
use crate::ports::Buses;

/// Enough for the deepest device access; the default of 2 MiB is only address space, but limits on
/// that are common.
const STACK_BYTES: usize = 256 << 10;

/// A kick can not be lost, but a vCPU may be held up by the host; then it is kicked again.
const KICK_INTERVAL: Duration = Duration::from_millis(20);
const KICK_ATTEMPTS: u32 = 500;

/// All vCPU threads of a machine.
pub(crate) struct Vcpus {
    gate: Arc<Gate>,
    kicks: Vec<Arc<VcpuKick>>,
}

/// vCPUs did not leave the guest within ten seconds.
#[derive(Debug, thiserror::Error)]
#[error("vCPUs did not come out of the guest within 10 s")]
pub(crate) struct StuckVcpus;

/// What every vCPU thread needs.
#[derive(Clone)]
pub(crate) struct VcpuContext {
    pub host: Arc<KvmHost>,
    pub gate: Arc<Gate>,
    pub buses: Arc<Buses>,
    pub events: GuestEvents,
}

impl Vcpus {
    /// Starts one thread for each of `vcpus`, the boot processor first. They wait at the gate.
    pub(crate) fn start(vcpus: Vec<Vcpu>, context: &VcpuContext) -> io::Result<Self> {
        let mut kicks = Vec::with_capacity(vcpus.len());
        for (index, vcpu) in vcpus.into_iter().enumerate() {
            kicks.push(vcpu.kick_handle());
            let thread = VcpuThread {
                is_boot_processor: index == 0,
                vcpu,
                power_on: None,
                context: context.clone(),
            };
            std::thread::Builder::new()
                .name(format!("vcpu{index}"))
                .stack_size(STACK_BYTES)
                .spawn(move || thread.run())?;
        }
        Ok(Self {
            gate: Arc::clone(&context.gate),
            kicks,
        })
    }

    /// Gives a command and waits until every vCPU has carried it out.
    pub(crate) fn command(&self, command: Command) -> Result<(), StuckVcpus> {
        self.gate.order(command);
        if command == Command::Run {
            return Ok(());
        }
        for _ in 0..KICK_ATTEMPTS {
            for kick in &self.kicks {
                // ESRCH is no error of kick(), and others can not happen to our own threads.
                drop(kick.kick());
            }
            if self.gate.wait_done(KICK_INTERVAL) {
                return Ok(());
            }
        }
        Err(StuckVcpus)
    }
}

struct VcpuThread {
    is_boot_processor: bool,
    vcpu: Vcpu,
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
                Command::Hold => {}
                Command::Leave => {
                    kick.leave_thread();
                    self.context.gate.report_done(order.number);
                    return;
                }
                Command::Reset(start) => {
                    if let Err(error) = self.reset(&start) {
                        let text = chain(&error);
                        self.context.events.post(GuestEvent::HostFailure(text));
                    }
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

    fn reset(&mut self, start: &vmm_kvm::StartState) -> Result<(), KvmError> {
        match &self.power_on {
            Some(state) => self.vcpu.reset_to(state)?,
            None => {
                self.vcpu.set_firmware_defaults()?;
                self.power_on = Some(self.vcpu.power_on_state(&self.context.host)?);
            }
        }
        if self.is_boot_processor {
            self.vcpu.start_at(start)?;
        }
        Ok(())
    }

    /// Enters the guest until the gate closes.
    fn run_guest(&mut self, kick: &VcpuKick) {
        while self.context.gate.is_open() {
            let context = &self.context;
            match self.vcpu.run() {
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
                // The flag is cleared before the gate is looked at: no kick is lost.
                Ok(Exit::Interrupted) => kick.acknowledge(),
                Ok(exit) => {
                    if let Some(event) = event_of(&exit) {
                        let event = self.locate(event);
                        self.context.events.post(event);
                    }
                }
                Err(error) => {
                    let event = GuestEvent::VcpuFailed(chain(&error));
                    let event = self.locate(event);
                    self.context.events.post(event);
                }
            }
        }
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

/// An error with its causes, for people.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
