//! io_uring over one file, or a file and one under it, and guest memory, for threads that come one at a time.
//!
//! A [`GuestRing`] has as many slots as requests may be in flight. A request names its slot, the
//! ranges of guest memory it moves and the place in the file; its completion names the slot. The
//! ring keeps what the kernel may still look at: guest memory, by a reference of its own, and each
//! slot's vector of parts. A ring that is dropped waits for what is in flight, and leaks the memory
//! rather than unmap it while the kernel uses it.
//!
//! **Restrictions.** What a ring does goes past seccomp, so the kernel itself holds each ring to what a disk
//! needs: the opcodes of `OPCODES`, on the registered files, and no registration after the start. Code
//! that an attacker brings cannot have such a ring open a file or a socket.
//!
//! **Threads.** A virtio device is activated and reset by vCPU threads, served by the device
//! thread and brought to rest by the machine thread, one at a time. `SINGLE_ISSUER` and
//! `DEFER_TASKRUN` bind a ring to one task, which that rules out; `COOP_TASKRUN` (Linux 5.19) is
//! used where the kernel has it: completions interrupt nobody, they wait for the submitter's next
//! system call, and wake it from one that sleeps.

mod slot;
mod transfer;

#[cfg(test)]
mod tests;

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use ::io_uring::register::Restriction;
use ::io_uring::types::{CancelBuilder, FsyncFlags, SubmitArgs, Timespec};
use ::io_uring::{IoUring, opcode, squeue};
use vmm_memory::GuestRam;

use self::slot::Slot;
pub use self::slot::{PushError, Range};
use self::transfer::FILE;
pub use self::transfer::Transfer;

/// All that a ring carries out.
const OPCODES: [u8; 8] = [
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Readv::CODE,
    opcode::Writev::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
    opcode::AsyncCancel2::CODE,
    opcode::Nop::CODE,
];
/// Names of entries that are no requests.
const PROBE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;
/// How long a ring that is dropped waits for what is in flight.
const FAREWELL: Duration = Duration::from_secs(1);

/// A ring could not be made: the kernel has none, or may not give it.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// More slots than entries can be.
    #[error("{0} slots are not possible, 1 to 4096 are")]
    Slots(usize),
    /// The kernel is older than 5.11.
    #[error("the kernel cannot wait for completions with a time limit")]
    TooOld,
    /// A system call failed.
    #[error("{call} failed")]
    System {
        /// Name of the system call.
        call: &'static str,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// A request that has ended.
#[derive(Debug)]
pub struct Completion {
    /// The slot, which is free again.
    pub slot: usize,
    /// Bytes moved, or what went wrong.
    pub result: io::Result<u32>,
}

/// A ring; see the module.
pub struct GuestRing {
    ring: IoUring,
    memory: ManuallyDrop<Arc<GuestRam>>,
    slots: ManuallyDrop<Vec<Slot>>,
    in_flight: usize,
}

// SAFETY: what is not Send are the addresses in the slots' vectors. They are of guest memory, which
// all threads may access and `memory` keeps mapped.
unsafe impl Send for GuestRing {}

impl GuestRing {
    /// A ring with `slots` slots on `file`, and on `base`, which is only read; the ring keeps both open.
    /// `completed`, an eventfd, is written whenever requests end.
    ///
    /// # Errors
    /// The kernel has no io_uring, it is forbidden to this process, or resources are missing.
    pub fn new(
        slots: usize,
        memory: Arc<GuestRam>,
        (file, base): (&impl AsFd, Option<&impl AsFd>),
        completed: &impl AsRawFd,
    ) -> Result<Self, RingError> {
        let entries = u32::try_from(slots)
            .ok()
            .filter(|entries| (1..=4096).contains(entries))
            .ok_or(RingError::Slots(slots))?;
        let mut ring = build(entries)?;
        if !ring.params().is_feature_ext_arg() {
            return Err(RingError::TooOld);
        }
        let mut files = vec![file.as_fd().as_raw_fd()];
        files.extend(base.map(|base| base.as_fd().as_raw_fd()));
        let submitter = ring.submitter();
        submitter
            .register_files(&files)
            .map_err(failed("io_uring_register(FILES)"))?;
        submitter
            .register_eventfd(completed.as_raw_fd())
            .map_err(failed("io_uring_register(EVENTFD)"))?;
        restrict(&ring)?;
        probe(&mut ring)?;
        Ok(Self {
            ring,
            memory: ManuallyDrop::new(memory),
            slots: ManuallyDrop::new((0..slots).map(|_| Slot::default()).collect()),
            in_flight: 0,
        })
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Moves bytes between the file at `offset` and `ranges`, in order. Nothing happens before
    /// [`submit`](Self::submit).
    ///
    /// # Errors
    /// The ranges are not all RAM or too many, or the slot is in use. Nothing is queued.
    pub fn transfer(
        &mut self,
        slot: usize,
        transfer: Transfer,
        ranges: impl Iterator<Item = Range>,
        offset: u64,
    ) -> Result<(), PushError> {
        let state = free(&mut self.slots, slot)?;
        state.fill(&self.memory, ranges)?;
        let entry = state.entry(transfer, offset);
        self.push(slot, entry)
    }

    /// Makes all data written so far durable (`fdatasync`).
    ///
    /// # Errors
    /// The slot is in use. Nothing is queued.
    pub fn sync(&mut self, slot: usize) -> Result<(), PushError> {
        free(&mut self.slots, slot)?;
        let entry = opcode::Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build();
        self.push(slot, entry)
    }

    /// `fallocate(2)` of `bytes` at `offset`, with `mode` as in [`crate::image`].
    ///
    /// # Errors
    /// The slot is in use. Nothing is queued.
    pub fn allocate(
        &mut self,
        slot: usize,
        mode: i32,
        offset: u64,
        bytes: u64,
    ) -> Result<(), PushError> {
        free(&mut self.slots, slot)?;
        let entry = opcode::Fallocate::new(FILE, bytes)
            .offset(offset)
            .mode(mode)
            .build();
        self.push(slot, entry)
    }

    fn push(&mut self, slot: usize, entry: squeue::Entry) -> Result<(), PushError> {
        let entry = entry.user_data(slot as u64);
        // SAFETY: the entry's addresses are those of the slot's parts: ranges of guest memory, and
        // the slot's vector, which is neither changed nor freed before the completion.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // There are as many entries as slots, so this is for a ring that does not submit.
        pushed.map_err(|_| PushError::Full)?;
        if let Some(state) = self.slots.get_mut(slot) {
            state.busy = true;
            self.in_flight += 1;
        }
        Ok(())
    }

    /// Gives everything queued to the kernel.
    ///
    /// # Errors
    /// The kernel takes no more now; what is left is for the next call.
    pub fn submit(&mut self) -> io::Result<()> {
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Stops the kernel from signalling the eventfd (`IORING_CQ_EVENTFD_DISABLED`), while the caller polls
    /// the completion queue anyway.
    pub fn disable_notification(&mut self) {
        self.ring.completion().disable_eventfd();
    }

    /// Has the kernel signal the eventfd again. True when completions came meanwhile, possibly unsignalled.
    pub fn enable_notification(&mut self) -> bool {
        self.ring.completion().enable_eventfd();
        // The kernel has a barrier between posting a completion and reading the flag, so either it sees
        // the flag cleared or we see the completion.
        fence(Ordering::SeqCst);
        self.has_completion()
    }

    /// Whether there are requests that have ended.
    pub fn has_completion(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// The next request that has ended.
    pub fn next_completion(&mut self) -> Option<Completion> {
        loop {
            let entry = self.ring.completion().next()?;
            let Ok(slot) = usize::try_from(entry.user_data()) else {
                continue;
            };
            let Some(state) = self.slots.get_mut(slot).filter(|state| state.busy) else {
                continue;
            };
            state.busy = false;
            self.in_flight -= 1;
            let result = u32::try_from(entry.result())
                .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
            return Some(Completion { slot, result });
        }
    }

    /// Waits until a completion is there, at most `limit`.
    ///
    /// # Errors
    /// The kernel takes what is queued no more.
    pub fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let limit = Timespec::from(limit);
        let arguments = SubmitArgs::new().timespec(&limit);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Asks the kernel to give up what is in flight, as far as it can: requests that wait for a
    /// worker can be, those at work on a disk cannot. Each ends with a completion in any case.
    pub fn cancel(&mut self) {
        if self.in_flight == 0 || self.submit().is_err() {
            return;
        }
        let entry = opcode::AsyncCancel2::new(CancelBuilder::any().all())
            .build()
            .flags(squeue::Flags::FIXED_FILE)
            .user_data(CANCEL);
        // SAFETY: the entry has no addresses.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // The kernel's refusal (before Linux 5.19) means that requests take their time.
        if pushed.is_ok() {
            // Nor is a kernel that takes nothing now asked again: what is in flight ends by itself.
            self.submit().unwrap_or_default();
        }
    }
}

impl Drop for GuestRing {
    fn drop(&mut self) {
        let deadline = Instant::now() + FAREWELL;
        self.cancel();
        while self.in_flight > 0 {
            while self.next_completion().is_some() {}
            let left = deadline.saturating_duration_since(Instant::now());
            if self.in_flight == 0 || left.is_zero() || self.wait(left).is_err() {
                break;
            }
        }
        while self.next_completion().is_some() {}
        if self.in_flight == 0 {
            // SAFETY: neither is used again, and nothing is in flight that knows their addresses.
            unsafe {
                ManuallyDrop::drop(&mut self.slots);
                ManuallyDrop::drop(&mut self.memory);
            }
        }
    }
}

fn free(slots: &mut [Slot], slot: usize) -> Result<&mut Slot, PushError> {
    slots
        .get_mut(slot)
        .filter(|state| !state.busy)
        .ok_or(PushError::Busy)
}

fn build(entries: u32) -> Result<IoUring, RingError> {
    let builder = || {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_r_disabled();
        builder
    };
    let cooperative = builder().setup_coop_taskrun().build(entries);
    match cooperative {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => builder().build(entries),
        other => other,
    }
    .map_err(failed("io_uring_setup"))
}

/// Limits a ring for good, and enables it. A kernel without restrictions (before Linux 5.10) has no ring.
fn restrict(ring: &IoUring) -> Result<(), RingError> {
    let mut restrictions: Vec<Restriction> = OPCODES.map(Restriction::sqe_op).into();
    restrictions.push(Restriction::sqe_flags_required(
        squeue::Flags::FIXED_FILE.bits(),
    ));
    let submitter = ring.submitter();
    submitter
        .register_restrictions(&mut restrictions)
        .map_err(failed("io_uring_register(RESTRICTIONS)"))?;
    submitter
        .register_enable_rings()
        .map_err(failed("io_uring_register(ENABLE_RINGS)"))
}

/// Sends one empty request there and back: with a ring that may be made but not entered, everything
/// would wait for ever.
fn probe(ring: &mut IoUring) -> Result<(), RingError> {
    let entry = opcode::Nop::new()
        .build()
        .flags(squeue::Flags::FIXED_FILE)
        .user_data(PROBE);
    // No event for it: nobody waits for this request.
    ring.completion().disable_eventfd();
    // SAFETY: the entry has no addresses.
    let pushed = unsafe { ring.submission().push(&entry) };
    pushed.map_err(|_| RingError::TooOld)?;
    ring.submit_and_wait(1).map_err(failed("io_uring_enter"))?;
    ring.completion().for_each(drop);
    ring.completion().enable_eventfd();
    Ok(())
}

fn failed(call: &'static str) -> impl FnOnce(io::Error) -> RingError {
    move |source| RingError::System { call, source }
}
