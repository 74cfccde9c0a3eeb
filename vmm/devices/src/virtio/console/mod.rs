//! virtio-console (VIRTIO 1.2, 5.3) with many ports: port 0 may be a console, the others are
//! channels with names, such as that of a guest agent.
//!
//! A named port leads to a peer: a connected stream socket that whoever owns the machine attaches.
//! Peers come and go; the guest sees the port open and closed, and each peer only what was meant for
//! it. Console output goes to a [`ConsoleOutput`](crate::serial::ConsoleOutput), which always takes it.

mod config;
mod control;
mod guest;
mod host;
mod port;
mod state;

#[cfg(test)]
mod tests;

use std::os::fd::AsRawFd;
use std::sync::Arc;

use self::config::{CONTROL_RECEIVE, CONTROL_TRANSMIT, EMERG_WR, MULTIPORT, Role, SIZE};
use self::control::{DriverMessage, MESSAGE_BYTES};
use self::guest::GuestSide;
pub use self::host::{
    AttachError, ConsoleLine, ConsolePorts, ConsolePortsError, ConsoleSize, ConsoleSpec, HostPort,
    MAX_NAME_BYTES, MAX_NAMED_PORTS, is_name,
};
use self::port::{Port, Scratch};
use self::state::ConsoleState;
use super::device::{ActivateError, ActiveContext, DeviceEvent, DeviceKind, VirtioDevice};
use super::fault::DeviceFault;
use super::interrupt::ConfigCall;
use super::queue::{Budget, Chain, ChainOutcome, VirtQueue, copy_in, copy_out, serve, window};
use crate::event::EventSource;
use crate::state::{DeviceState, Payload, Payloads, StateError};
use vmm_memory::GuestRam;

/// A communication controller of no further kind.
const KIND: DeviceKind = DeviceKind {
    id: 3,
    class: 0x07_8000,
};

/// Messages of the driver before others have their turn.
const CONTROL_BUDGET: Budget = Budget {
    chains: 64,
    bytes: 64 << 10,
};

/// A console device.
pub struct ConsoleDevice {
    host: Arc<ConsolePorts>,
    queue_sizes: Vec<u16>,
    ports: Vec<Port>,
    /// Generation of the console's size that the driver got last.
    size_generation: u8,
    active: Option<Active>,
}

struct Active {
    memory: Arc<GuestRam>,
    queues: Vec<VirtQueue>,
    features: u64,
    config_call: ConfigCall,
    scratch: Scratch,
}

impl ConsoleDevice {
    /// A device with these ports.
    #[must_use]
    pub fn new(host: Arc<ConsolePorts>) -> Self {
        let console = host.console().map(|line| Port::console(Arc::clone(line)));
        let named = host
            .named()
            .iter()
            .map(|port| Port::named(Arc::clone(port)));
        Self {
            queue_sizes: config::queue_sizes(&host),
            ports: console.into_iter().chain(named).collect(),
            size_generation: 0,
            active: None,
            host,
        }
    }

    /// A device made of the state that is among `payloads`. Its driver learns that the peers it knew
    /// are no more.
    ///
    /// # Errors
    /// The state is not that of a device with these ports.
    pub fn restored(host: Arc<ConsolePorts>, payloads: &mut Payloads) -> Result<Self, StateError> {
        let state = payloads.take::<ConsoleState>()?;
        let mut device = Self::new(host);
        state.load(&mut device.ports, &device.host)?;
        device.size_generation = device.present_size_generation();
        Ok(device)
    }

    fn present_size_generation(&self) -> u8 {
        self.host.console().map_or(0, |console| console.size().1)
    }

    /// Checks whether the console's size has changed since the driver got it.
    fn check_size(&mut self) {
        let generation = self.present_size_generation();
        if std::mem::replace(&mut self.size_generation, generation) == generation {
            return;
        }
        let Some(active) = &self.active else {
            return;
        };
        if active.features & MULTIPORT == 0 {
            active.config_call.send();
        } else if active.features & SIZE != 0
            && let Some(console) = self.ports.iter_mut().find(|port| port.is_console())
        {
            console.guest.on_resize();
        }
    }

    /// Serves the ports of these numbers, in both directions.
    fn serve_ports(&mut self, wanted: impl Fn(u16) -> bool) -> Result<(), DeviceFault> {
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        for port in self.ports.iter_mut().filter(|port| wanted(port.number)) {
            port.check_peer();
        }
        // Control messages first: a driver must not take a peer's bytes for those of the one before.
        active.send_messages(&mut self.ports)?;
        for port in self.ports.iter_mut().filter(|port| wanted(port.number)) {
            active.receive(port)?;
            active.transmit(port)?;
        }
        active.send_messages(&mut self.ports)
    }

    fn serve_control(&mut self) -> Result<(), DeviceFault> {
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        active.take_messages(&mut self.ports)?;
        self.serve_ports(|_| true)
    }
}

impl Active {
    fn queue(&mut self, index: usize) -> Option<(&mut VirtQueue, &GuestRam, &mut Scratch)> {
        let queue = self.queues.get_mut(index)?;
        Some((queue, &self.memory, &mut self.scratch))
    }

    fn receive(&mut self, port: &mut Port) -> Result<(), DeviceFault> {
        match self.queue(config::receive_queue(port.number)) {
            Some((queue, memory, scratch)) => port.receive(queue, memory, scratch),
            None => Ok(()),
        }
    }

    fn transmit(&mut self, port: &mut Port) -> Result<(), DeviceFault> {
        match self.queue(config::receive_queue(port.number) + 1) {
            Some((queue, memory, scratch)) => port.transmit(queue, memory, scratch),
            None => Ok(()),
        }
    }

    /// Gives chains of a queue that belongs to no port back.
    fn discard(&mut self, queue: usize) -> Result<(), DeviceFault> {
        match self.queues.get_mut(queue) {
            Some(queue) => serve(queue, CONTROL_BUDGET, |_| ChainOutcome::default()),
            None => Ok(()),
        }
    }

    /// Sends the messages that are owed, as far as the driver has room for them.
    fn send_messages(&mut self, ports: &mut [Port]) -> Result<(), DeviceFault> {
        let Some(queue) = self.queues.get_mut(CONTROL_RECEIVE) else {
            return Ok(());
        };
        let mut chain = Chain::default();
        for port in ports {
            while let Some(message) = port.next_message() {
                while !queue.pop(&mut chain)? {
                    if !queue.enable_notification()? {
                        return queue.signal_used();
                    }
                }
                let message = message.bytes(port.number);
                let buffers = window(&chain.writable, 0, message.len() as u64);
                // A buffer that is too short, or no RAM, is the driver's loss.
                let written = copy_in(&self.memory, buffers, &message).unwrap_or(0);
                queue.add_used(chain.head, u32::try_from(written).unwrap_or(0))?;
                port.guest.on_sent();
            }
        }
        queue.signal_used()
    }

    /// Takes the driver's messages. Those that are too short, or of ports that are not there, are
    /// ignored.
    fn take_messages(&mut self, ports: &mut [Port]) -> Result<(), DeviceFault> {
        let wants_size = self.features & SIZE != 0;
        let memory = &self.memory;
        let Some(queue) = self.queues.get_mut(CONTROL_TRANSMIT) else {
            return Ok(());
        };
        serve(queue, CONTROL_BUDGET, |chain| {
            let mut message = [0; MESSAGE_BYTES];
            let buffers = window(&chain.readable, 0, MESSAGE_BYTES as u64);
            let copied = copy_out(memory, buffers, &mut message).unwrap_or(0);
            if copied == MESSAGE_BYTES
                && let Some(message) = DriverMessage::parse(message)
            {
                take_message(ports, message, wants_size);
            }
            ChainOutcome {
                written: 0,
                moved: copied as u64,
            }
        })
    }
}

fn numbered(ports: &mut [Port], number: u32) -> Option<&mut Port> {
    ports
        .iter_mut()
        .find(|port| u32::from(port.number) == number)
}

fn take_message(ports: &mut [Port], message: DriverMessage, wants_size: bool) {
    match message {
        DriverMessage::DeviceReady => {
            for port in ports {
                port.guest.announce();
            }
        }
        DriverMessage::PortReady { port, made } => {
            if let Some(port) = numbered(ports, port) {
                port.on_ready(made, wants_size);
            }
        }
        DriverMessage::PortOpen { port, open } => {
            if let Some(port) = numbered(ports, port) {
                port.guest.is_open = open;
            }
        }
    }
}

impl VirtioDevice for ConsoleDevice {
    fn kind(&self) -> DeviceKind {
        KIND
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.queue_sizes
    }

    fn features(&self) -> u64 {
        config::features(&self.host)
    }

    fn config(&self) -> Vec<u8> {
        config::image(&self.host)
    }

    fn config_generation(&self) -> u8 {
        self.present_size_generation()
    }

    fn write_config(&mut self, offset: u64, data: &[u8]) {
        if let (EMERG_WR, Some(character), Some(console)) =
            (offset, data.first(), self.host.console())
        {
            console.write(&[*character]);
        }
    }

    fn activate(&mut self, context: ActiveContext) -> Result<(), ActivateError> {
        if context.features & MULTIPORT == 0
            && let Some(console) = self.ports.iter_mut().find(|port| port.is_console())
        {
            console.guest = GuestSide::of_single_port();
        }
        self.active = Some(Active {
            memory: context.memory,
            queues: context.queues,
            features: context.features,
            config_call: context.config_call,
            scratch: Scratch::new(),
        });
        // Peers and input may have been there before, and their edges are past.
        self.host.watch().wake();
        Ok(())
    }

    fn reset(&mut self) {
        self.active = None;
        for port in &mut self.ports {
            port.reset();
        }
    }

    fn queues(&self) -> Vec<&VirtQueue> {
        match &self.active {
            Some(active) => active.queues.iter().collect(),
            None => Vec::new(),
        }
    }

    fn save(&self) -> Option<Payload> {
        Some(ConsoleState::of(&self.ports, &self.host).to_payload())
    }

    fn event_sources(&self) -> Vec<EventSource> {
        vec![EventSource {
            token: 0,
            fd: self.host.watch().as_raw_fd(),
        }]
    }

    fn handle(&mut self, event: DeviceEvent) -> Result<(), DeviceFault> {
        let queue = match event {
            DeviceEvent::Source(_) => {
                let happened = self.host.watch().take();
                self.check_size();
                return self.serve_ports(|port| happened.woken || happened.ports.contains(&port));
            }
            DeviceEvent::Kick(queue) => queue,
        };
        match config::role(queue) {
            Some(Role::ControlTransmit) => self.serve_control(),
            // Data may wait for the driver to hear who sends it.
            Some(Role::ControlReceive) => self.serve_ports(|_| true),
            Some(Role::Receive(number) | Role::Transmit(number)) => {
                if self.ports.iter().any(|port| port.number == number) {
                    return self.serve_ports(|port| port == number);
                }
                match &mut self.active {
                    Some(active) if queue % 2 == 1 => active.discard(queue),
                    _ => Ok(()),
                }
            }
            None => Ok(()),
        }
    }
}
