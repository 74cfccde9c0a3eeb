//! Lines that whoever sits at the console types.

use crate::serial;

/// Longer lines are cut.
const LINE_BYTES: usize = 1024;

/// A line in the making.
pub struct ConsoleLines {
    line: [u8; LINE_BYTES],
    length: usize,
}

impl ConsoleLines {
    pub const fn new() -> Self {
        Self {
            line: [0; LINE_BYTES],
            length: 0,
        }
    }

    /// Calls `take` with a line if one is complete, which is not empty; whether it was.
    pub fn poll(&mut self, take: impl FnOnce(&str)) -> bool {
        while let Some(byte) = serial::read_byte() {
            match byte {
                b'\r' | b'\n' if self.length == 0 => {}
                b'\r' | b'\n' => {
                    let text = self.line.get(..self.length).unwrap_or_default();
                    self.length = 0;
                    take(core::str::from_utf8(text).unwrap_or("?"));
                    return true;
                }
                byte => {
                    if let Some(free) = self.line.get_mut(self.length) {
                        *free = byte;
                        self.length += 1;
                    }
                }
            }
        }
        false
    }
}
