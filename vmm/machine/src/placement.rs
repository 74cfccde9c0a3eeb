//! On which of the host's CPUs the threads of a machine run.
//!
//! The machine's own thread is pinned once memory is there, and all threads that it starts from then
//! on run where it does, unless they have a place of their own.

use std::collections::BTreeMap;
use std::io;
use std::thread::JoinHandle;

use vmm_sys::affinity::{self, AffinityMask};

/// Where threads are to run. What is left out runs where the process may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// vCPUs, by index.
    pub vcpus: BTreeMap<u32, AffinityMask>,
    /// All threads but vCPUs: the machine's own, those that serve devices, and what they start.
    pub emulator: Option<AffinityMask>,
    /// Threads that serve devices and have a name, where they do not run as the emulator does.
    pub io_threads: BTreeMap<String, AffinityMask>,
}

/// One of the threads that can have a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The thread of a vCPU, by its index.
    Vcpu(u32),
    /// All threads but vCPUs.
    Emulator,
    /// A thread that serves devices.
    IoThread(String),
}

/// A thread cannot run where it is to.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// The host has none of its CPUs, or lets this process use none of them.
    #[error("this process may use none of the CPUs {cpus}; it may use {allowed}")]
    NoCpu {
        /// The thread that was to be pinned.
        thread: Placed,
        /// Where it is to run.
        cpus: AffinityMask,
        /// Where this process runs now.
        allowed: AffinityMask,
    },
    /// The host refuses.
    #[error("threads cannot be pinned")]
    Host(#[source] io::Error),
}

impl Placement {
    fn is_free(&self) -> bool {
        self.vcpus.is_empty() && self.emulator.is_none() && self.io_threads.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = (Placed, &AffinityMask)> {
        let vcpus = self.vcpus.iter();
        let io_threads = self.io_threads.iter();
        vcpus
            .map(|(index, cpus)| (Placed::Vcpu(*index), cpus))
            .chain(self.emulator.iter().map(|cpus| (Placed::Emulator, cpus)))
            .chain(io_threads.map(|(name, cpus)| (Placed::IoThread(name.clone()), cpus)))
    }

    /// Tries all places, so that a wrong one is known before anything is built.
    pub(crate) fn try_all(&self) -> Result<(), PlacementError> {
        if self.is_free() {
            return Ok(());
        }
        let places: Vec<_> = self
            .all()
            .map(|(thread, cpus)| (thread, cpus.clone()))
            .collect();
        // On a thread that ends: nothing is left of it, and it has the filter of whoever starts it.
        #[allow(
            clippy::disallowed_methods,
            reason = "before there is a machine; it does nothing but try"
        )]
        let trial = std::thread::Builder::new()
            .name("placement".to_owned())
            .stack_size(64 << 10)
            .spawn(move || try_each(places))
            .map_err(PlacementError::Host)?;
        trial
            .join()
            .unwrap_or_else(|_| Err(PlacementError::Host(io::ErrorKind::Other.into())))
    }

    /// Pins the calling thread, one of the emulator's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pin_emulator(&self) -> io::Result<()> {
        self.emulator
            .as_ref()
            .map_or(Ok(()), affinity::pin_this_thread)
    }

    /// Pins the thread that builds the machine, and so those that it starts; says where it ran before,
    /// if it is pinned.
    pub(crate) fn pin_builder(&self) -> Result<Option<AffinityMask>, PlacementError> {
        if self.emulator.is_none() {
            return Ok(None);
        }
        let free = affinity::of_this_thread().map_err(PlacementError::Host)?;
        self.pin_emulator().map_err(PlacementError::Host)?;
        Ok(Some(free))
    }

    /// Pins a vCPU's thread, which was started by one of the emulator's; `free` is where those
    /// without a place run.
    pub(crate) fn pin_vcpu<T>(
        &self,
        thread: &JoinHandle<T>,
        index: u32,
        free: Option<&AffinityMask>,
    ) -> io::Result<()> {
        let cpus = self.vcpus.get(&index).or(free);
        cpus.map_or(Ok(()), |cpus| affinity::pin(thread, cpus))
    }

    /// Pins a thread that serves devices.
    pub(crate) fn pin_io_thread<T>(&self, thread: &JoinHandle<T>, name: &str) -> io::Result<()> {
        let cpus = self.io_threads.get(name);
        cpus.map_or(Ok(()), |cpus| affinity::pin(thread, cpus))
    }
}

fn try_each(places: Vec<(Placed, AffinityMask)>) -> Result<(), PlacementError> {
    let allowed = affinity::of_this_thread().map_err(PlacementError::Host)?;
    for (thread, cpus) in places {
        match affinity::pin_this_thread(&cpus) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(PlacementError::NoCpu {
                    thread,
                    cpus,
                    allowed,
                });
            }
            Err(error) => return Err(PlacementError::Host(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use vmm_sys::affinity::MAX_HOST_CPUS;

    use super::*;

    #[test]
    fn a_place_without_a_cpu_is_known_beforehand_and_nothing_has_moved() {
        let before = affinity::of_this_thread().unwrap();
        let first = AffinityMask::new(before.iter().take(1)).unwrap();
        let nowhere = AffinityMask::new([MAX_HOST_CPUS - 1]).unwrap();
        let mut placement = Placement {
            vcpus: BTreeMap::from([(0, first.clone())]),
            emulator: Some(first),
            io_threads: BTreeMap::new(),
        };
        placement.try_all().unwrap();
        placement.io_threads.insert("disk".to_owned(), nowhere);
        let refused = placement.try_all().unwrap_err();
        let PlacementError::NoCpu { thread, .. } = &refused else {
            panic!("{refused:?}");
        };
        assert_eq!(*thread, Placed::IoThread("disk".to_owned()));
        assert_eq!(affinity::of_this_thread().unwrap(), before);
    }
}
