use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::registers::{SHORTEST_STAGE, longest_stage};
use super::*;

#[derive(Clone, Default)]
struct RecordedNotices(Arc<Mutex<Vec<DeviceNotice>>>);

impl RecordedNotices {
    fn sink(&self) -> NoticeSink {
        let notices = Arc::clone(&self.0);
        Arc::new(move |notice| notices.lock().unwrap().push(notice))
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn watchdog() -> (I6300Esb, RecordedNotices) {
    let notices = RecordedNotices::default();
    let watchdog = I6300Esb::new(WatchdogAction::PowerOff, notices.sink()).unwrap();
    (watchdog, notices)
}

fn unlock(watchdog: &mut I6300Esb) {
    watchdog.bar_write(0, RELOAD, &[0x80]);
    watchdog.bar_write(0, RELOAD, &[0x86]);
}

fn write_unlocked(watchdog: &mut I6300Esb, register: u64, value: u32) {
    unlock(watchdog);
    watchdog.bar_write(0, register, &value.to_le_bytes());
}

fn read(watchdog: &mut I6300Esb, register: u64) -> u32 {
    let mut data = [0; 4];
    watchdog.bar_read(0, register, &mut data);
    u32::from_le_bytes(data)
}

fn set_config(watchdog: &mut I6300Esb, bits: u16) {
    let effect = watchdog.config_write(CONFIG, &bits.to_le_bytes());
    assert!(!effect.bars_changed);
}

fn set_lock(watchdog: &mut I6300Esb, bits: u8) {
    assert!(!watchdog.config_write(LOCK, &[bits]).bars_changed);
}

/// Both stages as short as they can be, as a driver sets them.
fn set_shortest(watchdog: &mut I6300Esb) {
    write_unlocked(watchdog, PRELOAD_1, 0);
    write_unlocked(watchdog, PRELOAD_2, 0);
}

/// Lets the stage that is counted end now.
fn end_stage(watchdog: &mut I6300Esb) {
    watchdog.countdown.start(Duration::ZERO);
    watchdog.handle_event(TIMER);
}

#[test]
fn a_driver_finds_the_function_and_its_registers() {
    let (mut watchdog, _) = watchdog();
    let mut id = [0; 4];
    watchdog.config_read(0, &mut id);
    assert_eq!(u32::from_le_bytes(id), 0x25ab_8086);
    assert_eq!(read(&mut watchdog, PRELOAD_1), PRELOAD_MASK);
    assert_eq!(read(&mut watchdog, RELOAD), 0);
    assert_eq!(watchdog.countdown.left(), None);
}

#[test]
fn registers_are_written_once_after_the_unlock_sequence_only() {
    let (mut watchdog, _) = watchdog();
    let value = 0x1234u32.to_le_bytes();
    watchdog.bar_write(0, PRELOAD_1, &value);
    assert_eq!(read(&mut watchdog, PRELOAD_1), PRELOAD_MASK);
    // The second half alone, and another order.
    for sequence in [&[0x86][..], &[0x86, 0x80], &[0x80, 0x81, 0x86]] {
        for byte in sequence {
            watchdog.bar_write(0, RELOAD, &[*byte]);
        }
        watchdog.bar_write(0, PRELOAD_1, &value);
        assert_eq!(read(&mut watchdog, PRELOAD_1), PRELOAD_MASK);
    }
    unlock(&mut watchdog);
    watchdog.bar_write(0, PRELOAD_1, &value);
    watchdog.bar_write(0, PRELOAD_2, &value);
    assert_eq!(read(&mut watchdog, PRELOAD_1), 0x1234);
    assert_eq!(read(&mut watchdog, PRELOAD_2), PRELOAD_MASK);
    write_unlocked(&mut watchdog, PRELOAD_2, u32::MAX);
    assert_eq!(read(&mut watchdog, PRELOAD_2), PRELOAD_MASK);
}

#[test]
fn two_stages_pass_before_the_action_and_a_reload_starts_over() {
    let (mut watchdog, notices) = watchdog();
    set_shortest(&mut watchdog);
    set_config(&mut watchdog, 0);
    set_lock(&mut watchdog, LOCK_ENABLED);
    end_stage(&mut watchdog);
    assert_eq!((watchdog.stage, notices.count()), (Stage::Second, 0));
    assert_eq!(read(&mut watchdog, INTERRUPT_STATUS), 1);
    watchdog.bar_write(0, INTERRUPT_STATUS, &1u32.to_le_bytes());
    assert_eq!(read(&mut watchdog, INTERRUPT_STATUS), 0);

    write_unlocked(&mut watchdog, RELOAD, RELOAD_NOW);
    assert_eq!(watchdog.stage, Stage::First);
    end_stage(&mut watchdog);
    end_stage(&mut watchdog);
    let action = WatchdogAction::PowerOff;
    let expected = vec![DeviceNotice::WatchdogExpired { action }];
    assert_eq!(*notices.0.lock().unwrap(), expected);
    assert_eq!(watchdog.countdown.left(), None);
    assert_eq!(read(&mut watchdog, RELOAD), RELOAD_TIMED_OUT);
    // As a driver asks after a reset, and then clears it.
    watchdog.reset();
    assert_eq!(read(&mut watchdog, RELOAD), RELOAD_TIMED_OUT);
    unlock(&mut watchdog);
    watchdog.bar_write(0, RELOAD, &0x300u16.to_le_bytes());
    assert_eq!(read(&mut watchdog, RELOAD), 0);
    assert_eq!(watchdog.countdown.left(), None, "it is not enabled");
}

#[test]
fn an_output_that_is_disabled_does_nothing() {
    let (mut watchdog, notices) = watchdog();
    set_config(&mut watchdog, CONFIG_OUTPUT_DISABLED | CONFIG_NO_INTERRUPT);
    set_lock(&mut watchdog, LOCK_ENABLED);
    end_stage(&mut watchdog);
    end_stage(&mut watchdog);
    assert_eq!(notices.count(), 0);
    assert_eq!(read(&mut watchdog, INTERRUPT_STATUS), 0);
    assert_eq!(read(&mut watchdog, RELOAD), 0);
}

#[test]
fn a_locked_watchdog_is_not_switched_off_until_the_reset() {
    let (mut watchdog, _) = watchdog();
    set_lock(&mut watchdog, LOCK_ENABLED | LOCK_LOCKED);
    set_lock(&mut watchdog, 0);
    assert_eq!(watchdog.lock_bits(), LOCK_ENABLED | LOCK_LOCKED);
    assert!(watchdog.countdown.left().is_some());
    watchdog.reset();
    assert_eq!((watchdog.lock_bits(), watchdog.countdown.left()), (0, None));
    set_lock(&mut watchdog, LOCK_ENABLED);
    set_lock(&mut watchdog, 0);
    assert_eq!(watchdog.countdown.left(), None);
}

#[test]
fn a_free_running_watchdog_counts_its_second_stage_again_and_again() {
    let (mut watchdog, notices) = watchdog();
    set_lock(&mut watchdog, LOCK_ENABLED | LOCK_FREE_RUNNING);
    for times in 1..4 {
        assert_eq!(watchdog.stage, Stage::Second);
        end_stage(&mut watchdog);
        assert_eq!(notices.count(), times);
        assert!(watchdog.countdown.left().is_some());
    }
}

#[test]
fn events_before_the_end_and_of_unknown_sources_are_nothing() {
    let (mut watchdog, notices) = watchdog();
    watchdog.handle_event(TIMER);
    set_lock(&mut watchdog, LOCK_ENABLED);
    watchdog.handle_event(TIMER);
    watchdog.handle_event(77);
    assert_eq!((watchdog.stage, notices.count()), (Stage::First, 0));
}

#[test]
fn time_stands_still_while_the_machine_is_paused_and_in_its_saved_state() {
    let (mut watchdog, notices) = watchdog();
    write_unlocked(&mut watchdog, PRELOAD_1, 0x200);
    set_lock(&mut watchdog, LOCK_ENABLED);
    watchdog.stage = Stage::Second;
    unlock(&mut watchdog);
    watchdog.quiesce().unwrap();
    let left = watchdog.countdown.left();
    assert!(left.is_some());
    assert_eq!(watchdog.countdown.left(), left);
    watchdog.handle_event(TIMER);

    let mut payloads = Payloads::new(watchdog.save());
    let mut again =
        I6300Esb::restored(WatchdogAction::PowerOff, notices.sink(), &mut payloads).unwrap();
    payloads.finish().unwrap();
    assert_eq!(again.countdown.left(), left);
    assert_eq!(again.save(), watchdog.save());
    again.resume();
    again.bar_write(0, PRELOAD_2, &7u32.to_le_bytes());
    assert_eq!(read(&mut again, PRELOAD_2), 7, "it was unlocked");
    end_stage(&mut again);
    assert_eq!(notices.count(), 1);
}

#[test]
fn state_that_cannot_be_is_refused() {
    let (watchdog, notices) = watchdog();
    let good = watchdog.state();
    let long = u64::try_from(longest_stage().as_nanos()).unwrap();
    let wrong = [
        wrong_state(&good, |state| state.preload_1 = 1 << 20),
        wrong_state(&good, |state| state.left_ns = Some(long + 1)),
        wrong_state(&good, |state| state.left_ns = Some(1)),
        wrong_state(&good, |state| state.unlock_steps = 3),
        wrong_state(&good, |state| state.config_space = vec![0; 256]),
        wrong_state(&good, |state| state.config_space = Vec::new()),
    ];
    for state in wrong {
        let mut payloads = Payloads::new(vec![state.to_payload()]);
        let made = I6300Esb::restored(WatchdogAction::Reset, notices.sink(), &mut payloads);
        assert!(matches!(made, Err(I6300EsbError::State(_))), "{state:?}");
    }
}

fn wrong_state(good: &I6300EsbState, change: impl FnOnce(&mut I6300EsbState)) -> I6300EsbState {
    let mut state = good.clone();
    change(&mut state);
    state
}

#[test]
fn stages_take_what_the_clock_makes_of_them() {
    // What Linux writes for a heartbeat of a second: twice half a second, and a little.
    let half = stage_time(1 << 9, false);
    assert!((500..510).contains(&half.as_millis()), "{half:?}");
    assert_eq!(stage_time(0, false), SHORTEST_STAGE);
    assert_eq!(stage_time(PRELOAD_MASK, true).as_millis(), 1016);
    assert_eq!(longest_stage().as_secs(), 1041);
}

proptest! {
    /// Any access of any width at any place: identity stays, a locked register stays, and nothing is
    /// counted while the watchdog is off.
    #[test]
    fn accesses_of_any_width_and_place_are_harmless(
        accesses in prop::collection::vec(
            (
                any::<bool>(),
                prop_oneof![0u64..0x20, 0x58u64..0x70, 0u64..0x1000],
                prop::sample::select(vec![1usize, 2, 4, 8]),
                prop_oneof![Just(0x80u64), Just(0x86), Just(0), any::<u64>()],
            ),
            0..60,
        ),
    ) {
        let (mut watchdog, _) = watchdog();
        for (is_config, offset, width, value) in accesses {
            let before = watchdog.lock_bits();
            let data = &value.to_le_bytes()[..width];
            if is_config {
                let data = &data[..width.min(4)];
                let _ = watchdog.config_write(u16::try_from(offset).unwrap(), data);
                watchdog.config_read(u16::try_from(offset).unwrap(), &mut [0; 4]);
            } else {
                watchdog.bar_write(0, offset, data);
                watchdog.bar_read(0, offset, &mut vec![0; width]);
            }
            if before & LOCK_LOCKED != 0 {
                prop_assert_eq!(watchdog.lock_bits(), before);
            }
            prop_assert!(watchdog.lock_bits() & LOCK_ENABLED != 0 || watchdog.countdown.left().is_none());
            let mut id = [0; 4];
            watchdog.config_read(0, &mut id);
            prop_assert_eq!(u32::from_le_bytes(id), 0x25ab_8086);
            let state = watchdog.state();
            prop_assert!(watchdog.load(&state).is_ok());
            watchdog.resume();
        }
    }

    #[test]
    fn a_stage_is_never_shorter_than_the_host_can_bear(preload in any::<u32>(), fast in any::<bool>()) {
        let time = stage_time(preload, fast);
        prop_assert!((SHORTEST_STAGE..=longest_stage()).contains(&time));
    }
}

#[test]
fn the_format_of_its_state_is_that_of_its_version() {
    crate::state::kept::assert_format_is_kept::<super::state::I6300EsbState>();
}
