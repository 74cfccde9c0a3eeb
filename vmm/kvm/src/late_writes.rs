//! Writes to ports that do not bring a vCPU out of the guest (`KVM_CAP_COALESCED_PIO`).
//!
//! KVM puts them into a ring of one page, the same for all vCPUs of a VM, from which they are taken
//! later (Documentation/virt/kvm/api.rst, `KVM_REGISTER_COALESCED_MMIO`). When the ring is full, writes
//! are exits as ever. Only the kernel adds to the ring: what a guest chooses is address, length and
//! value of an entry, within the ports that were asked for.

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
/// Of one access to ports.
const MOST_BYTES: usize = 4;

/// Writes of a VM that its vCPUs did not come out for.
#[derive(Debug)]
pub struct LateWrites {
    ring: Ring,
    vm: Arc<Vm>,
}

impl LateWrites {
    /// The ring of `vm`, which `vcpu` is one of. `None` where KVM has none for ports.
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

    /// Lets writes to `count` ports from `first` on, of any length within these, go to the ring.
    ///
    /// # Errors
    /// The kernel's; writes are exits then.
    pub fn begin(&self, first: u16, count: u16) -> Result<(), KvmError> {
        let address = IoEventAddress::Pio(u64::from(first));
        self.vm
            .fd()
            .register_coalesced_mmio(address, u32::from(count))
            .map_err(KvmError::ioctl("KVM_REGISTER_COALESCED_MMIO"))
    }

    /// Undoes [`Self::begin`]. What is in the ring stays there.
    ///
    /// # Errors
    /// The kernel's; none is expected.
    pub fn end(&self, first: u16, count: u16) -> Result<(), KvmError> {
        let address = IoEventAddress::Pio(u64::from(first));
        self.vm
            .fd()
            .unregister_coalesced_mmio(address, u32::from(count))
            .map_err(KvmError::ioctl("KVM_UNREGISTER_COALESCED_MMIO"))
    }

    /// Carries out all writes so far, in their order, by `write`: port and value. Tells how many there
    /// were. When it returns, those that another thread took meanwhile are carried out as well.
    pub fn carry_out(&self, write: impl FnMut(u16, &[u8])) -> u32 {
        self.ring.carry_out(write)
    }
}

/// The page that has them.
#[derive(Debug)]
struct Ring {
    page: NonNull<kvm_coalesced_mmio_ring>,
    /// Held by who takes entries, until they are carried out.
    taker: Mutex<()>,
}

// SAFETY: the page is a mapping of its own, of no thread. Its indexes are only used as atomics, and its
// entries only by the holder of `taker`.
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
        let taker = Mutex::new(());
        Ok(Self { page, taker })
    }

    fn carry_out(&self, mut write: impl FnMut(u16, &[u8])) -> u32 {
        if self.first().load(Ordering::Acquire) == self.last().load(Ordering::Acquire) {
            return 0;
        }
        let _taker = self.taker.lock().unwrap_or_else(PoisonError::into_inner);
        // A guest that writes on and on from another vCPU is not waited for.
        for taken in 0..ENTRIES {
            let first = self.first().load(Ordering::Acquire) % ENTRIES;
            if first == self.last().load(Ordering::Acquire) % ENTRIES {
                return taken;
            }
            let entry = self.entry(first);
            if let Some((port, bytes)) = port_write(&entry) {
                write(port, bytes);
            }
            // Not before: an empty ring means that everything is carried out.
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
    fn entries_that_no_port_write_makes_are_none() {
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
    fn takers_at_once_carry_out_every_write_in_its_order() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE_BYTES as u64).unwrap();
        let ring = Ring::map(&file, 0).unwrap();
        // The last value that was carried out.
        let done = AtomicU32::new(0);
        let take = || {
            ring.carry_out(|port, value| {
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
                    // Whatever others do: what was written before is carried out now.
                    take();
                    assert!(done.load(Ordering::SeqCst) >= value);
                }
            }
        });
        assert_eq!(take(), 0);
    }
}
