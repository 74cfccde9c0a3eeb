//! Port 0x402, where firmware leaves messages for people who debug it.

use std::os::unix::fs::FileExt;

use vmm_devices::BusDevice;

use crate::firmware::config::DebugLog;
use crate::port_device::PortDevice;

/// I/O port to which firmware writes its log, as under QEMU.
pub(crate) const PORT: u16 = 0x402;
/// What it reads as: somebody listens.
const LISTENING: u8 = 0xe9;
/// A message is written when a line ends, or when it is as long as this.
const MOST_KEPT: usize = 256;

/// The port and its log.
pub(crate) struct DebugPort {
    log: DebugLog,
    written: u64,
    line: Vec<u8>,
}

impl DebugPort {
    pub(crate) fn new(log: DebugLog) -> Self {
        Self {
            log,
            written: 0,
            line: Vec::new(),
        }
    }

    fn take(&mut self, byte: u8) {
        self.line.push(byte);
        if byte == b'\n' || self.line.len() >= MOST_KEPT {
            self.put();
        }
    }

    fn put(&mut self) {
        let line = std::mem::take(&mut self.line);
        let left = self.log.max_bytes.saturating_sub(self.written);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let part = line.get(..left).unwrap_or(&line);
        // A log that cannot be written is full.
        match self.log.file.write_all_at(part, self.written) {
            Ok(()) => self.written += part.len() as u64,
            Err(_) => self.written = self.log.max_bytes,
        }
    }
}

impl PortDevice for DebugPort {}

impl BusDevice for DebugPort {
    fn read(&mut self, _: u64, data: &mut [u8]) {
        data.fill(LISTENING);
    }

    fn write(&mut self, _: u64, data: &[u8]) {
        for byte in data {
            self.take(*byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_until_the_log_is_full() {
        let file = tempfile::tempfile().unwrap();
        let mut port = DebugPort::new(DebugLog {
            file: file.try_clone().unwrap(),
            max_bytes: 10,
        });
        for byte in b"first\nsecond\nthird\n" {
            port.write(0, &[*byte]);
        }
        let mut content = [0; 10];
        file.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"first\nseco");
        assert_eq!(file.metadata().unwrap().len(), 10);
    }
}
