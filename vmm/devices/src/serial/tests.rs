use super::*;
use std::sync::Mutex;

#[derive(Default)]
struct Kept(Mutex<Vec<u8>>);

impl ConsoleOutput for Kept {
    fn write(&self, bytes: &[u8]) {
        self.0.lock().unwrap().extend_from_slice(bytes);
    }
}

fn port() -> (SerialPort, Arc<EventFd>, Arc<Kept>) {
    let interrupt = Arc::new(EventFd::new(EFD_NONBLOCK).unwrap());
    let kept = Arc::new(Kept::default());
    let port = SerialPort::new(Arc::clone(&interrupt), kept.clone()).unwrap();
    (port, interrupt, kept)
}

fn read(port: &mut SerialPort, offset: u64) -> u8 {
    let mut byte = [0];
    port.read(offset, &mut byte);
    byte[0]
}

#[test]
fn output_reaches_the_sink() {
    let (mut port, _, kept) = port();
    for byte in b"login: " {
        port.write(0, &[*byte]);
    }
    assert_eq!(*kept.0.lock().unwrap(), b"login: ");
    assert_eq!(read(&mut port, 5) & 0x60, 0x60, "transmitter is empty");
}

#[test]
fn input_raises_an_interrupt_and_is_read_in_order() {
    let (mut port, interrupt, _) = port();
    port.write(1, &[1]);
    assert!(interrupt.read().is_err());
    assert_eq!(port.input(b"ls\n"), 3);
    assert_eq!(interrupt.read().unwrap(), 1);
    assert_eq!(read(&mut port, 2) & 0x0f, 4, "received data available");
    let got: Vec<u8> = (0..3).map(|_| read(&mut port, 0)).collect();
    assert_eq!(got, b"ls\n");
    assert_eq!(read(&mut port, 5) & 1, 0);
}

#[test]
fn a_long_paste_arrives_whole() {
    let (mut port, _, _) = port();
    let paste: Vec<u8> = (0..10_000u32).map(|i| i.to_le_bytes()[0]).collect();
    let mut left = paste.as_slice();
    let mut got = Vec::new();
    while got.len() < paste.len() {
        let taken = port.input(left);
        left = &left[taken..];
        assert_eq!(
            port.input(left),
            0,
            "the FIFO took more than it has room for"
        );
        let has_fired = port.room.event.read().is_ok();
        assert!(!has_fired, "an event without room");
        while read(&mut port, 5) & 1 != 0 {
            got.push(read(&mut port, 0));
        }
        assert_eq!(port.room.event.read().is_ok(), !left.is_empty());
    }
    assert_eq!(got, paste);
}

#[test]
fn input_held_back_by_loopback_comes_after_it() {
    let (mut port, _, _) = port();
    port.write(4, &[0x10]);
    assert_eq!(port.input(b"x"), 0);
    port.write(4, &[0x00]);
    assert!(port.room.event.read().is_ok());
    assert_eq!(port.input(b"x"), 1);
}

#[test]
fn a_reset_forgets_input_and_tells_of_the_room() {
    let (mut port, _, _) = port();
    while port.input(b"y") == 1 {}
    port.reset();
    assert!(port.room.event.read().is_ok());
    assert_eq!(read(&mut port, 5) & 1, 0);
    assert_eq!(port.input(b"z"), 1);
    assert_eq!(read(&mut port, 0), b'z');
}

#[test]
fn registers_of_any_width_and_place_are_harmless() {
    let (mut port, _, _) = port();
    for offset in (0..16).chain([u64::MAX]) {
        for width in 0..9 {
            let mut data = vec![0x55; width];
            port.write(offset, &data);
            port.read(offset, &mut data);
            if let Some(rest) = data.get(1..) {
                assert!(rest.iter().all(|byte| *byte == 0xff));
            }
        }
    }
}

#[test]
fn a_port_goes_on_where_another_was() {
    let (mut before, _, _) = port();
    before.write(1, &[1]);
    before.write(7, &[0x42]);
    assert_eq!(before.input(b"left over"), 9);
    assert_eq!(read(&mut before, 0), b'l');
    let (mut after, _, kept) = port();
    after.load(&before.save()).unwrap();
    assert_eq!(after.save(), before.save());
    assert_eq!(read(&mut after, 7), 0x42);
    let rest: Vec<u8> = (0..8).map(|_| read(&mut after, 0)).collect();
    assert_eq!(rest, b"eft over");
    after.write(0, b"$");
    assert_eq!(*kept.0.lock().unwrap(), b"$");
}

#[test]
fn more_input_than_a_port_can_hold_is_refused() {
    let (mut port, _, _) = port();
    let mut payload = port.save();
    payload.bytes.extend([0x12, 0x80, 0x01]);
    payload.bytes.extend([b'x'; 128]);
    port.load(&payload).unwrap_err();
    payload.bytes.truncate(3);
    port.load(&payload).unwrap_err();
}

#[test]
fn the_format_of_its_state_is_that_of_its_version() {
    crate::state::kept::assert_format_is_kept::<super::state::PortState>();
}
