//! The watchdog of the Intel 6300ESB, as a PCI function of its own.
//!
//! ```text
//!   LOCK.ENABLED         first stage              second stage
//!   0 -> 1 ------> counts preload 1 ----> counts preload 2 ----> the action, TIMED_OUT
//!                        ^                      |
//!                        +-- RELOAD, unlocked --+
//! ```
//!
//! Writes to the registers of the BAR count once after 0x80 and 0x86 were written to RELOAD, and not at
//! all otherwise. The interrupt at the end of the first stage is not wired: its status is set. Time does
//! not pass while the machine is paused.

mod countdown;
mod registers;
mod saving;
mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::AsRawFd;

use self::countdown::Countdown;
use self::registers::{
    BAR_BYTES, CONFIG, CONFIG_FAST, CONFIG_INTERRUPT_TYPE, CONFIG_NO_INTERRUPT,
    CONFIG_OUTPUT_DISABLED, CONFIG_WRITABLE, INTERRUPT_STATUS, LOCK, LOCK_ENABLED,
    LOCK_FREE_RUNNING, LOCK_LOCKED, LOCK_WRITABLE, PRELOAD_1, PRELOAD_2, PRELOAD_MASK, RELOAD,
    RELOAD_NOW, RELOAD_TIMED_OUT, STATUS_STAGE_1, UNLOCK_1, UNLOCK_2, stage_time,
};
use super::WatchdogAction;
use crate::event::EventSource;
use crate::notice::{DeviceNotice, NoticeSink};
use crate::pci::config::{ConfigSpace, LayoutError, PciIdentity};
use crate::pci::function::{BarKind, BarWindow, ConfigEffect, PciFunction};
use crate::quiesce::QuiesceError;
use crate::state::{DeviceState, Payload, Payloads, StateError};

pub use self::state::I6300EsbState;

const IDENTITY: PciIdentity = PciIdentity {
    vendor: 0x8086,
    device: 0x25ab,
    revision: 0,
    // Base system peripheral, other.
    class: 0x08_8000,
    subsystem_vendor: 0x1af4,
    subsystem: 0x1100,
};
const TIMER: u64 = 0;

/// A watchdog could not be made.
#[derive(Debug, thiserror::Error)]
pub enum I6300EsbError {
    /// The timerfd of its stages.
    #[error("the timer cannot be made")]
    Timer(#[source] io::Error),
    /// A mistake of this module.
    #[error("configuration space cannot be laid out")]
    Layout(#[from] LayoutError),
    /// The payload to restore it from is of another device or version.
    #[error("it cannot be made of its state")]
    State(#[from] StateError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    First,
    Second,
}

/// How much of the unlock sequence was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unlock {
    Locked,
    HalfWay,
    Unlocked,
}

/// The watchdog.
pub struct I6300Esb {
    space: ConfigSpace,
    action: WatchdogAction,
    notices: NoticeSink,
    countdown: Countdown,
    preloads: [u32; 2],
    stage: Stage,
    unlock: Unlock,
    stage_1_ended: bool,
    timed_out: bool,
}

impl I6300Esb {
    /// A watchdog after power-on, which is off. `notices` learns of its end, and of `action`.
    ///
    /// # Errors
    /// The host has no descriptor left for the timer.
    pub fn new(action: WatchdogAction, notices: NoticeSink) -> Result<Self, I6300EsbError> {
        let mut space = ConfigSpace::new(IDENTITY);
        space.add_bar(0, BAR_BYTES, BarKind::Memory32)?;
        space.allow(usize::from(CONFIG), &CONFIG_WRITABLE.to_le_bytes());
        space.allow(usize::from(LOCK), &[LOCK_WRITABLE]);
        Ok(Self {
            space,
            action,
            notices,
            countdown: Countdown::new().map_err(I6300EsbError::Timer)?,
            preloads: [PRELOAD_MASK; 2],
            stage: Stage::First,
            unlock: Unlock::Locked,
            stage_1_ended: false,
            timed_out: false,
        })
    }

    /// A watchdog as it was saved. Takes its payload.
    ///
    /// # Errors
    /// As [`new`](Self::new); or the state is that of another function.
    pub fn restored(
        action: WatchdogAction,
        notices: NoticeSink,
        payloads: &mut Payloads,
    ) -> Result<Self, I6300EsbError> {
        let mut function = Self::new(action, notices)?;
        function.load(&payloads.take()?)?;
        Ok(function)
    }

    fn lock_bits(&self) -> u8 {
        let [bits, _] = self.space.u16_at(LOCK).to_le_bytes();
        bits
    }

    fn is_free_running(&self) -> bool {
        self.lock_bits() & LOCK_FREE_RUNNING != 0
    }

    /// Counts from the beginning, as after a reload.
    fn start_over(&mut self) {
        // A free running watchdog has no first stage.
        let stage = if self.is_free_running() {
            Stage::Second
        } else {
            Stage::First
        };
        self.start(stage);
    }

    fn start(&mut self, stage: Stage) {
        self.stage = stage;
        let [first, second] = self.preloads;
        let preload = match stage {
            Stage::First => first,
            Stage::Second => second,
        };
        let is_fast = self.space.u16_at(CONFIG) & CONFIG_FAST != 0;
        self.countdown.start(stage_time(preload, is_fast));
    }

    fn on_stage_end(&mut self) {
        let config = self.space.u16_at(CONFIG);
        if self.stage == Stage::First {
            self.stage_1_ended |= config & CONFIG_INTERRUPT_TYPE != CONFIG_NO_INTERRUPT;
            return self.start(Stage::Second);
        }
        if config & CONFIG_OUTPUT_DISABLED == 0 {
            self.timed_out = true;
            let action = self.action;
            (self.notices)(DeviceNotice::WatchdogExpired { action });
        }
        // Otherwise it stands still until it is reloaded.
        if self.is_free_running() {
            self.start(Stage::Second);
        }
    }

    /// Writes to a register of the BAR, of its own width; registers that share none with it are none.
    fn write_register(&mut self, register: u64, value: u32) {
        let unlocked = std::mem::replace(&mut self.unlock, Unlock::Locked);
        if register == RELOAD && value == UNLOCK_1 {
            self.unlock = Unlock::HalfWay;
        } else if register == RELOAD && value == UNLOCK_2 {
            if unlocked == Unlock::HalfWay {
                self.unlock = Unlock::Unlocked;
            }
        } else if register == INTERRUPT_STATUS {
            self.stage_1_ended &= value & STATUS_STAGE_1 == 0;
        } else if unlocked == Unlock::Unlocked {
            self.write_unlocked(register, value);
        }
    }

    fn write_unlocked(&mut self, register: u64, value: u32) {
        let [first, second] = &mut self.preloads;
        match register {
            PRELOAD_1 => *first = value & PRELOAD_MASK,
            PRELOAD_2 => *second = value & PRELOAD_MASK,
            RELOAD => {
                self.timed_out &= value & RELOAD_TIMED_OUT == 0;
                if value & RELOAD_NOW != 0 && self.lock_bits() & LOCK_ENABLED != 0 {
                    self.start_over();
                }
            }
            _ => {}
        }
    }

    fn register(&self, register: u64) -> u32 {
        let [first, second] = self.preloads;
        match register {
            PRELOAD_1 => first,
            PRELOAD_2 => second,
            INTERRUPT_STATUS if self.stage_1_ended => STATUS_STAGE_1,
            RELOAD if self.timed_out => RELOAD_TIMED_OUT,
            _ => 0,
        }
    }

    /// Follows a write to the lock register, whose bits were `before`.
    fn follow_lock(&mut self, before: u8) {
        if before & LOCK_LOCKED != 0 {
            self.space.poke(LOCK, &[before]);
        }
        let now = self.lock_bits();
        match (before & LOCK_ENABLED != 0, now & LOCK_ENABLED != 0) {
            (false, true) => self.start_over(),
            (true, false) => self.countdown.stop(),
            _ => {}
        }
    }
}

impl PciFunction for I6300Esb {
    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        self.space.read(offset, data);
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) -> ConfigEffect {
        let (bars, lock) = (self.space.bars(), self.lock_bits());
        self.space.write(offset, data);
        self.follow_lock(lock);
        ConfigEffect {
            bars_changed: self.space.bars() != bars,
            ..ConfigEffect::default()
        }
    }

    fn bars(&self) -> Vec<BarWindow> {
        self.space.bars()
    }

    fn set_bar(&mut self, index: usize, base: u64) {
        self.space.set_bar(index, base);
    }

    /// Registers as bytes: narrow and wide reads see the same.
    fn bar_read(&mut self, _: usize, offset: u64, data: &mut [u8]) {
        // No access gets beyond the BAR; one that did would read zeros, and not overflow.
        for (at, byte) in (offset..=u64::MAX).zip(data) {
            let bytes = self.register(at & !3).to_le_bytes();
            let index = usize::try_from(at & 3).unwrap_or(0);
            *byte = bytes.get(index).copied().unwrap_or(0);
        }
    }

    /// RELOAD can be written at any width, as drivers do; the others at their own only.
    fn bar_write(&mut self, _: usize, offset: u64, data: &[u8]) {
        match *data {
            [a] if offset == RELOAD => self.write_register(RELOAD, u32::from(a)),
            [a, b] if offset == RELOAD => {
                self.write_register(RELOAD, u16::from_le_bytes([a, b]).into());
            }
            [a, b, c, d] => self.write_register(offset, u32::from_le_bytes([a, b, c, d])),
            _ => {}
        }
    }

    fn event_sources(&self) -> Vec<EventSource> {
        vec![EventSource {
            token: TIMER,
            fd: self.countdown.as_raw_fd(),
        }]
    }

    fn handle_event(&mut self, token: u64) {
        if token == TIMER && self.countdown.take_end() {
            self.on_stage_end();
        }
    }

    /// That the watchdog ran out before is what drivers ask for after a reset: it stays.
    fn reset(&mut self) {
        self.space.reset();
        self.countdown.stop();
        self.preloads = [PRELOAD_MASK; 2];
        self.stage = Stage::First;
        self.unlock = Unlock::Locked;
        self.stage_1_ended = false;
    }

    fn quiesce(&mut self) -> Result<(), QuiesceError> {
        self.countdown.hold();
        Ok(())
    }

    fn resume(&mut self) {
        self.countdown.go_on();
    }

    fn save(&self) -> Vec<Payload> {
        vec![self.state().to_payload()]
    }
}
