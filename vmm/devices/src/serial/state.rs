//! State of the serial port.

use vm_superio::serial::{Serial, SerialState};

use super::{Interrupt, Output, SerialPort};
use crate::state::{DeviceState, Payload, StateError};

/// Registers of the 16550, and the input that the guest has not read.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PortState {
    /// Registers in the order of [`PortState::registers`].
    #[prost(bytes = "vec", tag = "1")]
    registers: Vec<u8>,
    /// The receive FIFO.
    #[prost(bytes = "vec", tag = "2")]
    input: Vec<u8>,
}

impl DeviceState for PortState {
    const KIND: &'static str = "serial-16550";
    const VERSION: u32 = 1;
}

impl PortState {
    fn of(state: SerialState) -> Self {
        Self {
            registers: vec![
                state.baud_divisor_low,
                state.baud_divisor_high,
                state.interrupt_enable,
                state.interrupt_identification,
                state.line_control,
                state.line_status,
                state.modem_control,
                state.modem_status,
                state.scratch,
            ],
            input: state.in_buffer,
        }
    }

    fn registers(self) -> Result<SerialState, StateError> {
        let [
            low,
            high,
            enable,
            identification,
            line,
            status,
            modem,
            modem_status,
            scratch,
        ] = <[u8; 9]>::try_from(self.registers)
            .map_err(|registers| Self::wrong(format!("{} registers", registers.len())))?;
        Ok(SerialState {
            baud_divisor_low: low,
            baud_divisor_high: high,
            interrupt_enable: enable,
            interrupt_identification: identification,
            line_control: line,
            line_status: status,
            modem_control: modem,
            modem_status,
            scratch,
            in_buffer: self.input,
        })
    }
}

impl SerialPort {
    /// The port's state.
    pub fn save(&self) -> Payload {
        PortState::of(self.uart.state()).to_payload()
    }

    /// Goes on where the port of `payload` was.
    ///
    /// # Errors
    /// The state is damaged or of another version; the port is as it was.
    pub fn load(&mut self, payload: &Payload) -> Result<(), StateError> {
        let state = PortState::from_payload(payload)?.registers()?;
        self.uart = Serial::from_state(
            &state,
            Interrupt(self.interrupt.clone()),
            self.room.clone(),
            Output(self.output.clone()),
        )
        .map_err(|_| PortState::wrong("more input than the FIFO holds"))?;
        self.room.available();
        Ok(())
    }
}
