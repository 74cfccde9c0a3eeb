//! The real-time clock of the MC146818: the host's wall clock, off by a fixed time, read only; and its
//! memory, for firmware.

use std::time::{SystemTime, UNIX_EPOCH};

use vmm_devices::BusDevice;

use super::state::wrong;
use crate::port_device::{PortDevice, SavedChipset};
use crate::snapshot::error::SnapshotError;

/// Index port; data follows at the next.
pub(crate) const RTC_PORT: u16 = 0x70;

const INDEX_MASK: u8 = 0x7f;
/// 32.768 kHz base, no update in progress.
const STATUS_A: u8 = 0x26;
/// 24 hours, BCD.
const STATUS_B: u8 = 0x02;
/// Battery good.
const STATUS_D: u8 = 0x80;

/// The clock with the index that was last selected.
pub(crate) struct Clock {
    offset_seconds: i64,
    index: u8,
    /// Kept where no register of the clock is; `None`: there is no memory.
    memory: Option<Box<ClockMemory>>,
}

/// Bytes by index.
pub(crate) type ClockMemory = [u8; 128];

impl Clock {
    /// A clock that is `offset_seconds` ahead of UTC.
    pub(crate) fn new(offset_seconds: i64) -> Self {
        Self {
            offset_seconds,
            index: 0,
            memory: None,
        }
    }

    /// The clock with CMOS memory behind it.
    pub(crate) fn with_memory(mut self, memory: ClockMemory) -> Self {
        self.memory = Some(Box::new(memory));
        self
    }

    /// Its memory, if there is any.
    fn memory(&self) -> Option<&ClockMemory> {
        self.memory.as_deref()
    }

    /// Takes memory that was saved; false when there is none here, or of another length.
    fn load_memory(&mut self, saved: &[u8]) -> bool {
        match (&mut self.memory, ClockMemory::try_from(saved)) {
            (Some(memory), Ok(saved)) => {
                **memory = saved;
                true
            }
            _ => false,
        }
    }

    /// Selects an index.
    fn select(&mut self, index: u8) {
        self.index = index & INDEX_MASK;
    }

    fn register(&self, unix_seconds: u64) -> u8 {
        let time = CivilTime::at(unix_seconds);
        match self.index {
            0x00 => bcd(time.second),
            0x02 => bcd(time.minute),
            0x04 => bcd(time.hour),
            0x06 => time.weekday,
            0x07 => bcd(time.day),
            0x08 => bcd(time.month),
            0x09 => bcd(u8::try_from(time.year % 100).unwrap_or(0)),
            0x0a => STATUS_A,
            0x0b => STATUS_B,
            0x0d => STATUS_D,
            0x32 => bcd(u8::try_from(time.year / 100).unwrap_or(0)),
            index if is_of_clock(index) => 0,
            index => self.kept(index),
        }
    }
}

impl PortDevice for Clock {
    fn save(&self, saved: &mut SavedChipset<'_>) {
        saved.legacy.rtc_index = self.index.into();
        saved.platform.clock_memory = self.memory().map_or_else(Vec::new, |kept| kept.to_vec());
    }

    fn load(&mut self, saved: &mut SavedChipset<'_>) -> Result<(), SnapshotError> {
        let index = u8::try_from(saved.legacy.rtc_index);
        self.select(index.map_err(|_| wrong("index of the clock"))?);
        if self.memory.is_some() && !self.load_memory(&saved.platform.clock_memory) {
            return Err(wrong("memory of the clock"));
        }
        Ok(())
    }
}

impl BusDevice for Clock {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        data.fill(0xff);
        if let (1, [value]) = (offset, data) {
            // A clock before 1970 reads as 1970.
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let seconds = now.map_or(0, |elapsed| elapsed.as_secs());
            *value = self.register(seconds.saturating_add_signed(self.offset_seconds));
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        match (offset, data) {
            (0, [value]) => self.select(*value),
            (1, [value]) if !is_of_clock(self.index) => {
                let memory = self.memory.as_mut();
                let byte = memory.and_then(|memory| memory.get_mut(usize::from(self.index)));
                if let Some(byte) = byte {
                    *byte = *value;
                }
            }
            _ => {}
        }
    }
}

impl Clock {
    fn kept(&self, index: u8) -> u8 {
        let memory = self.memory.as_ref();
        let byte = memory.and_then(|memory| memory.get(usize::from(index)));
        byte.copied().unwrap_or(0)
    }
}

/// Time, alarm, status, and the century.
fn is_of_clock(index: u8) -> bool {
    index < 0xe || index == 0x32
}

fn bcd(value: u8) -> u8 {
    ((value / 10) << 4) | (value % 10)
}

/// A moment in the proleptic Gregorian calendar.
#[derive(Debug, PartialEq, Eq)]
struct CivilTime {
    year: u64,
    month: u8,
    day: u8,
    /// 1 is Sunday.
    weekday: u8,
    hour: u8,
    minute: u8,
    second: u8,
}

impl CivilTime {
    fn at(unix_seconds: u64) -> Self {
        let days = unix_seconds / 86_400;
        let seconds = unix_seconds % 86_400;
        let mut year = 1970;
        let mut day_of_year = days;
        while day_of_year >= days_in_year(year) {
            day_of_year -= days_in_year(year);
            year += 1;
        }
        let mut month = 1;
        while day_of_year >= days_in_month(year, month) {
            day_of_year -= days_in_month(year, month);
            month += 1;
        }
        let small = |value: u64| u8::try_from(value).unwrap_or(0);
        Self {
            year,
            month,
            day: small(day_of_year + 1),
            // 1 January 1970 was a Thursday.
            weekday: small((days + 4) % 7 + 1),
            hour: small(seconds / 3600),
            minute: small(seconds / 60 % 60),
            second: small(seconds % 60),
        }
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in_year(year: u64) -> u64 {
    365 + u64::from(is_leap(year))
}

fn days_in_month(year: u64, month: u8) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leap_day_is_a_day() {
        // 2024-02-29 23:59:58 UTC, a Thursday.
        let time = CivilTime::at(1_709_251_198);
        assert_eq!(
            (time.year, time.month, time.day, time.weekday),
            (2024, 2, 29, 5)
        );
        assert_eq!((time.hour, time.minute, time.second), (23, 59, 58));
        assert_eq!(CivilTime::at(1_709_251_200).month, 3);
    }

    #[test]
    fn registers_are_bcd() {
        let mut clock = Clock::new(0);
        clock.index = 0x09;
        assert_eq!(clock.register(1_709_251_198), 0x24);
        clock.index = 0x32;
        assert_eq!(clock.register(1_709_251_198), 0x20);
    }

    #[test]
    fn memory_is_where_the_clock_is_not() {
        let mut clock = Clock::new(0).with_memory([7; 128]);
        let mut value = [0];
        for (index, kept) in [(0x0d, STATUS_D), (0x0f, 5), (0x5f, 5), (0x7f, 5)] {
            clock.write(0, &[index | 0x80]);
            clock.write(1, &[5]);
            clock.read(1, &mut value);
            assert_eq!(value, [kept], "{index:#x}");
        }
        let saved = *clock.memory().unwrap();
        let mut other = Clock::new(0).with_memory([0; 128]);
        assert!(other.load_memory(&saved));
        assert_eq!(other.memory(), Some(&saved));
        assert!(!other.load_memory(&[0; 127]));
        assert!(!Clock::new(0).load_memory(&saved));
    }

    #[test]
    fn a_clock_may_be_off() {
        let year = |offset_seconds| {
            let mut clock = Clock::new(offset_seconds);
            let mut value = [0];
            clock.write(0, &[0x09]);
            clock.read(1, &mut value);
            let [bcd] = value;
            u64::from(bcd >> 4) * 10 + u64::from(bcd & 0xf)
        };
        // 25 years of 365.25 days.
        let later = (year(788_940_000) + 100 - year(0)) % 100;
        assert!((24..=26).contains(&later), "{later}");
        assert_eq!(year(i64::MIN), 70);
    }
}
