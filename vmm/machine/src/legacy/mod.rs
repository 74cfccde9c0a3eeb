//! Port devices that every PC has: power management, the reset of the keyboard controller, the clock,
//! and debug ports.

mod debug;
mod gpe;
mod keyboard;
mod pm;
mod rtc;
mod state;

pub(crate) use debug::{DEBUG_EXIT_PORT, DebugExit, TIMESTAMP_PORT, Timestamp, nanoseconds};
pub(crate) use keyboard::{KEYBOARD_COMMAND_PORT, KeyboardReset};
pub(crate) use pm::PowerManagement;
pub(crate) use rtc::{Clock, RTC_PORT};
pub(crate) use state::LegacyState;
