//! How threads are made.

/// What glibc's threads are made with: `CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
/// CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID`. No
/// other flags: no process, no namespace. `clone3`, whose flags a filter cannot see, is answered
/// `ENOSYS`, and glibc takes this one.
pub(super) const THREAD_FLAGS: u32 = 0x003d_0f00;

/// `prctl(2)`: the calling thread's name.
pub(super) const PR_SET_NAME: u32 = 15;
