//! The console port.

use super::*;

fn printed(bench: &Bench) -> Vec<u8> {
    bench.printed.0.lock().unwrap().clone()
}

#[test]
fn output_is_always_taken_and_input_waits_for_room() {
    let mut bench = Bench::open(true, &[]);
    for _ in 0..50 {
        assert!(bench.send(0, &[b'x'; 10_000]));
    }
    assert_eq!(printed(&bench).len(), 500_000);

    let console = Arc::clone(bench.host.console().unwrap());
    let pasted: Vec<u8> = (0..10_000u32).map(|at| at.to_le_bytes()[0]).collect();
    let mut left = pasted.as_slice();
    let mut got = Vec::new();
    while got.len() < pasted.len() {
        left = &left[console.input(left)..];
        bench.poll();
        got.extend(bench.receive(0, 1000).unwrap());
        console.clear_input_space_event();
    }
    assert_eq!(got, pasted);
}

#[test]
fn a_driver_without_control_queues_has_the_console_alone() {
    for features in [0, SIZE] {
        let mut bench = Bench::new(true, &["a"], features);
        assert!(bench.send(0, b"early"));
        assert_eq!(printed(&bench), b"early");
        let console = Arc::clone(bench.host.console().unwrap());
        assert_eq!(console.input(b"ls\n"), 3);
        bench.poll();
        assert_eq!(bench.receive(0, 10).unwrap(), b"ls\n");

        let before = bench.driver.msi.raised(0);
        console.resize(ConsoleSize {
            columns: 132,
            rows: 43,
        });
        bench.poll();
        assert!(bench.driver.msi.raised(0) > before);
        let mut size = [0; 4];
        bench.driver.function.bar_read(0, 0x2000, &mut size);
        assert_eq!(size, [132, 0, 43, 0]);
    }
}

#[test]
fn a_driver_with_control_queues_gets_the_size_by_message() {
    let mut bench = Bench::new(true, &[], MULTIPORT | SIZE);
    let console = Arc::clone(bench.host.console().unwrap());
    let size = |columns| ConsoleSize { columns, rows: 25 };
    console.resize(size(100));
    bench.poll();
    bench.send_control(NO_PORT, DEVICE_READY, 1);
    bench.send_control(0, PORT_READY, 1);
    let resized = |columns| (0, RESIZE, 1, vec![columns, 0, 25, 0]);
    assert_eq!(bench.receive_control().last(), Some(&resized(100)));
    for columns in [90, 91, 80] {
        console.resize(size(columns));
    }
    bench.poll();
    assert_eq!(
        bench.receive_control(),
        [resized(80)],
        "only the last counts"
    );
}

#[test]
fn characters_are_written_before_there_is_a_driver() {
    let (host, kept) = host(true, &[]);
    let mut driver = Driver::new(Box::new(ConsoleDevice::new(host)));
    for character in b"Oops" {
        let value = u32::from(*character).to_le_bytes();
        driver.function.bar_write(0, 0x2008, &value);
    }
    for offset in (0x2000..0x2008).chain(0x2009..0x2020) {
        driver.function.bar_write(0, offset, b"x");
    }
    assert_eq!(*kept.0.lock().unwrap(), b"Oops");

    let (host, _) = super::host(false, &["a"]);
    let mut driver = Driver::new(Box::new(ConsoleDevice::new(host)));
    driver.function.bar_write(0, 0x2008, b"x");
}

#[test]
fn a_reset_drops_what_was_typed_for_the_guest_before() {
    let mut bench = Bench::open(true, &[]);
    let console = Arc::clone(bench.host.console().unwrap());
    while console.input(b"yes\n") == 4 {}
    bench.driver.set_status(0);
    assert_eq!(console.input(b"no"), 2);
    bench.driver.start(16, VERSION_1);
    bench.poll();
    assert_eq!(bench.receive(0, 100).unwrap(), b"no");
}
