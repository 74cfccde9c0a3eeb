//! State of the watchdog: its registers, and the time that is left.

use crate::state::DeviceState;

/// State of an i6300esb watchdog.
#[derive(Clone, PartialEq, prost::Message)]
pub struct I6300EsbState {
    /// Configuration space as it was.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) config_space: Vec<u8>,
    /// Preload of the first stage.
    #[prost(uint32, tag = "2")]
    pub(super) preload_1: u32,
    /// Preload of the second stage.
    #[prost(uint32, tag = "3")]
    pub(super) preload_2: u32,
    /// The second stage is counted, not the first.
    #[prost(bool, tag = "4")]
    pub(super) second_stage: bool,
    /// Time until the stage ends, in nanoseconds; absent while nothing is counted.
    #[prost(uint64, optional, tag = "5")]
    pub(super) left_ns: Option<u64>,
    /// Steps done of unlocking: 0 to 2.
    #[prost(uint32, tag = "6")]
    pub(super) unlock_steps: u32,
    /// The first stage came to its end.
    #[prost(bool, tag = "7")]
    pub(super) stage_1_ended: bool,
    /// The second stage came to its end, before the last reset or after.
    #[prost(bool, tag = "8")]
    pub(super) timed_out: bool,
}

impl DeviceState for I6300EsbState {
    const KIND: &'static str = "i6300esb";
    const VERSION: u32 = 1;
}
