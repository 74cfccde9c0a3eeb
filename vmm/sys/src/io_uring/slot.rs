//! One request's place, and the parts of guest memory that it moves.

use ::io_uring::{opcode, squeue};
use vm_memory::{GuestAddress, GuestMemory, Permissions};
use vmm_memory::GuestRam;

use super::transfer::{BASE, FILE, Transfer};

/// The kernel's `UIO_MAXIOV`: most parts of one transfer.
const MAX_PARTS: usize = 1024;

/// A range of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Guest-physical address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// A request was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// A range is not all RAM.
    #[error("a range is not in guest memory")]
    NotRam,
    /// More parts than one transfer takes.
    #[error("more than {MAX_PARTS} parts")]
    TooManyParts,
    /// The slot does not exist or is in use.
    #[error("the slot is in use")]
    Busy,
    /// The queue is full.
    #[error("the submission queue is full")]
    Full,
}

/// Memory of one request that the kernel reads while it is under way.
#[derive(Default)]
pub(super) struct Slot {
    /// The kernel may look at `parts`.
    pub(super) busy: bool,
    parts: Vec<libc::iovec>,
}

impl Slot {
    /// Finds out where `ranges` are mapped.
    pub(super) fn fill(
        &mut self,
        memory: &GuestRam,
        ranges: impl Iterator<Item = Range>,
    ) -> Result<(), PushError> {
        self.parts.clear();
        for range in ranges {
            let count = usize::try_from(range.bytes).map_err(|_| PushError::NotRam)?;
            if range.address.checked_add(u64::from(range.bytes)).is_none() {
                return Err(PushError::NotRam);
            }
            let address = GuestAddress(range.address);
            let slices = memory
                .get_slices(address, count, Permissions::ReadWrite)
                .map_err(|_| PushError::NotRam)?;
            for slice in slices {
                let slice = slice.map_err(|_| PushError::NotRam)?;
                if self.parts.len() >= MAX_PARTS {
                    return Err(PushError::TooManyParts);
                }
                self.parts.push(libc::iovec {
                    iov_base: slice.ptr_guard_mut().as_ptr().cast(),
                    iov_len: slice.len(),
                });
            }
        }
        Ok(())
    }

    /// The entry that moves the parts.
    pub(super) fn entry(&self, transfer: Transfer, offset: u64) -> squeue::Entry {
        let file = match transfer {
            Transfer::Read | Transfer::Write => FILE,
            Transfer::ReadBase => BASE,
        };
        // One part needs no vector for the kernel to import.
        if let [part] = self.parts.as_slice()
            && let Ok(length) = u32::try_from(part.iov_len)
        {
            let base = part.iov_base.cast::<u8>();
            return match transfer {
                Transfer::Read | Transfer::ReadBase => {
                    opcode::Read::new(file, base, length).offset(offset).build()
                }
                Transfer::Write => opcode::Write::new(file, base, length)
                    .offset(offset)
                    .build(),
            };
        }
        let (parts, count) = (self.parts.as_ptr(), self.parts.len());
        let count = u32::try_from(count).unwrap_or(0);
        match transfer {
            Transfer::Read | Transfer::ReadBase => opcode::Readv::new(file, parts, count)
                .offset(offset)
                .build(),
            Transfer::Write => opcode::Writev::new(file, parts, count)
                .offset(offset)
                .build(),
        }
    }
}
