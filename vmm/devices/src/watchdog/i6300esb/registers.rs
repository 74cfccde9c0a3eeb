//! Registers of the watchdog (Intel 6300ESB I/O Controller Hub Datasheet, 300641, chapter 16).

use std::time::Duration;

/// Watchdog configuration, 16 bits, in configuration space.
pub(super) const CONFIG: u16 = 0x60;
/// Watchdog lock, 8 bits, in configuration space.
pub(super) const LOCK: u16 = 0x68;

/// `CONFIG`: what the end of the first stage raises. 0 an interrupt, 2 an SMI, 3 nothing.
pub(super) const CONFIG_INTERRUPT_TYPE: u16 = 3;
/// `CONFIG`: the end of the first stage raises nothing.
pub(super) const CONFIG_NO_INTERRUPT: u16 = 3;
/// `CONFIG`: the clock is divided by 2^5 instead of 2^15.
pub(super) const CONFIG_FAST: u16 = 1 << 2;
/// `CONFIG`: the end of the second stage changes nothing outside.
pub(super) const CONFIG_OUTPUT_DISABLED: u16 = 1 << 5;
/// `CONFIG`: bits that there are.
pub(super) const CONFIG_WRITABLE: u16 =
    CONFIG_INTERRUPT_TYPE | CONFIG_FAST | CONFIG_OUTPUT_DISABLED;

/// `LOCK`: the register stays as it is until the next reset.
pub(super) const LOCK_LOCKED: u8 = 1;
/// `LOCK`: the watchdog counts.
pub(super) const LOCK_ENABLED: u8 = 1 << 1;
/// `LOCK`: only the second stage counts, again and again.
pub(super) const LOCK_FREE_RUNNING: u8 = 1 << 2;
/// `LOCK`: bits that there are.
pub(super) const LOCK_WRITABLE: u8 = LOCK_LOCKED | LOCK_ENABLED | LOCK_FREE_RUNNING;

/// Length of the BAR: the registers take 16 bytes of it.
pub(super) const BAR_BYTES: u64 = 4096;
/// Preload of the first stage, 32 bits.
pub(super) const PRELOAD_1: u64 = 0x00;
/// Preload of the second stage, 32 bits.
pub(super) const PRELOAD_2: u64 = 0x04;
/// Interrupt status, 32 bits: bit 0 is cleared by writing it.
pub(super) const INTERRUPT_STATUS: u64 = 0x08;
/// Reload, 16 bits.
pub(super) const RELOAD: u64 = 0x0c;

/// `INTERRUPT_STATUS`: the first stage came to its end.
pub(super) const STATUS_STAGE_1: u32 = 1;
/// What is written to `RELOAD` to unlock the register that is written next.
pub(super) const UNLOCK_1: u32 = 0x80;
/// What is written to `RELOAD` right after.
pub(super) const UNLOCK_2: u32 = 0x86;
/// `RELOAD`: the first stage starts over.
pub(super) const RELOAD_NOW: u32 = 1 << 8;
/// `RELOAD`: the second stage came to its end; survives resets, cleared by writing it.
pub(super) const RELOAD_TIMED_OUT: u32 = 1 << 9;

/// A preload has 20 bits, and all of them are set at power-on.
pub(super) const PRELOAD_MASK: u32 = 0xf_ffff;

/// The PCI clock.
const CLOCK_HZ: u128 = 33_000_000;
/// A stage takes at least this long. The registers can ask for a microsecond, for ever: the host would
/// do nothing but count, and tell of every end.
pub(super) const SHORTEST_STAGE: Duration = Duration::from_millis(100);

/// How long a stage takes. The counter ends below zero, so a preload of 0 is one tick.
pub(super) fn stage_time(preload: u32, is_fast: bool) -> Duration {
    let divisor: u128 = if is_fast { 1 << 5 } else { 1 << 15 };
    let ticks = u128::from(preload & PRELOAD_MASK) + 1;
    let nanoseconds = ticks * divisor * 1_000_000_000 / CLOCK_HZ;
    let time = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
    time.max(SHORTEST_STAGE)
}

/// Longest time of a stage.
pub(super) fn longest_stage() -> Duration {
    stage_time(PRELOAD_MASK, false)
}
