//! A tap device, or one queue of it, taken over from whoever made it.

mod offloads;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use vm_memory::VolatileSlice;
use vm_memory::bitmap::BitmapSlice;

pub use self::offloads::TapOffloads;
use crate::guest_io::read_packet;

/// Bytes of `struct virtio_net_hdr_v1`, which every packet starts with.
pub const VNET_HEADER_BYTES: usize = 12;

/// `IFF_TAP` of `linux/if_tun.h`; packets are Ethernet frames.
const IFF_TAP: u16 = 0x0002;
/// `IFF_MULTI_QUEUE`: other descriptors may be queues of the same interface.
const IFF_MULTI_QUEUE: u16 = 0x0100;
/// `IFF_ATTACH_QUEUE` and `IFF_DETACH_QUEUE`, what `TUNSETQUEUE` is to do.
const IFF_ATTACH_QUEUE: u16 = 0x0200;
const IFF_DETACH_QUEUE: u16 = 0x0400;
/// `IFF_NO_PI`: no `struct tun_pi` before packets.
const IFF_NO_PI: u16 = 0x1000;
/// `IFF_VNET_HDR`: a virtio-net header before packets.
const IFF_VNET_HDR: u16 = 0x4000;

/// ioctl numbers of `linux/if_tun.h`.
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNGETIFF: libc::c_ulong = 0x8004_54d2;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
const TUNSETQUEUE: libc::c_ulong = 0x4004_54d9;

/// `struct ifreq` as the calls above have it: name, flags, padding up to 40 bytes.
#[repr(C)]
struct IfReq {
    name: [u8; 16],
    flags: u16,
    padding: [u8; 22],
}

impl IfReq {
    fn with_flags(flags: u16) -> Self {
        Self {
            name: [0; 16],
            flags,
            padding: [0; 22],
        }
    }
}

/// Why a descriptor cannot serve as tap.
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
        /// Name of the system call or ioctl.
        call: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// A queue of a tap: packets are read and written whole, each with a virtio-net header of
/// [`VNET_HEADER_BYTES`]. Non-blocking.
#[derive(Debug)]
pub struct Tap {
    file: File,
    name: String,
    has_queues: bool,
    is_attached: AtomicBool,
}

impl Tap {
    /// Takes over a tap, or one queue of it, and sets header size, non-blocking mode and no
    /// offloads. A queue that was detached stays so: frames that the host gave it meanwhile would be
    /// lost when it turns out that the guest has no use for it.
    ///
    /// # Errors
    /// The descriptor is no tap with `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`, or an ioctl fails.
    pub fn adopt(descriptor: OwnedFd) -> Result<Self, TapError> {
        let file = File::from(descriptor);
        let mut request = IfReq::with_flags(0);
        get_interface(&file, &mut request)?;
        let end = request.name.iter().position(|b| *b == 0);
        let name = request.name.get(..end.unwrap_or(16)).unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        let wanted = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
        let flags = request.flags;
        if flags & wanted != wanted {
            return Err(TapError::Flags { name, flags });
        }
        let header_bytes = libc::c_int::try_from(VNET_HEADER_BYTES).unwrap_or(0);
        // SAFETY: TUNSETVNETHDRSZ reads one int.
        let set =
            unsafe { libc::ioctl(file.as_raw_fd(), TUNSETVNETHDRSZ, &raw const header_bytes) };
        checked("TUNSETVNETHDRSZ", set)?;
        let status = fcntl(&file, FcntlArg::F_GETFL).map_err(|e| failed("F_GETFL", e))?;
        let status = OFlag::from_bits_retain(status) | OFlag::O_NONBLOCK;
        fcntl(&file, FcntlArg::F_SETFL(status)).map_err(|e| failed("F_SETFL", e))?;
        let tap = Self {
            file,
            name,
            has_queues: flags & IFF_MULTI_QUEUE != 0,
            is_attached: AtomicBool::new(flags & IFF_DETACH_QUEUE == 0),
        };
        tap.set_offloads(TapOffloads::default())?;
        Ok(tap)
    }

    /// The interface's name when it was taken over.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this is one of several possible queues of its interface (`IFF_MULTI_QUEUE`).
    pub fn has_queues(&self) -> bool {
        self.has_queues
    }

    /// Tells the host what it may leave to the guest. Counts for all queues of the interface.
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

    /// Attaches the queue to its interface or detaches it: one that is detached gets no packets and
    /// sends none. The only queue there can be stays attached.
    ///
    /// # Errors
    /// The interface is gone, or the kernel refuses.
    pub fn set_attached(&self, attached: bool) -> Result<(), TapError> {
        if !self.has_queues || self.is_attached.load(Ordering::Relaxed) == attached {
            return Ok(());
        }
        let flags = if attached {
            IFF_ATTACH_QUEUE
        } else {
            IFF_DETACH_QUEUE
        };
        set_queue(&self.file, flags)?;
        self.is_attached.store(attached, Ordering::Relaxed);
        Ok(())
    }

    /// Reads one packet with its header into `parts`, and what does not fit there into `rest`; what
    /// does not fit there either is lost. Returns the packet's length, as far as there was room, or
    /// `None` when there is none now. Memory written is marked dirty.
    ///
    /// # Errors
    /// The interface is gone or down for good.
    pub fn receive<B: BitmapSlice>(
        &self,
        parts: &[VolatileSlice<'_, B>],
        rest: &mut [u8],
    ) -> io::Result<Option<usize>> {
        match read_packet(&self.file, parts, rest) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
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

fn get_interface(file: &File, request: &mut IfReq) -> Result<(), TapError> {
    // SAFETY: TUNGETIFF writes one struct ifreq, which `IfReq` is as large as.
    let got = unsafe { libc::ioctl(file.as_raw_fd(), TUNGETIFF, &raw mut *request) };
    checked("TUNGETIFF", got)
}

fn set_queue(file: &File, flags: u16) -> Result<(), TapError> {
    let request = IfReq::with_flags(flags);
    // SAFETY: TUNSETQUEUE reads one struct ifreq, which `IfReq` is as large as.
    let set = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETQUEUE, &raw const request) };
    checked("TUNSETQUEUE", set)
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
mod tests;
