//! State of the watchdog: its registers, and the time that is left.

use std::time::Duration;

use super::registers::{LOCK_ENABLED, PRELOAD_MASK, longest_stage};
use super::{I6300Esb, Stage, Unlock};
use crate::state::{DeviceState, StateError};

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
    preload_2: u32,
    /// The second stage is counted, not the first.
    #[prost(bool, tag = "4")]
    second_stage: bool,
    /// Time until the stage ends, in nanoseconds; absent while nothing is counted.
    #[prost(uint64, optional, tag = "5")]
    pub(super) left_ns: Option<u64>,
    /// Steps done of unlocking: 0 to 2.
    #[prost(uint32, tag = "6")]
    pub(super) unlock_steps: u32,
    /// The first stage came to its end.
    #[prost(bool, tag = "7")]
    stage_1_ended: bool,
    /// The second stage came to its end, before the last reset or after.
    #[prost(bool, tag = "8")]
    timed_out: bool,
}

impl DeviceState for I6300EsbState {
    const KIND: &'static str = "i6300esb";
    const VERSION: u32 = 1;
}

impl I6300Esb {
    pub(super) fn state(&self) -> I6300EsbState {
        let left = self.countdown.left();
        I6300EsbState {
            config_space: self.space.bytes().to_vec(),
            preload_1: self.preloads[0],
            preload_2: self.preloads[1],
            second_stage: self.stage == Stage::Second,
            left_ns: left.map(|left| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)),
            unlock_steps: match self.unlock {
                Unlock::Locked => 0,
                Unlock::HalfWay => 1,
                Unlock::Unlocked => 2,
            },
            stage_1_ended: self.stage_1_ended,
            timed_out: self.timed_out,
        }
    }

    /// Brings a watchdog after power-on to `state`; time passes once it is resumed.
    pub(super) fn load(&mut self, state: &I6300EsbState) -> Result<(), StateError> {
        let preloads = [state.preload_1, state.preload_2];
        if preloads.iter().any(|preload| preload & !PRELOAD_MASK != 0) {
            return Err(I6300EsbState::wrong("a preload has more than 20 bits"));
        }
        let left = state.left_ns.map(Duration::from_nanos);
        if left.is_some_and(|left| left > longest_stage()) {
            return Err(I6300EsbState::wrong("more time is left than a stage takes"));
        }
        self.unlock = match state.unlock_steps {
            0 => Unlock::Locked,
            1 => Unlock::HalfWay,
            2 => Unlock::Unlocked,
            _ => return Err(I6300EsbState::wrong("there are two steps of unlocking")),
        };
        if !self.space.load(&state.config_space) {
            return Err(I6300EsbState::wrong(
                "configuration space is of another function",
            ));
        }
        if left.is_some() && self.lock_bits() & LOCK_ENABLED == 0 {
            return Err(I6300EsbState::wrong(
                "time is left although the watchdog is off",
            ));
        }
        self.preloads = preloads;
        self.stage = if state.second_stage {
            Stage::Second
        } else {
            Stage::First
        };
        self.stage_1_ended = state.stage_1_ended;
        self.timed_out = state.timed_out;
        if let Some(left) = left {
            self.countdown.start_held(left);
        }
        Ok(())
    }
}
