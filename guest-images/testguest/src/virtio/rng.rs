//! The entropy device's test: bytes come, and not the same ones twice.

use super::queue::{Queue, Segment};
use super::{Device, DeviceError, queue_vector};
use crate::clock::Clock;
use crate::memory::DmaBuffer;
use crate::pci::Function;
use testguest_lib::command_line::Mode;

const SAMPLE_BYTES: usize = 64;
const TIMEOUT_MS: u64 = 10_000;

/// What the test found out about a device that passed.
pub struct RngSummary {
    /// Bytes of entropy read.
    pub bytes: usize,
    /// Interrupts taken.
    pub irqs: u32,
}

/// Reads two samples and compares them.
pub fn test(function: &Function, clock: &Clock, mode: Mode) -> Result<RngSummary, DeviceError> {
    let mut device = Device::open(function, clock, mode, 0)?;
    let mut queue = device.queue(0, queue_vector(0))?;
    device.start();
    let irqs_before = queue.irqs();
    let memory = DmaBuffer::new(SAMPLE_BYTES).ok_or(DeviceError::Missing("memory for entropy"))?;
    let first = sample(&mut queue, clock, &memory)?;
    let second = sample(&mut queue, clock, &memory)?;
    for (what, suspicious) in [
        (
            "entropy that is all zero",
            first == [0; SAMPLE_BYTES] || second == [0; SAMPLE_BYTES],
        ),
        ("entropy that repeats itself", first == second),
    ] {
        if suspicious {
            return Err(DeviceError::Mismatch {
                what,
                expected: 0,
                got: 1,
            });
        }
    }
    let irqs = queue.irqs().wrapping_sub(irqs_before);
    Ok(RngSummary {
        bytes: 2 * SAMPLE_BYTES,
        irqs,
    })
}

/// Fills one sample; a device may give less than it is asked for, never nothing.
fn sample(
    queue: &mut Queue<'_>,
    clock: &Clock,
    memory: &DmaBuffer,
) -> Result<[u8; SAMPLE_BYTES], DeviceError> {
    let mut sample = [0; SAMPLE_BYTES];
    let mut filled = 0;
    while filled < SAMPLE_BYTES {
        let missing = SAMPLE_BYTES - filled;
        let bytes = u32::try_from(missing).unwrap_or(0);
        queue.submit(
            0,
            &[Segment {
                address: memory.address(),
                bytes,
                device_writes: true,
            }],
        );
        queue.kick();
        let deadline = clock.after_ms(TIMEOUT_MS);
        let used = queue.wait_used(deadline, "entropy")?;
        queue.confirm_irq(deadline, "entropy")?;
        let got = usize::try_from(used.bytes).unwrap_or(usize::MAX);
        if !(1..=missing).contains(&got) {
            return Err(DeviceError::Mismatch {
                what: "bytes of entropy",
                expected: u64::from(bytes),
                got: u64::from(used.bytes),
            });
        }
        memory.read(0, &mut sample[filled..filled + got]);
        filled += got;
    }
    Ok(sample)
}
