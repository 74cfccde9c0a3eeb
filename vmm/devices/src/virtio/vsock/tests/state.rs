//! Devices that are saved and made again.

use super::*;
use crate::pci::function::PciFunction;

/// The guest on a device that is made of this one's state.
fn moved(bench: Bench) -> Bench {
    let (listener, socket) = Listener::new();
    let (config, control) = device(socket);
    let driver = bench
        .driver
        .moved_by(|payloads| Box::new(VsockDevice::restored(config, payloads).unwrap()));
    Bench {
        driver,
        listener,
        control,
        ..bench
    }
}

#[test]
fn the_guest_of_a_restored_device_gets_a_transport_reset() {
    let mut bench = Bench::new();
    bench.driver.offer(EVENT, &[write(EVENTS, 4)]);
    bench.driver.fill(EVENTS, &[0xff; 4]);
    let (mut program, request) = bench.connected(1);
    let mut bench = moved(bench);
    // The former process.
    assert_eq!(rest(&mut program), b"");
    let mut next = bench.listener.connect();
    next.write_all(b"CONNECT 1\n").unwrap();
    bench.driver.function.resume();
    bench.settle();
    assert_eq!(bench.driver.used(EVENT), Some((0, 4)));
    assert_eq!(bench.driver.bytes(EVENTS, 4), [0; 4]);
    assert!(bench.driver.calls(EVENT) > 0);
    let second = bench.expect(Operation::Request);
    assert_ne!(second.source_port, request.source_port);
    bench.send_data(&request, b"of before");
    bench.expect(Operation::Reset);
    assert_eq!(bench.driver.used(EVENT), None);
}

#[test]
fn a_transport_reset_waits_for_a_buffer_and_nothing_comes_before_it() {
    let bench = Bench::new();
    let mut bench = moved(bench);
    let mut program = bench.listener.connect();
    program.write_all(b"CONNECT 1\n").unwrap();
    bench.driver.function.resume();
    bench.driver.settle();
    bench.driver.settle_own(0);
    assert_eq!(bench.driver.used(RECEIVE), None);
    bench.driver.offer(EVENT, &[write(EVENTS, 4)]);
    bench.driver.ring_kick(EVENT);
    bench.settle();
    assert_eq!(bench.driver.used(EVENT), Some((0, 4)));
    bench.expect(Operation::Request);
}

#[test]
fn saving_ends_nothing() {
    let mut bench = Bench::new();
    let (mut program, _) = bench.connected(1);
    bench.driver.function.quiesce().unwrap();
    assert_eq!(bench.driver.function.save().len(), 2);
    bench.driver.function.resume();
    program.write_all(b"still there").unwrap();
    bench.expect_data(b"still there");
    assert_eq!(bench.driver.used(EVENT), None);
}

#[test]
fn state_of_another_kind_is_refused() {
    let payload = |kind: &str, version, bytes: &[u8]| Payload {
        kind: kind.to_owned(),
        version,
        bytes: bytes.to_vec(),
    };
    for payloads in [
        vec![],
        vec![payload("virtio-blk", 1, &[])],
        vec![payload("virtio-vsock", 2, &[])],
        vec![payload("virtio-vsock", 1, &[0xff])],
    ] {
        let (_listener, socket) = Listener::new();
        let (config, _) = device(socket);
        let refused = VsockDevice::restored(config, &mut Payloads::new(payloads));
        assert!(matches!(refused, Err(VsockError::State(_))));
    }
}

#[test]
fn the_format_of_its_state_is_that_of_its_version() {
    crate::state::kept::assert_format_is_kept::<crate::virtio::vsock::state::VsockState>();
}
