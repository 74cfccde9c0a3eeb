//! Saves the watchdog and restores it.

use std::time::Duration;

use super::registers::{LOCK_ENABLED, PRELOAD_MASK, longest_stage};
use super::state::I6300EsbState;
use super::{I6300Esb, Stage, Unlock};
use crate::state::{DeviceState, StateError};

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
