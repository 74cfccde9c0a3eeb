//! The console: a 16550 at COM1, written by polling.

use core::fmt;

use crate::io;

const COM1: u16 = 0x3f8;
const INTERRUPT_ENABLE: u16 = COM1 + 1;
const FIFO_CONTROL: u16 = COM1 + 2;
const LINE_CONTROL: u16 = COM1 + 3;
const MODEM_CONTROL: u16 = COM1 + 4;
const LINE_STATUS: u16 = COM1 + 5;

const DIVISOR_LATCH: u8 = 0x80;
const EIGHT_BITS_NO_PARITY: u8 = 0x03;
const FIFO_ENABLE_AND_CLEAR: u8 = 0x07;
const DTR_RTS: u8 = 0x03;
const DATA_READY: u8 = 0x01;
const TRANSMITTER_EMPTY: u8 = 0x20;

/// Looks at the line status before a character is given up: a stuck console must not stop tests.
const MAX_POLLS: u32 = 1_000_000;

/// 115200 8n1, FIFO on, no interrupts.
pub fn initialise() {
    io::outb(INTERRUPT_ENABLE, 0);
    io::outb(LINE_CONTROL, DIVISOR_LATCH | EIGHT_BITS_NO_PARITY);
    io::outb(COM1, 1);
    io::outb(INTERRUPT_ENABLE, 0);
    io::outb(LINE_CONTROL, EIGHT_BITS_NO_PARITY);
    io::outb(FIFO_CONTROL, FIFO_ENABLE_AND_CLEAR);
    io::outb(MODEM_CONTROL, DTR_RTS);
}

/// A received byte, if there is one.
pub fn read_byte() -> Option<u8> {
    (io::inb(LINE_STATUS) & DATA_READY != 0).then(|| io::inb(COM1))
}

/// The console as a formatter's target; line feeds get a carriage return.
pub struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                write_byte(b'\r');
            }
            write_byte(byte);
        }
        Ok(())
    }
}

fn write_byte(byte: u8) {
    for _ in 0..MAX_POLLS {
        if io::inb(LINE_STATUS) & TRANSMITTER_EMPTY != 0 {
            break;
        }
        core::hint::spin_loop();
    }
    io::outb(COM1, byte);
}

/// Prints one line on the console, as `println!` would.
macro_rules! console_line {
    ($($argument:tt)*) => {{
        use core::fmt::Write as _;
        // The console never fails; formatting our own values does not either.
        writeln!($crate::serial::Console, $($argument)*).unwrap_or_default();
    }};
}

pub(crate) use console_line;
