//! Work in another network namespace: on a thread of its own, because a thread is what is in a namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use nix::sched::{CloneFlags, setns};
use tokio::sync::oneshot;

/// A network namespace.
#[derive(Debug)]
pub(crate) struct Namespace(File);

impl Namespace {
    /// That of a process. Whoever calls this makes sure afterwards that the process is still the same.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/ns/net")).map(Self)
    }

    /// That of the agent.
    pub(crate) fn own() -> io::Result<Self> {
        File::open("/proc/thread-self/ns/net").map(Self)
    }

    pub(crate) fn is(&self, other: &Self) -> io::Result<bool> {
        let (ours, others) = (self.0.metadata()?, other.0.metadata()?);
        Ok((ours.dev(), ours.ino()) == (others.dev(), others.ino()))
    }

    /// For who enters it by himself.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// For messages of netlink that name it. It has to live until they are sent.
    pub(super) fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Does something in the namespace that may use netlink sockets of its own.
    pub(crate) async fn run<T, F>(self, work: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: AsyncFnOnce() -> T + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        std::thread::Builder::new()
            .name("pod-network".to_owned())
            .spawn(move || {
                let done = setns(&self.0, CloneFlags::CLONE_NEWNET)
                    .map_err(io::Error::from)
                    .and_then(|()| {
                        let mut runtime = tokio::runtime::Builder::new_current_thread();
                        let runtime = runtime.enable_all().build()?;
                        Ok(runtime.block_on(work()))
                    });
                // Nobody may be waiting any more.
                drop(sender.send(done));
            })?;
        let gone = |_| io::Error::other("the thread in the namespace ended");
        receiver.await.map_err(gone)?
    }
}
