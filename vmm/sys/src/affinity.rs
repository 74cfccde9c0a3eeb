//! On which of the host's CPUs threads run.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// One more than the largest number of a CPU that a kernel can be built for (`NR_CPUS` on x86).
pub const MAX_HOST_CPUS: u32 = 8192;

const WORD_BITS: usize = libc::c_ulong::BITS as usize;
const WORDS: usize = MAX_HOST_CPUS as usize / WORD_BITS;

/// CPUs of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<u32>);

/// As system calls take it.
type Mask = [libc::c_ulong; WORDS];

impl CpuSet {
    /// A set of CPUs; `None` when a number is not below [`MAX_HOST_CPUS`].
    pub fn new(cpus: impl IntoIterator<Item = u32>) -> Option<Self> {
        let cpus: BTreeSet<u32> = cpus.into_iter().collect();
        let fits = cpus.last().is_none_or(|last| *last < MAX_HOST_CPUS);
        fits.then_some(Self(cpus))
    }

    /// Whether there is none in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of CPUs in the set.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    fn mask(&self) -> Mask {
        let mut mask = [0; WORDS];
        for cpu in &self.0 {
            let cpu = *cpu as usize;
            if let Some(word) = mask.get_mut(cpu / WORD_BITS) {
                *word |= 1 << (cpu % WORD_BITS);
            }
        }
        mask
    }

    fn of_mask(mask: &Mask) -> Self {
        let is_set = |cpu: &u32| {
            let cpu = *cpu as usize;
            let word = mask.get(cpu / WORD_BITS).copied().unwrap_or(0);
            word >> (cpu % WORD_BITS) & 1 != 0
        };
        Self((0..MAX_HOST_CPUS).filter(is_set).collect())
    }
}

/// CPUs as Linux lists them, such as `0-3,8`.
impl std::fmt::Display for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rest = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| *next == last + 1) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

/// Where the calling thread may run.
///
/// # Errors
/// The kernel's; it may have been built for more CPUs than [`MAX_HOST_CPUS`].
pub fn of_this_thread() -> io::Result<CpuSet> {
    let mut mask: Mask = [0; WORDS];
    // SAFETY: the kernel writes at most the size that it is given; 0 is the calling thread.
    let result =
        unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    if result == 0 {
        Ok(CpuSet::of_mask(&mask))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Has the calling thread, and those that it starts from now on, run on `cpus` only.
///
/// # Errors
/// `EINVAL` when the host has none of them or this process may use none (its cgroup's cpuset).
pub fn pin_this_thread(cpus: &CpuSet) -> io::Result<()> {
    let mask = cpus.mask();
    // SAFETY: the kernel reads no more than the size that it is given.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Has a thread run on `cpus` only.
///
/// # Errors
/// As of [`pin_this_thread`].
pub fn pin<T>(thread: &JoinHandle<T>, cpus: &CpuSet) -> io::Result<()> {
    let mask = cpus.mask();
    // SAFETY: whoever holds the handle keeps the thread's id valid, even after its end; the kernel
    // reads no more of the mask than the size that it is given.
    let result = unsafe {
        libc::pthread_setaffinity_np(
            thread.as_pthread_t(),
            size_of_val(&mask),
            mask.as_ptr().cast(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[u32]) -> CpuSet {
        CpuSet::new(cpus.iter().copied()).unwrap()
    }

    #[test]
    fn sets_are_listed_as_linux_does() {
        assert_eq!(set(&[]).to_string(), "");
        assert_eq!(set(&[7]).to_string(), "7");
        assert_eq!(set(&[5, 1, 0, 2, 9, 8]).to_string(), "0-2,5,8-9");
        assert_eq!(CpuSet::new([0, MAX_HOST_CPUS]), None);
        let last = set(&[0, 63, 64, MAX_HOST_CPUS - 1]);
        assert_eq!(CpuSet::of_mask(&last.mask()), last);
    }

    #[allow(clippy::disallowed_methods, reason = "threads of a test, not of a VMM")]
    #[test]
    fn threads_run_where_they_are_put() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let allowed = of_this_thread().unwrap();
        let one = set(&[allowed.iter().last().unwrap()]);
        let thread = std::thread::spawn(move || {
            // Until it is put somewhere.
            held.recv().ok();
            let inherited = std::thread::spawn(|| of_this_thread().unwrap());
            (of_this_thread().unwrap(), inherited.join().unwrap())
        });
        pin(&thread, &one).unwrap();
        drop(hold);
        assert_eq!(thread.join().unwrap(), (one.clone(), one.clone()));
        let pinned = std::thread::spawn(move || {
            pin_this_thread(&one).unwrap();
            of_this_thread().unwrap() == one
        });
        assert!(pinned.join().unwrap());
    }

    #[test]
    fn cpus_that_the_host_does_not_have_are_refused() {
        let refused = pin_this_thread(&set(&[MAX_HOST_CPUS - 1])).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        assert!(pin_this_thread(&set(&[])).is_err());
    }
}
