mod rest;
mod rings;

use super::*;
use crate::pci::function::PciFunction;
use crate::state::{Payload, Payloads};
use crate::virtio::rng::RngDevice;
use crate::virtio::testing::{BUFFERS, Driver, RAM_BYTES, write};
use proptest::prelude::*;

fn function() -> Driver {
    Driver::new(Box::new(RngDevice::new()))
}

fn capabilities(driver: &mut Driver) -> Vec<(u8, u16)> {
    let mut at = [0];
    driver.function.config_read(0x34, &mut at);
    let mut found = Vec::new();
    while at[0] != 0 {
        let mut header = [0; 2];
        driver.function.config_read(u16::from(at[0]), &mut header);
        found.push((header[0], u16::from(at[0])));
        at[0] = header[1];
    }
    found
}

#[test]
fn linux_finds_every_structure() {
    let mut driver = function();
    let mut id = [0; 4];
    driver.function.config_read(0, &mut id);
    assert_eq!(u32::from_le_bytes(id), 0x1044_1af4);
    let found = capabilities(&mut driver);
    assert_eq!(found[0].0, 0x11);
    let mut types = Vec::new();
    for (id, at) in &found[1..] {
        let mut body = [0; 16];
        driver.function.config_read(*at, &mut body);
        assert_eq!(*id, 0x09);
        types.push(body[3]);
        assert_eq!(body[4], 0);
        let offset = u32::from_le_bytes(body[8..12].try_into().unwrap());
        let length = u32::from_le_bytes(body[12..16].try_into().unwrap());
        assert!(u64::from(offset + length) <= BAR_BYTES);
    }
    types.sort_unstable();
    assert_eq!(types, [1, 2, 3, 4, 5]);
}

#[test]
fn features_that_were_not_offered_are_refused() {
    for features in [VERSION_1 | 1, VERSION_1 | 1 << 63, 0, EVENT_IDX] {
        let mut driver = function();
        driver.set_status(1);
        driver.set_status(3);
        driver.negotiate(features);
        assert_eq!(driver.status(), 3, "{features:#x}");
    }
}

#[test]
fn features_cannot_change_once_agreed() {
    let mut driver = function();
    driver.set_status(3);
    driver.negotiate(VERSION_1);
    assert_eq!(driver.status(), 11);
    driver.common(8, &0u32.to_le_bytes());
    driver.common(12, &u32::MAX.to_le_bytes());
    let mut features = [0; 4];
    driver.function.bar_read(0, 12, &mut features);
    assert_eq!(features, [0; 4]);
}

#[test]
fn a_driver_cannot_be_ready_before_features_are_agreed() {
    let mut driver = function();
    driver.set_status(7);
    assert_eq!(driver.status(), 3);
}

#[test]
fn queues_that_do_not_exist_have_size_0_and_take_nothing() {
    let mut driver = function();
    for select in [1u16, 0xffff] {
        driver.common(22, &select.to_le_bytes());
        assert_eq!(driver.common_u16(24), 0);
        driver.common(24, &8u16.to_le_bytes());
        driver.common(26, &0u16.to_le_bytes());
        driver.common(28, &1u16.to_le_bytes());
        driver.common(32, &[1; 8]);
        assert_eq!(driver.common_u16(24), 0);
        assert_eq!(driver.common_u16(26), 0xffff);
        assert_eq!(driver.common_u16(28), 0);
    }
}

#[test]
fn a_queue_size_that_is_no_power_of_two_is_not_taken() {
    let mut driver = function();
    for size in [0u16, 3, 512, 0x8000] {
        driver.common(24, &size.to_le_bytes());
        assert_eq!(driver.common_u16(24), 256);
    }
    driver.common(24, &64u16.to_le_bytes());
    assert_eq!(driver.common_u16(24), 64);
}

#[test]
fn rings_outside_of_ram_or_misaligned_are_refused_when_enabled() {
    let ram = RAM_BYTES as u64;
    for (field, value) in [
        (32, ram - 16),
        (32, u64::MAX - 15),
        (32, 0x1_0008),
        (40, ram),
        (40, 0x1_4001),
        (40, 0),
        (48, ram - 8),
        (48, 0x1_6002),
        (48, u64::MAX - 3),
    ] {
        let mut driver = function();
        driver.set_status(3);
        driver.negotiate(VERSION_1);
        driver.common(32, &0x1_0000u64.to_le_bytes());
        driver.common(40, &0x1_4000u64.to_le_bytes());
        driver.common(48, &0x1_6000u64.to_le_bytes());
        driver.common(field, &value.to_le_bytes());
        driver.common(28, &1u16.to_le_bytes());
        assert_eq!(driver.common_u16(28), 0, "{field} {value:#x}");
        assert!(driver.needs_reset());
        driver.set_status(15);
        assert_eq!(driver.status() & DRIVER_OK, 0);
    }
}

#[test]
fn a_queue_that_runs_cannot_be_moved() {
    let mut driver = Driver::ready(Box::new(RngDevice::new()), 16, VERSION_1);
    driver.common(32, &[0x55; 8]);
    let mut address = [0; 8];
    driver.function.bar_read(0, 32, &mut address);
    assert_eq!(u64::from_le_bytes(address), driver.rings(0));
}

#[test]
fn a_reset_stops_the_device_and_forgets_everything_but_the_vectors_table() {
    let mut driver = Driver::ready(Box::new(RngDevice::new()), 16, VERSION_1);
    driver.offer(0, &[write(BUFFERS, 8)]);
    driver.set_status(0);
    driver.kick(0);
    assert_eq!(driver.used(0), None);
    assert_eq!(driver.status(), 0);
    assert_eq!(driver.common_u16(16), 0xffff);
    assert_eq!(driver.common_u16(28), 0);
    assert!(driver.msi.routed(1).is_some());
    driver.function.reset();
    assert!(driver.msi.routed(1).is_none());
}

#[test]
fn a_vector_that_does_not_exist_reads_back_as_none() {
    let mut driver = function();
    driver.common(16, &1u16.to_le_bytes());
    assert_eq!(driver.common_u16(16), 1);
    driver.common(16, &2u16.to_le_bytes());
    assert_eq!(driver.common_u16(16), 0xffff);
}

#[test]
fn the_isr_is_for_pollers_and_clears_when_read() {
    let mut driver = Driver::ready(Box::new(RngDevice::new()), 16, VERSION_1);
    driver.offer(0, &[write(BUFFERS, 8)]);
    driver.kick(0);
    let mut isr = [0xff];
    driver.function.bar_read(0, 0x1000, &mut isr);
    assert_eq!(isr, [1]);
    driver.function.bar_read(0, 0x1000, &mut isr);
    assert_eq!(isr, [0]);
}

#[test]
fn registers_can_be_reached_through_configuration_space() {
    let mut driver = function();
    let window = capabilities(&mut driver).last().unwrap().1;
    let mut through = |offset: u32, length: u32, write: Option<[u8; 4]>| {
        let function = &mut driver.function;
        let _ = function.config_write(window + 4, &[0]);
        let _ = function.config_write(window + 8, &offset.to_le_bytes());
        let _ = function.config_write(window + 12, &length.to_le_bytes());
        if let Some(value) = write {
            let _ = function.config_write(window + 16, &value);
        }
        let mut value = [0; 4];
        function.config_read(window + 16, &mut value);
        u32::from_le_bytes(value)
    };
    assert_eq!(through(18, 2, None), 1, "number of queues");
    assert_eq!(through(20, 1, Some([3, 0, 0, 0])), 3, "status");
    assert_eq!(through(8, 4, Some([1, 0, 0, 0])), 1, "feature select");
    // Not aligned, too wide, outside of the BAR: nothing happens.
    through(21, 2, Some([0; 4]));
    through(20, 3, Some([0; 4]));
    through(0x8000, 1, Some([0; 4]));
    through(u32::MAX, 1, Some([0; 4]));
    assert_eq!(through(20, 1, None), 3);
}

#[test]
fn moving_a_bar_is_reported() {
    let mut driver = function();
    let function = &mut driver.function;
    assert!(!function.config_write(0x3c, &[5]).bars_changed);
    assert!(function.config_write(0x14, &[1, 0, 0, 0]).bars_changed);
    assert!(function.config_write(0x04, &[2, 0]).bars_changed);
    assert!(!function.config_write(0x04, &[6, 0]).bars_changed);
    assert_eq!(function.bars()[0].base, 1 << 32);
    assert!(function.bars()[0].decoded);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// No access to any register, of any width, at any place, panics or hangs.
    #[test]
    fn random_accesses_do_no_harm(
        accesses in prop::collection::vec(
            (0u8..4, prop_oneof![0u64..64, 0x1000u64..0x9000, any::<u64>()], prop::collection::vec(any::<u8>(), 0..9)),
            0..200,
        ),
        started in any::<bool>(),
    ) {
        let mut driver = function();
        if started {
            driver.start(16, VERSION_1);
        }
        for (kind, offset, mut data) in accesses {
            let place = u16::try_from(offset % 4096).unwrap();
            match kind {
                0 => driver.function.bar_read(0, offset, &mut data),
                1 => driver.function.bar_write(0, offset, &data),
                2 => driver.function.config_read(place, &mut data),
                _ => {
                    let _ = driver.function.config_write(place, &data);
                }
            }
        }
        driver.settle();
    }
}

fn rng() -> Box<RngDevice> {
    Box::new(RngDevice::new())
}

fn restored(payloads: Vec<Payload>) -> Result<VirtioPciFunction, BuildError> {
    let driver = function();
    let mut payloads = Payloads::new(payloads);
    VirtioPciFunction::restored(rng(), driver.memory, driver.msi, &mut payloads)
}

#[test]
fn a_driver_does_not_notice_that_its_function_was_made_anew() {
    let mut driver = Driver::ready(rng(), 16, VERSION_1);
    for round in 0..40 {
        // One request is answered here, one was kicked and is answered there.
        let first = driver.offer(0, &[write(BUFFERS, 32)]);
        driver.kick(0);
        assert_eq!(driver.used(0), Some((first.into(), 32)), "round {round}");
        let second = driver.offer(0, &[write(BUFFERS + 64, 32)]);
        driver.ring_kick(0);
        driver.function.quiesce().unwrap();
        driver = driver.moved_to(rng());
        driver.function.resume();
        driver.settle();
        assert_eq!(driver.used(0), Some((second.into(), 32)), "round {round}");
        assert_eq!(driver.calls(0), 1);
        assert_eq!(driver.status(), 15);
    }
}

#[test]
fn saved_state_is_the_same_after_it_was_restored() {
    let mut driver = Driver::ready(rng(), 8, VERSION_1);
    driver.offer(0, &[write(BUFFERS, 4)]);
    driver.kick(0);
    driver.function.set_bar(0, 0xc000_0000);
    let effect = driver.function.config_write(4, &[6, 0]);
    assert!(effect.bars_changed);
    let saved = driver.function.save();
    let driver = driver.moved_to(rng());
    assert_eq!(driver.function.save(), saved);
    let bar = driver.function.bars()[0];
    assert_eq!((bar.base, bar.decoded), (0xc000_0000, true));
}

#[test]
fn an_interrupt_that_was_pending_comes_when_the_guest_goes_on() {
    let mut driver = Driver::ready(rng(), 8, VERSION_1);
    driver
        .function
        .bar_write(0, 0x4000 + 16 + 12, &[1, 0, 0, 0]);
    driver.offer(0, &[write(BUFFERS, 4)]);
    driver.kick(0);
    assert_eq!(driver.calls(0), 0);
    let mut driver = driver.moved_to(rng());
    driver.function.resume();
    assert_eq!(driver.calls(0), 0);
    driver
        .function
        .bar_write(0, 0x4000 + 16 + 12, &[0, 0, 0, 0]);
    assert_eq!(driver.calls(0), 1);
}

#[test]
fn state_of_another_device_is_refused() {
    let image = tempfile::tempfile().unwrap();
    image.set_len(4096).unwrap();
    let config = crate::virtio::blk::BlkConfig::default();
    let sink = std::sync::Arc::new(|_| {});
    let disk = crate::virtio::blk::BlkDevice::new(image.into(), &config, sink).unwrap();
    let disk = Driver::new(Box::new(disk));
    assert!(matches!(
        restored(disk.function.save()),
        Err(BuildError::State(StateError::Value { .. }))
    ));
    let missing = restored(Vec::new());
    assert!(matches!(
        missing,
        Err(BuildError::State(StateError::Missing { .. }))
    ));
}

proptest! {
    #[test]
    fn damaged_state_is_refused_or_harmless(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut driver = Driver::ready(rng(), 8, VERSION_1);
        driver.offer(0, &[write(BUFFERS, 4)]);
        driver.kick(0);
        let mut payloads = driver.function.save();
        for (index, value) in flips {
            let bytes = &mut payloads[0].bytes;
            let at = index.index(bytes.len());
            bytes[at] ^= value;
        }
        if let Ok(mut function) = restored(payloads) {
            function.resume();
            for source in function.event_sources() {
                function.handle_event(source.token);
            }
        }
    }
}

#[test]
fn the_format_of_its_state_is_that_of_its_version() {
    crate::state::kept::assert_format_is_kept::<super::state::VirtioPciState>();
}
