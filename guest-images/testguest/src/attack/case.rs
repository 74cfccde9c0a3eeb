//! One case of attack mode.

use super::outcome::Outcome;
use super::victim::Victim;
use crate::virtio::DeviceError;

/// One attack on a device that is set up and runs.
pub struct Case {
    pub name: &'static str,
    /// Any of these is right.
    pub expected: &'static [Outcome],
    pub run: fn(&mut Victim<'_>) -> Result<Outcome, DeviceError>,
}
