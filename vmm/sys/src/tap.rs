//! A tap device, taken over from whoever made it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Bytes of `struct virtio_net_hdr_v1`, which every packet starts with.
pub const VNET_HEADER_BYTES: usize = 12;

/// `IFF_TAP` of `linux/if_tun.h`; packets are Ethernet frames.
const IFF_TAP: u16 = 0x0002;
/// `IFF_NO_PI`: no `struct tun_pi` before packets.
const IFF_NO_PI: u16 = 0x1000;
/// `IFF_VNET_HDR`: a virtio-net header before packets.
const IFF_VNET_HDR: u16 = 0x4000;

/// ioctl numbers of `linux/if_tun.h`.
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNGETIFF: libc::c_ulong = 0x8004_54d2;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;

/// `struct ifreq` as `TUNGETIFF` fills it: name, flags, padding up to 40 bytes.
#[repr(C)]
struct IfReq {
    name: [u8; 16],
    flags: u16,
    padding: [u8; 22],
}

/// What the guest's driver takes, and so what the host may leave undone in packets for it
/// (`TUNSETOFFLOAD`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapOffloads {
    /// Packets without checksum.
    pub checksum: bool,
    /// TCP segments larger than the MTU, IPv4.
    pub tso4: bool,
    /// TCP segments larger than the MTU, IPv6.
    pub tso6: bool,
    /// Such segments with ECN.
    pub ecn: bool,
}

impl TapOffloads {
    /// As `TUN_F_*` bits. Segmentation without checksum offload is refused by the kernel and left
    /// out.
    fn bits(self) -> u32 {
        if !self.checksum {
            return 0;
        }
        let segments = self.tso4 || self.tso6;
        1 | if self.tso4 { 2 } else { 0 }
            | if self.tso6 { 4 } else { 0 }
            | if self.ecn && segments { 8 } else { 0 }
    }
}

/// Why a descriptor can not serve as tap.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// It is a tap with the wrong flags.
    #[error("tap {name:?} has flags {flags:#06x}, want IFF_TAP | IFF_NO_PI | IFF_VNET_HDR")]
    Flags {
        /// The interface's name.
        name: String,
        /// `ifr_flags`.
        flags: u16,
    },
    /// It is no tap, or an ioctl failed.
    #[error("tap: {call} failed")]
    Call {
        /// What was tried.
        call: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// A tap: packets are read and written whole, each with a virtio-net header of
/// [`VNET_HEADER_BYTES`]. Non-blocking.
#[derive(Debug)]
pub struct Tap {
    file: File,
    name: String,
}

impl Tap {
    /// Takes over an attached tap and sets header size, non-blocking mode and no offloads.
    ///
    /// # Errors
    /// The descriptor is no tap with `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`, or an ioctl fails.
    pub fn adopt(descriptor: OwnedFd) -> Result<Self, TapError> {
        let raw = descriptor.as_raw_fd();
        let mut request = IfReq {
            name: [0; 16],
            flags: 0,
            padding: [0; 22],
        };
        // SAFETY: TUNGETIFF writes one struct ifreq, which `IfReq` is as large as.
        let got = unsafe { libc::ioctl(raw, TUNGETIFF, &raw mut request) };
        checked("TUNGETIFF", got)?;
        let end = request.name.iter().position(|b| *b == 0);
        let name = request.name.get(..end.unwrap_or(16)).unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        let wanted = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
        if request.flags & wanted != wanted {
            let flags = request.flags;
            return Err(TapError::Flags { name, flags });
        }
        let header_bytes = libc::c_int::try_from(VNET_HEADER_BYTES).unwrap_or(0);
        // SAFETY: TUNSETVNETHDRSZ reads one int.
        let set = unsafe { libc::ioctl(raw, TUNSETVNETHDRSZ, &raw const header_bytes) };
        checked("TUNSETVNETHDRSZ", set)?;
        let flags = fcntl(&descriptor, FcntlArg::F_GETFL).map_err(|e| failed("F_GETFL", e))?;
        let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
        fcntl(&descriptor, FcntlArg::F_SETFL(flags)).map_err(|e| failed("F_SETFL", e))?;
        let tap = Self {
            file: File::from(descriptor),
            name,
        };
        tap.set_offloads(TapOffloads::default())?;
        Ok(tap)
    }

    /// The interface's name when it was taken over.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tells the host what it may leave to the guest.
    ///
    /// # Errors
    /// The kernel does not know one of the offloads.
    pub fn set_offloads(&self, offloads: TapOffloads) -> Result<(), TapError> {
        // SAFETY: TUNSETOFFLOAD takes an integer.
        let set = unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
                TUNSETOFFLOAD,
                libc::c_ulong::from(offloads.bits()),
            )
        };
        checked("TUNSETOFFLOAD", set)
    }

    /// Reads one packet with its header; what does not fit into `buffer` is lost. `None` when there
    /// is none now.
    ///
    /// # Errors
    /// The interface is gone or down for good.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match (&self.file).read(buffer) {
                Ok(count) => return Ok(Some(count)),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => return Ok(None),
                    _ => return Err(error),
                },
            }
        }
    }
}

impl AsRawFd for Tap {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn checked(call: &'static str, result: libc::c_int) -> Result<(), TapError> {
    if result < 0 {
        let source = io::Error::last_os_error();
        return Err(TapError::Call { call, source });
    }
    Ok(())
}

fn failed(call: &'static str, errno: nix::errno::Errno) -> TapError {
    TapError::Call {
        call,
        source: errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;

    /// A new tap of these flags, or nothing where this process may not make one.
    fn make_tap(flags: u16) -> Option<OwnedFd> {
        let tun = File::options().read(true).write(true).open("/dev/net/tun");
        let Ok(tun) = tun else {
            eprintln!("skipped: /dev/net/tun can not be opened");
            return None;
        };
        let mut request = IfReq {
            name: [0; 16],
            flags: IFF_TAP | flags,
            padding: [0; 22],
        };
        // SAFETY: TUNSETIFF reads and writes one struct ifreq.
        if unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETIFF, &raw mut request) } < 0 {
            eprintln!("skipped: no tap: {}", io::Error::last_os_error());
            return None;
        }
        Some(tun.into())
    }

    #[test]
    fn a_tap_is_adopted_and_never_blocks() {
        let Some(descriptor) = make_tap(IFF_NO_PI | IFF_VNET_HDR) else {
            return;
        };
        let tap = Tap::adopt(descriptor).unwrap();
        assert!(tap.name().starts_with("tap"), "{:?}", tap.name());
        for checksum in [true, false] {
            let offloads = TapOffloads {
                checksum,
                tso4: true,
                tso6: true,
                ecn: true,
            };
            tap.set_offloads(offloads).unwrap();
        }
        // The interface is down, so nothing comes; no call waits for it.
        assert!(matches!(tap.receive(&mut [0; 2048]), Ok(None) | Err(_)));
    }

    #[test]
    fn a_tap_without_virtio_header_is_refused() {
        let Some(descriptor) = make_tap(IFF_NO_PI) else {
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

    #[test]
    fn segmentation_is_never_asked_for_without_checksums() {
        let all = TapOffloads {
            checksum: true,
            tso4: true,
            tso6: true,
            ecn: true,
        };
        assert_eq!(all.bits(), 15);
        let without = TapOffloads {
            checksum: false,
            ..all
        };
        assert_eq!(without.bits(), 0);
        let only_ecn = TapOffloads {
            checksum: true,
            ecn: true,
            ..TapOffloads::default()
        };
        assert_eq!(only_ecn.bits(), 1);
    }
}
