//! On which of the host's CPUs threads run.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// One more than the largest number of a CPU that a kernel can be built for (`NR_CPUS` on x86).
pub const MAX_HOST_CPUS: u32 = 8192;

const WORD_BITS: usize = libc::c_ulong::BITS as usize;
const WORDS: usize = MAX_HOST_CPUS as usize / WORD_BITS;

/// CPUs of the host, one bit each, as system calls take them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffinityMask(Box<[libc::c_ulong; WORDS]>);

impl AffinityMask {
    /// That of these CPUs; `None` when a number is not below [`MAX_HOST_CPUS`].
    pub fn new(cpus: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut mask = Box::new([0; WORDS]);
        for cpu in cpus {
            let cpu = usize::try_from(cpu).ok()?;
            *mask.get_mut(cpu / WORD_BITS)? |= 1 << (cpu % WORD_BITS);
        }
        Some(Self(mask))
    }

    /// Number of CPUs in it.
    #[must_use]
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    /// CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(self.0.iter()).flat_map(|(index, word)| {
            let bits = (0..libc::c_ulong::BITS).filter(move |bit| word >> bit & 1 != 0);
            bits.map(move |bit| index * libc::c_ulong::BITS + bit)
        })
    }
}

/// CPUs as Linux lists them, such as `0-3,8`.
impl std::fmt::Display for AffinityMask {
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
pub fn of_this_thread() -> io::Result<AffinityMask> {
    let mut mask = Box::new([0; WORDS]);
    // SAFETY: the kernel writes at most the size that it is given; 0 is the calling thread.
    let result =
        unsafe { libc::sched_getaffinity(0, size_of_val(&*mask), mask.as_mut_ptr().cast()) };
    if result == 0 {
        Ok(AffinityMask(mask))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Has the calling thread, and those that it starts from now on, run on `cpus` only.
///
/// # Errors
/// `EINVAL` when the host has none of them or this process may use none (its cgroup's cpuset).
pub fn pin_this_thread(cpus: &AffinityMask) -> io::Result<()> {
    let AffinityMask(mask) = cpus;
    // SAFETY: the kernel reads no more than the size that it is given.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&**mask), mask.as_ptr().cast()) };
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
pub fn pin<T>(thread: &JoinHandle<T>, cpus: &AffinityMask) -> io::Result<()> {
    let AffinityMask(mask) = cpus;
    // SAFETY: whoever holds the handle keeps the thread's id valid, even after its end; the kernel
    // reads no more of the mask than the size that it is given.
    let result = unsafe {
        libc::pthread_setaffinity_np(
            thread.as_pthread_t(),
            size_of_val(&**mask),
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

    fn set(cpus: &[u32]) -> AffinityMask {
        AffinityMask::new(cpus.iter().copied()).unwrap()
    }

    #[test]
    fn sets_are_listed_as_linux_does() {
        assert_eq!(set(&[]).to_string(), "");
        assert_eq!(set(&[7]).to_string(), "7");
        assert_eq!(set(&[5, 1, 0, 2, 9, 8]).to_string(), "0-2,5,8-9");
        assert_eq!(AffinityMask::new([0, MAX_HOST_CPUS]), None);
        let some = [0, 63, 64, MAX_HOST_CPUS - 1];
        assert!(set(&some).iter().eq(some));
        assert_eq!(set(&some).count(), 4);
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
