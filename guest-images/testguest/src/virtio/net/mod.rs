//! The NIC's test: frames of all lengths to a peer that sends each one back, and what else
//! the command line asks for.

mod cases;
pub mod frames;
mod lane;
mod nic;
mod packet;

use super::DeviceError;
use crate::clock::Clock;
use crate::pci::Function;
use nic::{Nic, Totals};
use testguest_lib::command_line::Settings;

/// What the test found out about a device that passed.
pub struct NetSummary {
    /// The NIC's MAC address.
    pub mac: [u8; 6],
    /// Frames sent and returned intact.
    pub frames: u64,
    /// Frames that had to be sent again.
    pub retries: u64,
    /// Frames that came spread over several buffers.
    pub merged: u64,
    /// Interrupts taken by the queues of frames.
    pub irqs: u32,
}

/// Tests a NIC against the echo peer of `settings`, case by case.
pub fn test(
    function: &Function,
    clock: &Clock,
    settings: &Settings,
) -> Result<NetSummary, DeviceError> {
    let frames = u32::try_from(settings.net_frames);
    let frames = frames.map_err(|_| DeviceError::Refused("that many frames"))?;
    let mut summary = NetSummary {
        mac: [0; 6],
        frames: 0,
        retries: 0,
        merged: 0,
        irqs: 0,
    };
    for case in settings.net_cases.iter() {
        let wanted = cases::wanted(case);
        let mut nic = Nic::open(function, clock, settings, &wanted)?;
        summary.mac = nic.mac;
        cases::run(case, &mut nic, clock, frames)?;
        let Totals {
            frames,
            retries,
            merged,
        } = nic.totals;
        summary.frames += frames;
        summary.retries += retries;
        summary.merged += merged;
        summary.irqs = summary.irqs.wrapping_add(nic.irqs());
    }
    Ok(summary)
}
