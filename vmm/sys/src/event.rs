//! Signals of event descriptors, which are never lost and never fail silently.

use std::io::ErrorKind;

use vmm_sys_util::eventfd::EventFd;

/// Makes `event` readable. One whose counter is at its end is readable already.
///
/// # Panics
/// The kernel refuses, which it only does for what is no eventfd: a signal that is lost would stop a device
/// for good, with nothing to show for it.
pub fn signal(event: &EventFd) {
    loop {
        match event.write(1) {
            Ok(()) => return,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("an event cannot be signalled: {error}"),
        }
    }
}

/// Takes all signals off `event`, which does not block. Whether there were any.
///
/// # Panics
/// As [`signal`].
pub fn clear(event: &EventFd) -> bool {
    loop {
        match event.read() {
            Ok(_) => return true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("an event cannot be read: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{FromRawFd, IntoRawFd};

    use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK};

    use super::*;

    #[test]
    fn a_signal_is_there_once_however_often_it_is_given() {
        let event = EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK).unwrap();
        assert!(!clear(&event));
        event.write(u64::MAX - 1).unwrap();
        signal(&event);
        assert!(clear(&event));
        signal(&event);
        signal(&event);
        assert!(clear(&event));
        assert!(!clear(&event));
    }

    #[test]
    #[should_panic(expected = "an event cannot be signalled")]
    fn a_signal_that_the_kernel_refuses_does_not_go_unnoticed() {
        let other = File::open("/dev/null").unwrap();
        // SAFETY: the descriptor is nobody else's any more.
        let event = unsafe { EventFd::from_raw_fd(other.into_raw_fd()) };
        signal(&event);
    }
}
