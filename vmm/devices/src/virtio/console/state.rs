//! The saved state of a console: what its driver knows of the ports, and what was typed and not yet
//! taken. Peers are not in it: the guest sees each of them go.

use super::guest::GuestSide;
use super::host::{ConsolePorts, ConsoleSize, MAX_NAMED_PORTS};
use super::port::Port;
use crate::state::{DeviceState, StateError};

/// The state.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ConsoleState {
    #[prost(message, repeated, tag = "1")]
    ports: Vec<PortState>,
    /// Typed into the console, not yet taken by the guest.
    #[prost(bytes = "vec", tag = "2")]
    input: Vec<u8>,
    /// Size of the console.
    #[prost(uint32, tag = "3")]
    columns: u32,
    #[prost(uint32, tag = "4")]
    rows: u32,
}

impl DeviceState for ConsoleState {
    const KIND: &'static str = "virtio-console";
    const VERSION: u32 = 1;
}

/// One port.
#[derive(Clone, PartialEq, prost::Message)]
struct PortState {
    #[prost(uint32, tag = "1")]
    number: u32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(bool, tag = "3")]
    is_ready: bool,
    #[prost(bool, tag = "4")]
    is_open: bool,
    #[prost(bool, tag = "5")]
    sent_open: bool,
    /// Messages that the driver is owed, one bit each.
    #[prost(uint32, tag = "6")]
    owed: u32,
}

impl ConsoleState {
    pub(super) fn of(ports: &[Port], host: &ConsolePorts) -> Self {
        let (input, size) = match host.console() {
            Some(console) => console.saved(),
            None => (Vec::new(), ConsoleSize::default()),
        };
        let state = |port: &Port| PortState {
            number: port.number.into(),
            name: port.name().to_owned(),
            is_ready: port.guest.is_ready,
            is_open: port.guest.is_open,
            sent_open: port.guest.sent_open,
            owed: port.guest.pending(),
        };
        Self {
            ports: ports.iter().map(state).collect(),
            input,
            columns: size.columns.into(),
            rows: size.rows.into(),
        }
    }

    /// Brings `ports` after power-on to the state: the same ports, or the guest would find others
    /// behind the names it knows.
    pub(super) fn load(&self, ports: &mut [Port], host: &ConsolePorts) -> Result<(), StateError> {
        if self.ports.len() > MAX_NAMED_PORTS + 1 || self.ports.len() != ports.len() {
            return Err(Self::wrong(format!("{} ports", self.ports.len())));
        }
        let mut sides = Vec::with_capacity(ports.len());
        for (port, saved) in ports.iter().zip(&self.ports) {
            if saved.number != u32::from(port.number) || saved.name != port.name() {
                let (number, name) = (saved.number, &saved.name);
                return Err(Self::wrong(format!("port {number} named {name:?}")));
            }
            let side =
                GuestSide::restored(saved.is_ready, saved.is_open, saved.sent_open, saved.owed);
            sides.push(side.ok_or_else(|| Self::wrong(format!("owed {:#x}", saved.owed)))?);
        }
        let size = (u16::try_from(self.columns).ok())
            .zip(u16::try_from(self.rows).ok())
            .map(|(columns, rows)| ConsoleSize { columns, rows })
            .ok_or_else(|| Self::wrong("size of the console"))?;
        match host.console() {
            Some(console) if console.load(&self.input, size) => {}
            None if self.input.is_empty() => {}
            _ => return Err(Self::wrong(format!("{} bytes of input", self.input.len()))),
        }
        for (port, side) in ports.iter_mut().zip(sides) {
            port.go_on_with(side);
        }
        Ok(())
    }
}
