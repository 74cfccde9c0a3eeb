//! vhost-net: the kernel moves packets between a tap and the rings of a guest by itself
//! (`linux/vhost.h`).
//!
//! ```text
//! adopt -> set_features, set_memory, set_log -> start_ring (x2) -> set_backend (x2)
//!               ^                                                        |
//!               +--------------- stop_ring (x2) <------------------------+
//! ```

mod abi;
mod error;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};
use vmm_memory::{GuestRam, KernelLog};

use self::abi::{
    LOG_RING, MAX_REGIONS, MemoryRegion, MemoryTable, RingAddresses, RingFile, RingState,
};
pub use self::error::VhostError;

/// `VHOST_F_LOG_ALL`: writes to guest memory are logged.
pub const LOG_ALL: u64 = 1 << 26;

/// Receive and transmit, as vhost numbers them.
pub const RINGS: u32 = 2;

/// Where a ring is and how far, in guest-physical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Number of descriptors.
    pub size: u16,
    /// Descriptor table.
    pub descriptors: u64,
    /// Available ring.
    pub avail: u64,
    /// Used ring.
    pub used: u64,
    /// Chains taken so far, modulo 65,536.
    pub next_avail: u16,
}

/// A vhost-net instance: it serves one pair of rings.
#[derive(Debug)]
pub struct VhostNet {
    file: File,
    /// What the kernel writes while a ring has a backend.
    memory: Option<Arc<GuestRam>>,
    log: Option<Arc<KernelLog>>,
}

impl VhostNet {
    /// Takes over `/dev/vhost-net`, opened for reading and writing and used by nobody yet, for this
    /// process.
    ///
    /// # Errors
    /// It is something else, somebody's already, or lacks one of the features `needed`.
    pub fn adopt(descriptor: OwnedFd, needed: u64) -> Result<Self, VhostError> {
        let file = File::from(descriptor);
        let has = abi::get_features(&file)?;
        if has & needed != needed {
            return Err(VhostError::Features { has, needed });
        }
        abi::set_owner(&file)?;
        Ok(Self {
            file,
            memory: None,
            log: None,
        })
    }

    /// Sets the features agreed on, with [`LOG_ALL`] or without.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_features(&self, features: u64) -> Result<(), VhostError> {
        abi::set_features(&self.file, features)
    }

    /// Hands guest memory to the kernel. No ring is started.
    ///
    /// # Errors
    /// There are too many regions, or the kernel refuses.
    pub fn set_memory(&mut self, memory: &Arc<GuestRam>) -> Result<(), VhostError> {
        let mut table = MemoryTable::default();
        for region in memory.iter() {
            let next = table
                .regions
                .get_mut(usize::try_from(table.count).unwrap_or(MAX_REGIONS));
            let next = next.ok_or(VhostError::Memory("so many regions of memory"))?;
            *next = MemoryRegion {
                guest_address: region.start_addr().0,
                bytes: region.len(),
                user_address: region.as_ptr() as u64,
                padding: 0,
            };
            table.count += 1;
        }
        // SAFETY: the ranges are mappings of `memory`, which `self` keeps as long as the kernel may
        // write to them: until all backends are gone, at the latest when `self` is dropped.
        unsafe { abi::set_memory_table(&self.file, &table) }?;
        self.memory = Some(Arc::clone(memory));
        Ok(())
    }

    /// Has what the kernel writes marked in `log`, if the features say that writes are logged.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_log(&mut self, log: &Arc<KernelLog>) -> Result<(), VhostError> {
        // SAFETY: the log has a bit for every page of guest memory; `self` keeps it as it keeps the
        // memory itself, and it is made of atomics, which may change at any time.
        unsafe { abi::set_log_base(&self.file, log.words().as_ptr() as u64) }?;
        self.log = Some(Arc::clone(log));
        Ok(())
    }

    /// Prepares a ring: it begins when it gets a backend.
    ///
    /// # Errors
    /// The ring is not in the memory that was handed over, or the kernel refuses.
    pub fn start_ring(
        &self,
        index: u32,
        ring: &Ring,
        kick: &impl AsRawFd,
        is_logged: bool,
    ) -> Result<(), VhostError> {
        let state = |value: u16| RingState {
            index,
            value: value.into(),
        };
        abi::set_ring_size(&self.file, &state(ring.size))?;
        abi::set_ring_base(&self.file, &state(ring.next_avail))?;
        let addresses = RingAddresses {
            index,
            flags: if is_logged { LOG_RING } else { 0 },
            descriptors: self.user_address(ring.descriptors)?,
            used: self.user_address(ring.used)?,
            avail: self.user_address(ring.avail)?,
            log: ring.used,
        };
        // SAFETY: the kernel checks that the rings are in the memory that it was handed, all of which
        // is guest memory that `self` keeps.
        unsafe { abi::set_ring_addresses(&self.file, &addresses) }?;
        abi::set_ring_kick(&self.file, &file_of(index, Some(kick.as_raw_fd())))
    }

    /// Says where the interrupts of a ring go; `None`: nowhere.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_call<F: AsRawFd>(&self, index: u32, call: Option<&F>) -> Result<(), VhostError> {
        let call = call.map(AsRawFd::as_raw_fd);
        abi::set_ring_call(&self.file, &file_of(index, call))
    }

    /// Sets the event by which the kernel reports that a ring is broken.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_error<F: AsRawFd>(&self, index: u32, error: &F) -> Result<(), VhostError> {
        abi::set_ring_error(&self.file, &file_of(index, Some(error.as_raw_fd())))
    }

    /// Connects a ring with a tap, and so starts it, or disconnects it: then nothing of it is in
    /// flight any more.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_backend<F: AsRawFd>(&self, index: u32, tap: Option<&F>) -> Result<(), VhostError> {
        let tap = tap.map(AsRawFd::as_raw_fd);
        abi::set_backend(&self.file, &file_of(index, tap))
    }

    /// Disconnects a ring; returns how many chains were taken so far, modulo 65,536.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop_ring(&self, index: u32) -> Result<u16, VhostError> {
        self.set_backend::<OwnedFd>(index, None)?;
        let mut state = RingState { index, value: 0 };
        abi::get_ring_base(&self.file, &mut state)?;
        u16::try_from(state.value).map_err(|_| VhostError::Memory("such a position of a ring"))
    }

    fn user_address(&self, address: u64) -> Result<u64, VhostError> {
        let outside = || VhostError::Memory("a ring outside of guest memory");
        let memory = self.memory.as_ref().ok_or_else(outside)?;
        let slice = memory
            .get_slice(GuestAddress(address), 1)
            .map_err(|_| outside())?;
        Ok(slice.ptr_guard_mut().as_ptr() as u64)
    }
}

impl Drop for VhostNet {
    /// Another copy of the descriptor would keep the kernel at work on memory that is about to go.
    fn drop(&mut self) {
        for index in 0..RINGS {
            // Fails where there is nothing to stop.
            self.set_backend::<OwnedFd>(index, None).unwrap_or_default();
        }
    }
}

/// How far a used ring is, as the driver sees it.
///
/// # Errors
/// The ring is not in guest memory.
pub fn used_index(memory: &GuestRam, used: u64) -> Result<u16, VhostError> {
    let outside = || VhostError::Memory("a ring outside of guest memory");
    let address = used.checked_add(2).ok_or_else(outside)?;
    let index: u16 = memory
        .read_obj(GuestAddress(address))
        .map_err(|_| outside())?;
    Ok(u16::from_le(index))
}

fn file_of(index: u32, descriptor: Option<RawFd>) -> RingFile {
    RingFile {
        index,
        descriptor: descriptor.unwrap_or(-1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> File {
        let mut options = File::options();
        options.read(true).write(true).open("/dev/null").unwrap()
    }

    #[test]
    fn what_is_no_vhost_is_refused() {
        for file in [null(), tempfile::tempfile().unwrap()] {
            let error = VhostNet::adopt(file.into(), 0).unwrap_err();
            let call = "VHOST_GET_FEATURES";
            assert!(
                matches!(error, VhostError::Call { call: c, .. } if c == call),
                "{error}"
            );
        }
    }

    #[test]
    fn the_index_of_a_used_ring_is_where_the_driver_reads_it() {
        let ranges = [(GuestAddress(0), 0x10000)];
        let memory = GuestRam::from_ranges(&ranges).unwrap();
        memory
            .write_obj(0x1234u16.to_le(), GuestAddress(0x102))
            .unwrap();
        assert_eq!(used_index(&memory, 0x100).unwrap(), 0x1234);
        used_index(&memory, 0xffff).unwrap_err();
        used_index(&memory, u64::MAX).unwrap_err();
    }

    #[test]
    fn a_real_one_takes_a_ring_and_gives_it_back() {
        let opened = File::options()
            .read(true)
            .write(true)
            .open("/dev/vhost-net");
        let Ok(file) = opened else {
            test_skip::report("/dev/vhost-net cannot be opened");
            return;
        };
        let needed = LOG_ALL | 1 << 32;
        let mut vhost = VhostNet::adopt(file.into(), needed).unwrap();
        vhost.set_features(1 << 32).unwrap();
        let ranges = [(GuestAddress(0), 0x10000)];
        let memory = Arc::new(GuestRam::from_ranges(&ranges).unwrap());
        vhost.set_memory(&memory).unwrap();
        let ring = Ring {
            size: 16,
            descriptors: 0x1000,
            avail: 0x2000,
            used: 0x3000,
            next_avail: 5,
        };
        for index in 0..RINGS {
            vhost.start_ring(index, &ring, &null(), false).unwrap_err();
            assert_eq!(vhost.stop_ring(index).unwrap(), 5);
        }
    }
}
