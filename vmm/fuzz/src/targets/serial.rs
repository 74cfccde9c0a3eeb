//! The serial port: its registers, its input, its state.

use std::sync::Arc;

use vmm_devices::serial::{ConsoleOutput, SerialPort};
use vmm_devices::{BusDevice, Payload};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::input::Input;

const MAX_STEPS: usize = 300;

/// What nobody reads.
struct Nowhere;

impl ConsoleOutput for Nowhere {
    fn write(&self, _: &[u8]) {}
}

/// A port after power-on.
pub fn port() -> SerialPort {
    let interrupt = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).expect("a descriptor");
    SerialPort::new(Arc::new(interrupt), Arc::new(Nowhere)).expect("a port")
}

/// Runs a program.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut port = port();
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        step(&mut port, &mut input);
    }
    port.reset();
    assert_eq!(port.input(b"x"), 1, "no room after a reset");
}

fn step(port: &mut SerialPort, input: &mut Input<'_>) {
    let offset = u64::from(input.u8() % 9);
    match input.below(8) {
        0..=3 => {
            let data = input.access();
            port.write(offset, &data);
        }
        4 => {
            let mut data = input.access();
            port.read(offset, &mut data);
        }
        5 => {
            let count = input.below(100);
            let text = input.bytes(count);
            assert!(port.input(text) <= text.len(), "more than there was");
            port.clear_input_space_event();
        }
        6 => {
            let saved = port.save();
            port.load(&saved).expect("its own state");
        }
        _ => {
            let Payload {
                kind,
                version,
                mut bytes,
            } = port.save();
            let at = usize::from(input.u8());
            let value = input.u8();
            match bytes.get_mut(at) {
                Some(byte) => *byte ^= value,
                None => bytes.push(value),
            }
            let damaged = Payload {
                kind,
                version,
                bytes,
            };
            // Refused or taken; either way it goes on.
            let _ = port.load(&damaged);
        }
    }
}
