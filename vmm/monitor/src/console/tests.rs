use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use vmm_devices::serial::ConsoleOutput;

use super::*;
use crate::log_file::LogFile;

fn console_of_line() -> (SerialLine, Console) {
    let (line, output) = SerialLine::new().unwrap();
    let console = Console::new(output, Box::new(line.clone()));
    (line, console)
}

fn console() -> Console {
    console_of_line().1
}

fn read_all(socket: &mut UnixStream) -> Vec<u8> {
    socket.set_nonblocking(true).unwrap();
    let mut all = Vec::new();
    // Ends with WouldBlock.
    socket.read_to_end(&mut all).unwrap_err();
    all
}

#[test]
fn a_client_sees_the_past_only_when_it_asks() {
    let mut console = console();
    console.output.write(b"before ");
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    console
        .attach(theirs.into(), "a".into(), Some(0), false)
        .unwrap();
    console.output.write(b"after");
    console.serve_output();
    assert_eq!(read_all(&mut ours), b"before after");

    let (mut ours, theirs) = UnixStream::pair().unwrap();
    console
        .attach(theirs.into(), "b".into(), None, true)
        .unwrap();
    console.output.write(b"!");
    console.serve_output();
    assert_eq!(read_all(&mut ours), b"!");
}

#[test]
fn a_client_that_comes_again_goes_on_where_it_was() {
    let mut console = console();
    console.output.write(b"0123456789");
    for (from, offset, text) in [(4, 4, "456789"), (99, 10, ""), (0, 0, "0123456789")] {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let first = console.attach(theirs.into(), "a".into(), Some(from), true);
        assert_eq!(first, Ok(offset));
        assert_eq!(read_all(&mut ours), text.as_bytes());
    }
}

#[test]
fn a_second_client_is_refused_with_the_name_of_the_first() {
    let mut console = console();
    let (_a, theirs) = UnixStream::pair().unwrap();
    console
        .attach(theirs.into(), "first".into(), Some(0), false)
        .unwrap();
    let (_b, theirs) = UnixStream::pair().unwrap();
    let busy = console.attach(theirs.into(), "second".into(), Some(0), false);
    assert_eq!(busy.unwrap_err().client, "first");
}

#[test]
fn a_client_that_does_not_read_misses_output_and_holds_nobody_up() {
    let mut console = console();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    console
        .attach(theirs.into(), "slow".into(), None, false)
        .unwrap();
    for _ in 0..100 {
        console.output.write(&[b'x'; 50_000]);
        console.serve_output();
    }
    assert!(console.client().unwrap().1.writable);
    assert!(!read_all(&mut ours).is_empty());
    console.on_client_writable();
    assert_eq!(read_all(&mut ours).len(), output::RING_BYTES);
}

#[test]
fn the_log_has_everything_even_when_nobody_serves() {
    let console = console();
    let file = tempfile::tempfile().unwrap();
    console.set_log(LogFile::new(file.try_clone().unwrap(), 10 << 20).unwrap());
    for _ in 0..20 {
        console.output.write(&[b'x'; 50_000]);
    }
    let logged = file.metadata().unwrap().len();
    assert!(logged + output::MAX_UNLOGGED_BYTES > 1_000_000);
}

#[test]
fn pasted_text_waits_for_room() {
    let mut console = console();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    console
        .attach(theirs.into(), "a".into(), None, false)
        .unwrap();
    ours.write_all(&[b'y'; 1000]).unwrap();
    console.on_client_readable();
    assert!(!console.client().unwrap().1.readable);
    assert!(!console.client.as_ref().unwrap().typed.is_empty());
}

#[test]
fn room_for_a_client_that_is_gone_wakes_the_thread_once() {
    use vmm_devices::BusDevice;
    use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

    let (line, mut console) = console_of_line();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    console
        .attach(theirs.into(), "a".into(), None, false)
        .unwrap();
    ours.write_all(&[b'y'; 1000]).unwrap();
    console.on_client_readable();
    console.on_client_gone();
    let port = line.config().port;
    for _ in 0..64 {
        port.lock().unwrap().read(0, &mut [0]);
    }
    let epoll = Epoll::new().unwrap();
    let event = EpollEvent::new(EventSet::IN, 0);
    epoll
        .ctl(ControlOperation::Add, console.input_space_event(), event)
        .unwrap();
    let mut events = [EpollEvent::default()];
    assert_eq!(epoll.wait(0, &mut events).unwrap(), 1);
    console.serve_input();
    assert_eq!(epoll.wait(0, &mut events).unwrap(), 0);
}

/// Whether the main thread is woken within `limit_ms`.
fn wakes(console: &Console, limit_ms: i32) -> bool {
    use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

    let epoll = Epoll::new().unwrap();
    let event = EpollEvent::new(EventSet::IN, 0);
    epoll
        .ctl(ControlOperation::Add, console.output_event(), event)
        .unwrap();
    epoll.wait(limit_ms, &mut [EpollEvent::default()]).unwrap() == 1
}

#[test]
fn a_whole_line_wakes_the_thread_at_once_and_its_start_before_long() {
    const AT_ONCE_MS: i32 = 10_000;

    let mut console = console();
    assert!(!wakes(&console, 0));
    for text in ["login: ", "whole line\n", "begin", " and end\n"] {
        console.output.write(text.as_bytes());
        assert!(wakes(&console, AT_ONCE_MS), "{text}");
        console.serve_output();
        assert!(!wakes(&console, 10), "{text}");
    }
    // Of what has no end, much is as good as a line.
    let much = usize::try_from(output::MAX_UNSEEN_BYTES).unwrap();
    assert_eq!(
        console.output.lock().print(&vec![b'x'; much - 1]),
        Some(output::WakeTime::Soon)
    );
    assert_eq!(
        console.output.lock().print(b"x"),
        Some(output::WakeTime::Now)
    );
    assert_eq!(console.output.lock().print(b"\n"), None);
}

#[test]
fn what_was_printed_can_be_read_without_attaching_and_says_how_much_of_it_is_in_the_log() {
    let mut console = console();
    console.output.write(b"before");
    let past = console.past(0);
    assert_eq!((past.printed, past.logged), (6, None));
    let file = tempfile::tempfile().unwrap();
    console.set_log(LogFile::new(file.try_clone().unwrap(), 1 << 20).unwrap());
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    console
        .attach(theirs.into(), "a".into(), None, false)
        .unwrap();
    console.output.write(b" after");
    assert_eq!(console.serve_output().map(|error| error.kind()), None);
    for (from, offset, bytes) in [(0, 0, "before after"), (7, 7, "after"), (99, 12, "")] {
        let past = console.past(from);
        assert_eq!(
            (past.offset, past.bytes.as_slice()),
            (offset, bytes.as_bytes())
        );
        assert_eq!((past.printed, past.logged), (12, Some(12)));
    }
    // Whoever is attached got it all the same.
    assert_eq!(read_all(&mut ours), b" after");
}

#[test]
fn no_more_can_be_read_than_the_ring_holds() {
    let console = console();
    console.output.write(&vec![b'x'; output::RING_BYTES]);
    console.output.write(b"end");
    let past = console.past(0);
    assert_eq!((past.offset, past.bytes.len()), (3, output::RING_BYTES));
    assert!(past.bytes.ends_with(b"xend"));
}
