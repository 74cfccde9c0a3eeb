//! Structures and calls of `linux/vhost.h`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use super::error::VhostError;

/// Most regions that are handed over; the kernel takes 64 by default.
pub(super) const MAX_REGIONS: usize = 32;

/// `VHOST_VRING_F_LOG`: writes to the used ring are logged.
pub(super) const LOG_RING: u32 = 1;

/// `struct vhost_memory_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryRegion {
    pub(super) guest_address: u64,
    pub(super) bytes: u64,
    pub(super) user_address: u64,
    pub(super) padding: u64,
}

/// `struct vhost_memory` with its regions.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryTable {
    pub(super) count: u32,
    pub(super) padding: u32,
    pub(super) regions: [MemoryRegion; MAX_REGIONS],
}

/// `struct vhost_vring_state`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RingState {
    pub(super) index: u32,
    pub(super) value: u32,
}

/// `struct vhost_vring_file`; -1 is no descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RingFile {
    pub(super) index: u32,
    pub(super) descriptor: RawFd,
}

/// `struct vhost_vring_addr`: addresses of this process, but for `log`, which is the guest's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RingAddresses {
    pub(super) index: u32,
    pub(super) flags: u32,
    pub(super) descriptors: u64,
    pub(super) used: u64,
    pub(super) avail: u64,
    pub(super) log: u64,
}

/// A call's name and number.
type Call = (&'static str, libc::c_ulong);

const GET_FEATURES: Call = ("VHOST_GET_FEATURES", 0x8008_af00);
const SET_FEATURES: Call = ("VHOST_SET_FEATURES", 0x4008_af00);
const SET_OWNER: Call = ("VHOST_SET_OWNER", 0xaf01);
const SET_MEM_TABLE: Call = ("VHOST_SET_MEM_TABLE", 0x4008_af03);
const SET_LOG_BASE: Call = ("VHOST_SET_LOG_BASE", 0x4008_af04);
const SET_VRING_NUM: Call = ("VHOST_SET_VRING_NUM", 0x4008_af10);
const SET_VRING_ADDR: Call = ("VHOST_SET_VRING_ADDR", 0x4028_af11);
const SET_VRING_BASE: Call = ("VHOST_SET_VRING_BASE", 0x4008_af12);
const GET_VRING_BASE: Call = ("VHOST_GET_VRING_BASE", 0xc008_af12);
const SET_VRING_KICK: Call = ("VHOST_SET_VRING_KICK", 0x4008_af20);
const SET_VRING_CALL: Call = ("VHOST_SET_VRING_CALL", 0x4008_af21);
const SET_VRING_ERR: Call = ("VHOST_SET_VRING_ERR", 0x4008_af22);
const NET_SET_BACKEND: Call = ("VHOST_NET_SET_BACKEND", 0x4008_af30);

pub(super) fn get_features(file: &File) -> Result<u64, VhostError> {
    let mut features = 0u64;
    // SAFETY: VHOST_GET_FEATURES writes one u64.
    unsafe { call(file, GET_FEATURES, &raw mut features) }?;
    Ok(features)
}

pub(super) fn set_features(file: &File, features: u64) -> Result<(), VhostError> {
    // SAFETY: VHOST_SET_FEATURES reads one u64.
    unsafe { call(file, SET_FEATURES, &raw const features) }
}

pub(super) fn set_owner(file: &File) -> Result<(), VhostError> {
    // SAFETY: VHOST_SET_OWNER has no argument.
    unsafe { call(file, SET_OWNER, std::ptr::null::<u8>()) }
}

/// # Safety
/// The regions stay mapped as long as a ring has a backend, and nothing in them is referred to by
/// Rust.
pub(super) unsafe fn set_memory_table(file: &File, table: &MemoryTable) -> Result<(), VhostError> {
    // SAFETY: VHOST_SET_MEM_TABLE reads the table up to `count`, which is within the array; what it
    // does with the regions is the caller's promise.
    unsafe { call(file, SET_MEM_TABLE, &raw const *table) }
}

/// # Safety
/// There is a bit for every page of guest memory at `base`, as long as a ring has a backend.
pub(super) unsafe fn set_log_base(file: &File, base: u64) -> Result<(), VhostError> {
    // SAFETY: VHOST_SET_LOG_BASE reads one u64; what is there is the caller's promise.
    unsafe { call(file, SET_LOG_BASE, &raw const base) }
}

pub(super) fn set_ring_size(file: &File, state: &RingState) -> Result<(), VhostError> {
    // SAFETY: VHOST_SET_VRING_NUM reads one struct vhost_vring_state.
    unsafe { call(file, SET_VRING_NUM, &raw const *state) }
}

pub(super) fn set_ring_base(file: &File, state: &RingState) -> Result<(), VhostError> {
    // SAFETY: VHOST_SET_VRING_BASE reads one struct vhost_vring_state.
    unsafe { call(file, SET_VRING_BASE, &raw const *state) }
}

pub(super) fn get_ring_base(file: &File, state: &mut RingState) -> Result<(), VhostError> {
    // SAFETY: VHOST_GET_VRING_BASE reads and writes one struct vhost_vring_state.
    unsafe { call(file, GET_VRING_BASE, &raw mut *state) }
}

/// # Safety
/// The addresses are of guest memory that was handed over by [`set_memory_table`].
pub(super) unsafe fn set_ring_addresses(
    file: &File,
    addresses: &RingAddresses,
) -> Result<(), VhostError> {
    // SAFETY: VHOST_SET_VRING_ADDR reads one struct vhost_vring_addr; what is there is the caller's
    // promise.
    unsafe { call(file, SET_VRING_ADDR, &raw const *addresses) }
}

pub(super) fn set_ring_kick(file: &File, kick: &RingFile) -> Result<(), VhostError> {
    // SAFETY: VHOST_SET_VRING_KICK reads one struct vhost_vring_file.
    unsafe { call(file, SET_VRING_KICK, &raw const *kick) }
}

pub(super) fn set_ring_call(file: &File, target: &RingFile) -> Result<(), VhostError> {
    // SAFETY: VHOST_SET_VRING_CALL reads one struct vhost_vring_file.
    unsafe { call(file, SET_VRING_CALL, &raw const *target) }
}

pub(super) fn set_ring_error(file: &File, target: &RingFile) -> Result<(), VhostError> {
    // SAFETY: VHOST_SET_VRING_ERR reads one struct vhost_vring_file.
    unsafe { call(file, SET_VRING_ERR, &raw const *target) }
}

pub(super) fn set_backend(file: &File, backend: &RingFile) -> Result<(), VhostError> {
    // SAFETY: VHOST_NET_SET_BACKEND reads one struct vhost_vring_file.
    unsafe { call(file, NET_SET_BACKEND, &raw const *backend) }
}

/// # Safety
/// `argument` is what the call wants.
unsafe fn call<T>(file: &File, (name, number): Call, argument: *const T) -> Result<(), VhostError> {
    // SAFETY: the caller's promise.
    if unsafe { libc::ioctl(file.as_raw_fd(), number, argument) } < 0 {
        let source = io::Error::last_os_error();
        return Err(VhostError::Call { call: name, source });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn structures_are_as_the_kernel_has_them() {
        assert_eq!(size_of::<MemoryRegion>(), 32);
        assert_eq!(offset_of!(MemoryRegion, user_address), 16);
        assert_eq!(offset_of!(MemoryTable, regions), 8);
        assert_eq!(size_of::<MemoryTable>(), 8 + 32 * MAX_REGIONS);
        assert_eq!(size_of::<RingState>(), 8);
        assert_eq!(size_of::<RingFile>(), 8);
        assert_eq!(size_of::<RingAddresses>(), 40);
        assert_eq!(offset_of!(RingAddresses, descriptors), 8);
        assert_eq!(offset_of!(RingAddresses, used), 16);
        assert_eq!(offset_of!(RingAddresses, avail), 24);
        assert_eq!(offset_of!(RingAddresses, log), 32);
    }

    #[test]
    fn numbers_say_how_long_their_arguments_are() {
        // Bits 16 to 29 of an ioctl's number (asm-generic/ioctl.h).
        let bytes = |(_, number): Call| usize::try_from(number >> 16 & 0x3fff).unwrap();
        assert_eq!(bytes(SET_OWNER), 0);
        assert_eq!(bytes(SET_VRING_ADDR), size_of::<RingAddresses>());
        // Of the table, only what is before the regions counts.
        assert_eq!(bytes(SET_MEM_TABLE), offset_of!(MemoryTable, regions));
        for state in [SET_VRING_NUM, SET_VRING_BASE, GET_VRING_BASE] {
            assert_eq!(bytes(state), size_of::<RingState>());
        }
        for file in [
            SET_VRING_KICK,
            SET_VRING_CALL,
            SET_VRING_ERR,
            NET_SET_BACKEND,
        ] {
            assert_eq!(bytes(file), size_of::<RingFile>());
        }
        for features in [GET_FEATURES, SET_FEATURES, SET_LOG_BASE] {
            assert_eq!(bytes(features), size_of::<u64>());
        }
    }
}
