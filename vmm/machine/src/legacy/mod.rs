//! Port devices that every PC has: power management, the reset of the keyboard controller, the clock,
//! and debug ports.

mod apm;
mod debug;
mod gpe;
mod keyboard;
mod pm;
mod rtc;
pub(crate) mod state;

pub(crate) use apm::{A20_PORT, APM_PORT, APM_PORTS, Apm, FastA20};
pub(crate) use debug::{DEBUG_EXIT_PORT, DebugExit, TIMESTAMP_PORT, Timestamp};
pub(crate) use keyboard::{KEYBOARD_COMMAND_PORT, KeyboardReset};
pub(crate) use pm::PowerManagement;
pub(crate) use rtc::{Clock, ClockMemory, RTC_PORT};
pub(crate) use state::LegacyState;
