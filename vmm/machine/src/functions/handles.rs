//! Handles on devices, filled in while they are made.

use std::sync::Arc;

use vmm_devices::virtio::balloon::BalloonControl;

use crate::cards::Cards;
use crate::disks::Disks;
use crate::events::GuestEvents;
use crate::route_failures::RouteFailures;

/// How devices and the machine's owner reach each other, while both work.
pub(crate) struct Handles<'a> {
    /// Where notices of devices go.
    pub(crate) events: &'a GuestEvents,
    /// Interrupt routes that fail.
    pub(crate) route_failures: RouteFailures,
    /// Disks that were made.
    pub(crate) disks: Disks,
    /// Network cards that were made.
    pub(crate) cards: Cards,
    /// The balloon that was made.
    pub(crate) balloon: Option<Arc<BalloonControl>>,
}
