//! Threads that do not come to rest.

use std::time::Duration;

use crate::pci::address::PciAddress;

/// vCPUs did not leave the guest within ten seconds.
#[derive(Debug, thiserror::Error)]
#[error("vCPUs did not come out of the guest within 10 s")]
pub struct StuckVcpus;

/// A device keeps its thread from pausing.
#[derive(Debug)]
pub(crate) struct StuckThread {
    /// Which device, unless the thread is between two.
    pub(crate) device: Option<PciAddress>,
    /// How long it was waited for.
    pub(crate) waited: Duration,
}
