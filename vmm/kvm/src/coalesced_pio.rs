//! Coalesced port I/O (`KVM_CAP_COALESCED_PIO`): writes to registered ports cause no vCPU exit.
//!
//! KVM appends them to a ring of one page, which all vCPUs of a VM share, and the VMM drains it later
//! (Documentation/virt/kvm/api.rst, `KVM_REGISTER_COALESCED_MMIO`). When the ring is full, writes cause
//! exits as usual. Only the kernel writes to the ring: a guest chooses address, length and value of an
//! entry, within the registered ports.

use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kvm_bindings::{
    KVM_CAP_COALESCED_MMIO, KVM_CAP_COALESCED_PIO, kvm_coalesced_mmio, kvm_coalesced_mmio_ring,
};
use kvm_ioctls::IoEventAddress;

use crate::error::KvmError;
use crate::vcpu::Vcpu;
use crate::vm::Vm;

const PAGE_BYTES: usize = 4096;
/// Entries of the ring: as many as the page has room for (`KVM_COALESCED_MMIO_MAX` of `linux/kvm.h`).
const ENTRIES: u32 = 170;
/// Widest port access of a processor, in bytes.
const MOST_BYTES: usize = 4;

/// The coalesced port writes of a VM.
#[derive(Debug)]
pub struct CoalescedPio {
    ring: Ring,
    vm: Arc<Vm>,
}

impl CoalescedPio {
    /// Maps the ring of `vm`, of which `vcpu` is any vCPU. `None` where KVM cannot coalesce port writes.
    ///
    /// # Errors
    /// When the ring cannot be mapped.
    pub fn new(vm: &Arc<Vm>, vcpu: &Vcpu) -> Result<Option<Self>, KvmError> {
        let number = |capability: u32| vm.fd().check_extension_raw(u64::from(capability));
        let pages = usize::try_from(number(KVM_CAP_COALESCED_MMIO)).unwrap_or(0);
        if number(KVM_CAP_COALESCED_PIO) <= 0 || pages == 0 {
            return Ok(None);
        }
        let ring = Ring::map(vcpu.fd(), pages * PAGE_BYTES).map_err(KvmError::ioctl("mmap"))?;
        let vm = Arc::clone(vm);
        Ok(Some(Self { ring, vm }))
    }

    /// Coalesces writes to `count` ports from `first` on, of any length within these.
    ///
    /// # Errors
    /// When the ioctl fails; the writes then cause exits as before.
    pub fn register(&self, first: u16, count: u16) -> Result<(), KvmError> {
        let address = IoEventAddress::Pio(u64::from(first));
        self.vm
            .fd()
            .register_coalesced_mmio(address, u32::from(count))
            .map_err(KvmError::ioctl("KVM_REGISTER_COALESCED_MMIO"))
    }

    /// Undoes [`Self::register`]. Entries in the ring stay there.
    ///
    /// # Errors
    /// When the ioctl fails, which no known kernel does for a registered range.
    pub fn unregister(&self, first: u16, count: u16) -> Result<(), KvmError> {
        let address = IoEventAddress::Pio(u64::from(first));
        self.vm
            .fd()
            .unregister_coalesced_mmio(address, u32::from(count))
            .map_err(KvmError::ioctl("KVM_UNREGISTER_COALESCED_MMIO"))
    }

    /// Passes port and value of every entry to `write`, in order, and returns their number. When it
    /// returns, entries that another thread drained meanwhile have been written as well.
    pub fn drain(&self, write: impl FnMut(u16, &[u8])) -> u32 {
        self.ring.drain(write)
    }
}

/// The ring that the kernel shares with us.
#[derive(Debug)]
struct Ring {
    page: NonNull<kvm_coalesced_mmio_ring>,
    /// Held by the thread that drains the ring, until its last entry is applied.
    drainer: Mutex<()>,
}

// SAFETY: the page is a separate mapping that no thread owns. Its indexes are only used as atomics, and its
// entries only by the holder of `drainer`.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Maps the page at `offset` of `file`.
    fn map(file: &impl AsRawFd, offset: usize) -> Result<Self, kvm_ioctls::Error> {
        let offset =
            libc::off_t::try_from(offset).map_err(|_| kvm_ioctls::Error::new(libc::EOVERFLOW))?;
        // SAFETY: a new mapping of one page at an address that the kernel chooses.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(kvm_ioctls::Error::last());
        }
        let page = NonNull::new(page.cast()).ok_or(kvm_ioctls::Error::new(libc::EFAULT))?;
        let drainer = Mutex::new(());
        Ok(Self { page, drainer })
    }

    fn drain(&self, mut write: impl FnMut(u16, &[u8])) -> u32 {
        if self.first().load(Ordering::Acquire) == self.last().load(Ordering::Acquire) {
            return 0;
        }
        let _drainer = self.drainer.lock().unwrap_or_else(PoisonError::into_inner);
        // Bounded: another vCPU may add entries as fast as they are drained.
        for taken in 0..ENTRIES {
            let first = self.first().load(Ordering::Acquire) % ENTRIES;
            if first == self.last().load(Ordering::Acquire) % ENTRIES {
                return taken;
            }
            let entry = self.entry(first);
            if let Some((port, bytes)) = port_write(&entry) {
                write(port, bytes);
            }
            // Only now: others take an empty ring as proof that everything is applied.
            self.first().store((first + 1) % ENTRIES, Ordering::Release);
        }
        ENTRIES
    }

    fn first(&self) -> &AtomicU32 {
        // SAFETY: aligned and mapped as long as `self`; nothing of this process refers to it otherwise.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.page.as_ptr()).first) }
    }

    fn last(&self) -> &AtomicU32 {
        // SAFETY: as of `first`; the kernel stores whole words.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.page.as_ptr()).last) }
    }

    /// A copy of the entry at `index`, which is below [`ENTRIES`].
    fn entry(&self, index: u32) -> kvm_coalesced_mmio {
        // SAFETY: entries follow the indexes, and this one ends within the page. All bit patterns are
        // valid. The kernel writes to it no more until `first` is beyond, hence no more than a copy.
        unsafe {
            let entries = self.page.as_ptr().add(1).cast::<kvm_coalesced_mmio>();
            entries.add((index % ENTRIES) as usize).read_volatile()
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is our own, and nothing refers to it any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// Port and value of an entry, if it is a write that a processor makes to ports.
fn port_write(entry: &kvm_coalesced_mmio) -> Option<(u16, &[u8])> {
    let port = u16::try_from(entry.phys_addr).ok()?;
    let bytes = usize::try_from(entry.len).ok()?;
    let value = entry.data.get(..bytes)?;
    (1..=MOST_BYTES).contains(&bytes).then_some((port, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_fills_its_page() {
        let room = PAGE_BYTES - size_of::<kvm_coalesced_mmio_ring>();
        assert_eq!(ENTRIES as usize, room / size_of::<kvm_coalesced_mmio>());
    }

    #[test]
    fn entries_that_are_no_port_write_are_ignored() {
        let entry = |phys_addr, len| kvm_coalesced_mmio {
            phys_addr,
            len,
            data: [1, 2, 3, 4, 5, 6, 7, 8],
            ..kvm_coalesced_mmio::default()
        };
        assert_eq!(
            port_write(&entry(0xcf8, 4)),
            Some((0xcf8, &[1, 2, 3, 4][..]))
        );
        for (port, bytes) in [(0xcf8, 0), (0xcf8, 5), (0xcf8, u32::MAX), (0x1_0000, 1)] {
            assert_eq!(port_write(&entry(port, bytes)), None);
        }
    }

    const WRITES: u32 = 100_000;

    /// Puts a write of `value` into the ring as the kernel does, if there is room.
    fn add(ring: &Ring, value: u32) -> bool {
        let last = ring.last().load(Ordering::Relaxed);
        let next = (last + 1) % ENTRIES;
        if next == ring.first().load(Ordering::Acquire) {
            return false;
        }
        let mut data = [0; 8];
        data[..4].copy_from_slice(&value.to_le_bytes());
        let entry = kvm_coalesced_mmio {
            phys_addr: 0xcf8,
            len: 4,
            data,
            ..kvm_coalesced_mmio::default()
        };
        // SAFETY: within the page, and nobody reads it before `last` is beyond.
        unsafe {
            let entries = ring.page.as_ptr().add(1).cast::<kvm_coalesced_mmio>();
            entries.add(last as usize).write_volatile(entry);
        }
        ring.last().store(next, Ordering::Release);
        true
    }

    #[allow(clippy::disallowed_methods, reason = "threads of a test, not of a VMM")]
    #[test]
    fn concurrent_drainers_apply_every_write_once_and_in_order() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE_BYTES as u64).unwrap();
        let ring = Ring::map(&file, 0).unwrap();
        // The last value that was applied.
        let done = AtomicU32::new(0);
        let take = || {
            ring.drain(|port, value| {
                let value = u32::from_le_bytes(value.try_into().unwrap());
                assert_eq!((port, value), (0xcf8, done.load(Ordering::SeqCst) + 1));
                // Others would overtake here if they could.
                std::thread::yield_now();
                done.store(value, Ordering::SeqCst);
            })
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while done.load(Ordering::SeqCst) < WRITES {
                        take();
                    }
                });
            }
            for value in 1..=WRITES {
                while !add(&ring, value) {
                    take();
                }
                if value % 7 == 0 {
                    // Whatever other threads drain: earlier writes are applied when this returns.
                    take();
                    assert!(done.load(Ordering::SeqCst) >= value);
                }
            }
        });
        assert_eq!(take(), 0);
    }
}
