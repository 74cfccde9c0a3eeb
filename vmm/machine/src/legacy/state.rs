//! State of the port devices that snapshots had first.

use vmm_devices::DeviceState;

use crate::snapshot::device_error;
use crate::snapshot::error::SnapshotError;

/// All of them: each is a few registers. A device that comes later has a part of its own.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LegacyState {
    /// Power management.
    #[prost(message, optional, tag = "1")]
    pub(crate) power: Option<PowerState>,
    /// Index register of the real-time clock.
    #[prost(uint32, tag = "2")]
    pub(crate) rtc_index: u32,
    /// CONFIG_ADDRESS, port 0xCF8.
    #[prost(uint32, tag = "3")]
    pub(crate) config_address: u32,
    /// The guest reported a crash kernel to the panic device at its port since the last reset.
    #[prost(bool, tag = "10")]
    pub(crate) pvpanic_crash_was_reported: bool,
}

impl DeviceState for LegacyState {
    const KIND: &'static str = "legacy-ports";
    const VERSION: u32 = 1;
}

/// The state of a device at fixed ports cannot be.
pub(crate) fn wrong(what: &str) -> SnapshotError {
    device_error("legacy")(LegacyState::wrong(what))
}

/// Fixed hardware of ACPI.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct PowerState {
    /// PM1a status.
    #[prost(uint32, tag = "1")]
    pub(crate) status: u32,
    /// PM1a enable.
    #[prost(uint32, tag = "2")]
    pub(crate) enable: u32,
    /// PM1a control.
    #[prost(uint32, tag = "3")]
    pub(crate) control: u32,
    /// Enable half of GPE0.
    #[prost(uint64, tag = "4")]
    pub(crate) gpe_enable: u64,
    /// What the timer has counted, in nanoseconds.
    #[prost(uint64, tag = "5")]
    pub(crate) timer_ns: u64,
    /// Status half of GPE0.
    #[prost(uint64, tag = "6")]
    pub(crate) gpe_status: u64,
}
