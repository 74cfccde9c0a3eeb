//! Balloons that are saved and made again.

use super::*;

fn made_again(payloads: &mut Payloads) -> Result<BalloonDevice, BalloonError> {
    BalloonDevice::restored(&config(), RAM_BYTES as u64, payloads)
}

#[test]
fn size_and_statistics_and_the_driver_s_buffer_move_along() {
    let mut bench = bench();
    bench.control.set_target(0x10_0000).unwrap();
    let function = &mut bench.driver.function;
    function.bar_write(0, CONFIG + 4, &0x42u32.to_le_bytes());
    let entry = [&4u16.to_le_bytes()[..], &1234u64.to_le_bytes()].concat();
    bench.driver.fill(NUMBERS, &entry);
    bench.driver.offer(2, &[read(NUMBERS, 10)]);
    bench.driver.kick(2);
    bench.driver.function.quiesce().unwrap();

    let mut control = None;
    let mut driver = bench.driver.moved_by(|payloads| {
        let device = made_again(payloads).unwrap();
        control = Some(device.control());
        Box::new(device)
    });
    let control = control.unwrap();
    let size = BalloonSize {
        target_bytes: 0x10_0000,
        actual_bytes: 0x42 * PAGE,
    };
    assert_eq!(control.size(), size);
    let report = control.stats().unwrap();
    assert_eq!(report.stats.get(Stat::FreeBytes), Some(1234));
    driver.function.resume();
    driver.settle();
    assert_eq!(driver.used(2), None);
    control.refresh_stats();
    assert!(driver.settle_own(10_000));
    assert_eq!(driver.used(2), Some((0, 0)));
    assert!(!driver.needs_reset());
}

#[test]
fn a_balloon_can_be_saved_before_it_has_a_driver() {
    let config = BalloonConfig {
        target_bytes: 0x8000,
        ..config()
    };
    let device = BalloonDevice::new(&config, RAM_BYTES as u64).unwrap();
    let driver = Driver::new(Box::new(device));
    let first = driver.function.save();
    let driver = driver.moved_by(|payloads| Box::new(made_again(payloads).unwrap()));
    assert_eq!(driver.function.save(), first);
}

#[test]
fn state_that_no_balloon_can_have_is_refused() {
    let payload = |bytes: &[u8]| Payload {
        kind: "virtio-balloon".to_owned(),
        version: 1,
        bytes: bytes.to_vec(),
    };
    let cases = [
        // A target beyond memory; a buffer at descriptor 65536; no message.
        vec![0x08, 0xff, 0xff, 0xff, 0xff, 0x0f],
        vec![0x20, 0x80, 0x80, 0x04],
        vec![0xff; 8],
    ];
    for bytes in cases {
        let mut payloads = Payloads::new(vec![payload(&bytes)]);
        assert!(made_again(&mut payloads).is_err(), "{bytes:x?}");
    }
    assert!(made_again(&mut Payloads::default()).is_err());
}

proptest! {
    #[test]
    fn random_state_makes_a_sound_balloon_or_none(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let payload = Payload { kind: "virtio-balloon".to_owned(), version: 1, bytes };
        if let Ok(device) = made_again(&mut Payloads::new(vec![payload])) {
            let control = device.control();
            let mut driver = Driver::ready(Box::new(device), 128, ALL);
            control.refresh_stats();
            driver.settle_own(0);
            prop_assert!(!driver.needs_reset());
        }
    }
}

#[test]
fn the_format_of_its_state_is_that_of_its_version() {
    crate::state::kept::assert_format_is_kept::<crate::virtio::balloon::state::BalloonState>();
}
