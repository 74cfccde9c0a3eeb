use super::*;
use std::fs::File;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

fn pair() -> (UnixStream, UnixStream) {
    let (left, right) = UnixStream::pair().unwrap();
    right
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    (left, right)
}

fn header(body: u32, descriptors: u16, reserved: u16) -> Vec<u8> {
    let mut bytes = body.to_le_bytes().to_vec();
    bytes.extend_from_slice(&descriptors.to_le_bytes());
    bytes.extend_from_slice(&reserved.to_le_bytes());
    bytes
}

/// Descriptors of this process that are open on `path`.
fn open_on(path: &std::path::Path) -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target == path)
        .count()
}

#[test]
fn a_frame_arrives_with_its_descriptors_in_order() {
    let (left, right) = pair();
    let null = File::open("/dev/null").unwrap();
    let zero = File::open("/dev/zero").unwrap();
    send_frame(&left, b"configure", &[zero.as_fd(), null.as_fd()]).unwrap();
    send_frame(&left, b"", &[]).unwrap();

    let frame = receive_frame(&right).unwrap().unwrap();
    assert_eq!(frame.body, b"configure");
    let mut files = frame.descriptors.into_iter().map(File::from);
    let mut byte = [1u8];
    assert_eq!(files.next().unwrap().read(&mut byte).unwrap(), 1);
    assert_eq!(files.next().unwrap().read(&mut byte).unwrap(), 0);
    assert!(files.next().is_none());

    let empty = receive_frame(&right).unwrap().unwrap();
    assert!(empty.body.is_empty() && empty.descriptors.is_empty());
    drop(left);
    assert!(receive_frame(&right).unwrap().is_none());
}

#[test]
fn a_body_larger_than_the_socket_buffer_arrives_whole() {
    let (left, right) = pair();
    let body: Vec<u8> = (0..MAX_BODY_BYTES).map(|i| i.to_le_bytes()[0]).collect();
    let sent = body.clone();
    let sender = thread::spawn(move || {
        let null = File::open("/dev/null").unwrap();
        send_frame(&left, &sent, &[null.as_fd()]).unwrap();
    });
    let frame = receive_frame(&right).unwrap().unwrap();
    sender.join().unwrap();
    assert_eq!(frame.body, body);
    assert_eq!(frame.descriptors.len(), 1);
}

#[test]
fn a_header_that_comes_byte_by_byte_is_understood() {
    let (left, right) = pair();
    let sender = thread::spawn(move || {
        let mut writer = &left;
        for byte in header(2, 0, 0).into_iter().chain(*b"ok") {
            writer.write_all(&[byte]).unwrap();
            // The other end is to read each by itself.
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(receive_frame(&right).unwrap().unwrap().body, b"ok");
    sender.join().unwrap();
}

#[test]
fn oversized_frames_are_refused_on_both_sides() {
    let (left, right) = pair();
    let body = vec![0; MAX_BODY_BYTES + 1];
    assert!(matches!(
        send_frame(&left, &body, &[]),
        Err(FrameError::BodyTooLong { .. })
    ));
    let null = File::open("/dev/null").unwrap();
    let many = vec![null.as_fd(); MAX_DESCRIPTORS + 1];
    assert!(matches!(
        send_frame(&left, b"", &many),
        Err(FrameError::TooManyDescriptors { count: 65 })
    ));
    (&left).write_all(&header(u32::MAX, 0, 0)).unwrap();
    assert!(matches!(
        receive_frame(&right),
        Err(FrameError::BodyTooLong { .. })
    ));
}

#[test]
fn descriptors_that_were_not_announced_are_closed() {
    let directory = std::env::temp_dir().join(format!("kvmlet-frame-{}", std::process::id()));
    let file = File::create(&directory).unwrap();
    let path = std::fs::canonicalize(&directory).unwrap();
    assert_eq!(open_on(&path), 1);

    for (announced, sent) in [(0u16, 3usize), (1, 3), (4, 3), (65, 100), (3, 253)] {
        let (left, right) = pair();
        let many = vec![file.as_fd(); sent];
        rights::send(&left, &header(0, announced, 0), &many).unwrap();
        assert!(receive_frame(&right).is_err());
        assert_eq!(open_on(&path), 1, "{announced} announced, {sent} sent");
    }
    std::fs::remove_file(&directory).unwrap();
}

#[test]
fn descriptors_on_the_body_are_dropped() {
    let (left, right) = pair();
    let null = File::open("/dev/null").unwrap();
    (&left).write_all(&header(1, 0, 0)).unwrap();
    rights::send(&left, b"x", &[null.as_fd()]).unwrap();
    let frame = receive_frame(&right).unwrap().unwrap();
    assert!(frame.descriptors.is_empty());
}

#[test]
fn a_frame_cut_short_is_an_error_and_not_an_end() {
    for bytes in [&[1u8, 0][..], &[9, 0, 0, 0, 0, 0, 0, 0, 1]] {
        let (left, right) = pair();
        (&left).write_all(bytes).unwrap();
        drop(left);
        assert!(matches!(receive_frame(&right), Err(FrameError::Truncated)));
    }
}

#[test]
fn a_reserved_field_that_is_not_zero_is_refused() {
    let (left, right) = pair();
    (&left).write_all(&header(0, 0, 7)).unwrap();
    assert!(matches!(
        receive_frame(&right),
        Err(FrameError::Reserved { value: 7 })
    ));
}

#[test]
fn a_silent_peer_runs_into_the_socket_timeout() {
    let (_left, right) = pair();
    right
        .set_read_timeout(Some(Duration::from_millis(10)))
        .unwrap();
    let Err(FrameError::Io(error)) = receive_frame(&right) else {
        panic!("a frame out of nothing");
    };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}
