//! From the machine's own thread to the main thread.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use vmm_machine::{BuildError, Change, Observer, RequestError, Status};
use vmm_sys::event;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Notices of the machine.
pub enum Notice {
    /// It was built, or could not be.
    Built(Result<(), BuildError>),
    /// A request was carried out or refused.
    Answered {
        /// Given with the request.
        ticket: u64,
        /// Result of the request.
        result: Result<(), RequestError>,
    },
    /// Something happened.
    Changed {
        /// Kind of the change.
        change: Change,
        /// The status right after it.
        status: Box<Status>,
    },
}

/// The main thread's end.
pub struct Notices {
    queue: Receiver<Notice>,
    sender: Sender<Notice>,
    event: Arc<EventFd>,
}

impl Notices {
    /// An empty queue.
    pub fn new() -> io::Result<Self> {
        let (sender, queue) = channel();
        Ok(Self {
            queue,
            sender,
            event: Arc::new(EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?),
        })
    }

    /// The machine's end.
    pub fn observer(&self) -> Box<dyn Observer> {
        Box::new(Sink {
            queue: self.sender.clone(),
            event: Arc::clone(&self.event),
        })
    }

    /// Readable when there is something.
    pub fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Everything there is.
    pub fn take(&self) -> Vec<Notice> {
        event::clear(&self.event);
        self.queue.try_iter().collect()
    }
}

struct Sink {
    queue: Sender<Notice>,
    event: Arc<EventFd>,
}

impl Sink {
    fn send(&self, notice: Notice) {
        // The main thread ends the process when it ends; a full counter means that it is awake.
        drop(self.queue.send(notice));
        event::signal(&self.event);
    }
}

impl Observer for Sink {
    fn built(&mut self, result: Result<(), BuildError>) {
        self.send(Notice::Built(result));
    }

    fn answered(&mut self, ticket: u64, result: Result<(), RequestError>) {
        self.send(Notice::Answered { ticket, result });
    }

    fn changed(&mut self, change: Change, status: &Status) {
        self.send(Notice::Changed {
            change,
            status: Box::new(status.clone()),
        });
    }
}
