//! Handles on devices, filled in while they are made.

use std::sync::Arc;

use vmm_devices::virtio::balloon::BalloonControl;

use crate::disks::Disks;
use crate::events::GuestEvents;
use crate::nics::Nics;
use crate::route_failures::RouteFailures;

/// How devices and the machine thread reach each other, while both work.
pub(crate) struct Handles<'a> {
    /// Where notices of devices go.
    pub(crate) events: &'a GuestEvents,
    /// Interrupt routes that fail.
    pub(crate) route_failures: RouteFailures,
    /// Disks that were made.
    pub(crate) disks: Disks,
    /// NICs that were made.
    pub(crate) nics: Nics,
    /// The balloon that was made.
    pub(crate) balloon: Option<Arc<BalloonControl>>,
}
