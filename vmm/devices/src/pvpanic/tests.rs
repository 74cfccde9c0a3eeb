use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;
use crate::bus::BusDevice;
use crate::notice::{DeviceNotice, NoticeSink};
use crate::pci::function::PciFunction;
use crate::state::Payloads;

#[derive(Clone, Default)]
struct RecordedNotices(Arc<Mutex<Vec<DeviceNotice>>>);

impl RecordedNotices {
    fn sink(&self) -> NoticeSink {
        let notices = Arc::clone(&self.0);
        Arc::new(move |notice| notices.lock().unwrap().push(notice))
    }

    fn take(&self) -> Vec<DeviceNotice> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[test]
fn both_devices_tell_what_the_guest_wrote() {
    let notices = RecordedNotices::default();
    let mut port = PvpanicPort::new(notices.sink());
    let mut function = PvpanicPci::new(notices.sink()).unwrap();
    for (value, panic) in [
        (1, Some(Panic::Panicked)),
        (2, Some(Panic::CrashLoaded)),
        (4, Some(Panic::Shutdown)),
        (0xff, Some(Panic::Panicked)),
        (0, None),
        (0xf8, None),
    ] {
        let expected: Vec<_> = panic.map(DeviceNotice::Panic).into_iter().collect();
        port.write(0, &[value]);
        assert_eq!(notices.take(), expected, "{value:#x} to the port");
        function.bar_write(0, 0, &[value]);
        assert_eq!(notices.take(), expected, "{value:#x} to the function");
    }
}

#[test]
fn a_read_gives_the_bits_that_mean_something() {
    let mut byte = [0];
    PvpanicPort::new(RecordedNotices::default().sink()).read(0, &mut byte);
    assert_eq!(byte, [7]);
    let mut function = PvpanicPci::new(RecordedNotices::default().sink()).unwrap();
    function.bar_read(0, 0, &mut byte);
    assert_eq!(byte, [7]);
    let mut id = [0; 4];
    function.config_read(0, &mut id);
    assert_eq!(u32::from_le_bytes(id), 0x0011_1b36);
}

#[test]
fn a_crash_kernel_is_reported_once_until_the_reset_and_after_a_restore() {
    let notices = RecordedNotices::default();
    let mut function = PvpanicPci::new(notices.sink()).unwrap();
    for _ in 0..3 {
        function.bar_write(0, 0, &[2]);
    }
    assert_eq!(notices.take().len(), 1);
    let mut payloads = Payloads::new(function.save());
    let mut again = PvpanicPci::restored(notices.sink(), &mut payloads).unwrap();
    payloads.finish().unwrap();
    again.bar_write(0, 0, &[2]);
    assert_eq!(notices.take(), []);
    again.reset();
    again.bar_write(0, 0, &[2]);
    assert_eq!(notices.take().len(), 1);
}

proptest! {
    /// Only a byte at the register's place tells anything.
    #[test]
    fn accesses_of_any_width_and_place_are_harmless(
        offset in prop_oneof![0u64..9, any::<u64>()],
        width in prop::sample::select(vec![1usize, 2, 4, 8]),
        value in any::<u8>(),
    ) {
        let notices = RecordedNotices::default();
        let mut function = PvpanicPci::new(notices.sink()).unwrap();
        let mut port = PvpanicPort::new(notices.sink());
        let mut data = vec![value; width];
        function.bar_write(0, offset, &data);
        port.write(offset, &data);
        let expected = if offset == 0 && width == 1 && value & 7 != 0 { 2 } else { 0 };
        prop_assert_eq!(notices.take().len(), expected);
        function.bar_read(0, offset, &mut data);
        port.read(offset, &mut data);
        let at = u16::try_from(offset & 0xfff).unwrap();
        let before = function.bars();
        let effect = function.config_write(at, &data);
        prop_assert_eq!(effect.bars_changed, function.bars() != before);
    }
}

#[test]
fn the_format_of_its_state_is_that_of_its_version() {
    crate::state::kept::assert_format_is_kept::<super::state::PvpanicState>();
}
