//! Waiting for a write where nothing else is to be done meanwhile.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks until a write is done; the runtime goes on. Controllers work so: one step after another, on their own.
pub(crate) fn wait<T>(write: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut write = pin!(write);
        loop {
            if let Poll::Ready(value) = write.as_mut().poll(&mut context) {
                return value;
            }
            std::thread::park();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_waits_until_another_has_done_the_write() {
        let (done, written) = tokio::sync::oneshot::channel();
        let (begin, begun) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || {
            begun.recv().expect("somebody waits");
            done.send(7).expect("somebody listens");
        });
        let write = async {
            begin.send(()).expect("the writer listens");
            written.await.expect("has a result")
        };
        assert_eq!(wait(write), 7);
        writer.join().expect("ends");
    }
}
