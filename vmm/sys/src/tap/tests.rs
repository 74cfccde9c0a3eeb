use super::*;

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;

/// A queue of the tap of this name (of a new one when it is empty), or nothing where this process
/// may not make one.
fn make_tap(name: &str, flags: u16) -> Option<OwnedFd> {
    let tun = File::options().read(true).write(true).open("/dev/net/tun");
    let Ok(tun) = tun else {
        test_skip::report("/dev/net/tun cannot be opened");
        return None;
    };
    let mut request = IfReq::with_flags(IFF_TAP | flags);
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads and writes one struct ifreq.
    if unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETIFF, &raw mut request) } < 0 {
        test_skip::report(&format!("no tap: {}", io::Error::last_os_error()));
        return None;
    }
    Some(tun.into())
}

fn receive(tap: &Tap) -> io::Result<Option<usize>> {
    tap.receive::<()>(&[], &mut [0; 2048])
}

#[test]
fn a_tap_is_adopted_and_never_blocks() {
    let Some(descriptor) = make_tap("", IFF_NO_PI | IFF_VNET_HDR) else {
        return;
    };
    let tap = Tap::adopt(descriptor).unwrap();
    assert!(tap.name().starts_with("tap"), "{:?}", tap.name());
    assert!(!tap.has_queues());
    for checksum in [true, false] {
        let offloads = TapOffloads {
            checksum,
            tso4: true,
            tso6: true,
            ecn: true,
            ufo: true,
            uso: false,
        };
        tap.set_offloads(offloads).unwrap();
    }
    // The interface is down, so nothing comes; no call waits for it.
    assert!(matches!(receive(&tap), Ok(None) | Err(_)));
    // There is nothing that it could be detached from.
    tap.set_attached(false).unwrap();
    tap.set_attached(true).unwrap();
}

#[test]
fn queues_are_attached_and_detached() {
    let flags = IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE;
    let Some(first) = make_tap("", flags) else {
        return;
    };
    let first = Tap::adopt(first).unwrap();
    assert!(first.has_queues());
    let second = Tap::adopt(make_tap(first.name(), flags).unwrap()).unwrap();
    assert_eq!(first.name(), second.name());
    for attached in [false, false, true, true, false] {
        second.set_attached(attached).unwrap();
    }
    // Whoever gets it next finds it as it was left.
    let again = Tap::adopt(second.as_fd().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!(again.name(), first.name());
    for attached in [false, true, false] {
        again.set_attached(attached).unwrap();
    }
}

#[test]
fn a_tap_without_virtio_header_is_refused() {
    let Some(descriptor) = make_tap("", IFF_NO_PI) else {
        return;
    };
    let error = Tap::adopt(descriptor).unwrap_err();
    assert!(matches!(error, TapError::Flags { .. }), "{error}");
}

#[test]
fn a_file_is_no_tap() {
    let file = File::open("/dev/null").unwrap();
    let error = Tap::adopt(file.into()).unwrap_err();
    assert!(matches!(
        error,
        TapError::Call {
            call: "TUNGETIFF",
            ..
        }
    ));
}
