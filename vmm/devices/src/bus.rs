//! What sits on an I/O port range or a fixed MMIO range.

/// A device with registers at fixed addresses.
///
/// The machine calls it with the lock of the device held, from whichever vCPU thread made the
/// access. A vCPU stands still meanwhile: both calls return at once.
pub trait BusDevice: Send {
    /// Reads `data.len()` bytes (1, 2, 4 or 8) at `offset` within the device's range.
    ///
    /// The whole of `data` is defined afterwards: registers that do not exist read as ones.
    fn read(&mut self, offset: u64, data: &mut [u8]);

    /// Writes `data` (1, 2, 4 or 8 bytes) at `offset` within the device's range.
    ///
    /// Writes to registers that do not exist, or of a width that they do not have, are dropped.
    fn write(&mut self, offset: u64, data: &[u8]);
}
