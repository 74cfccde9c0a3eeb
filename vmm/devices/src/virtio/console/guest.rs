//! What a driver knows of a port, and which messages it is yet to get.
//!
//! Messages wait as flags rather than in a queue: whatever a driver asks for, and however often, what
//! is pending for it is bounded. Only the order of closing and opening matters, and is kept: a driver never
//! takes a peer for the one before it.

use super::control::DeviceMessage;
use super::host::ConsoleSize;

/// A message that is still to be sent, in the order in which they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum PendingMessage {
    Add = 1 << 0,
    Console = 1 << 1,
    Name = 1 << 2,
    Close = 1 << 3,
    Open = 1 << 4,
    Resize = 1 << 5,
}

const ORDER: [PendingMessage; 6] = [
    PendingMessage::Add,
    PendingMessage::Console,
    PendingMessage::Name,
    PendingMessage::Close,
    PendingMessage::Open,
    PendingMessage::Resize,
];

/// The guest's side of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GuestSide {
    /// The driver has made the port.
    pub(super) is_ready: bool,
    /// Somebody in the guest has it open.
    pub(super) is_open: bool,
    /// The last `PORT_OPEN` that the driver got was 1: the host has it open.
    pub(super) sent_open: bool,
    pending: u32,
}

/// Name and size of a port, as its messages carry them.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortDescription<'a> {
    /// Name of the port; empty for none.
    pub(super) name: &'a str,
    /// Size of the console.
    pub(super) size: ConsoleSize,
}

/// What decides which messages introduce a port to its driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Introduction {
    /// It is a console.
    pub(super) is_console: bool,
    /// It has a name.
    pub(super) is_named: bool,
    /// The host has it open.
    pub(super) is_open: bool,
    /// The console's size is known, and the driver wants to know it.
    pub(super) has_size: bool,
}

impl GuestSide {
    /// The port of a driver that knows no control queues.
    pub(super) fn of_single_port() -> Self {
        Self {
            is_ready: true,
            is_open: true,
            sent_open: true,
            pending: 0,
        }
    }

    /// State that was saved. None when it cannot be.
    pub(super) fn restored(
        is_ready: bool,
        is_open: bool,
        sent_open: bool,
        pending: u32,
    ) -> Option<Self> {
        let known = ORDER.iter().fold(0, |known, one| known | *one as u32);
        (pending & !known == 0).then_some(Self {
            is_ready,
            is_open,
            sent_open,
            pending,
        })
    }

    /// What is pending, as [`restored`](Self::restored) takes it.
    pub(super) fn pending(&self) -> u32 {
        self.pending
    }

    /// The driver wants to hear of the port.
    pub(super) fn announce(&mut self) {
        self.mark_pending(PendingMessage::Add);
    }

    /// The driver has made the port, or could not.
    pub(super) fn on_ready(&mut self, made: bool, introduction: Introduction) {
        if !made {
            *self = Self::default();
            return;
        }
        self.is_ready = true;
        // A driver that sends PORT_READY twice may know of a peer that it has to drop.
        self.pending &= PendingMessage::Close as u32;
        let messages = [
            (PendingMessage::Console, introduction.is_console),
            (PendingMessage::Name, introduction.is_named),
            (PendingMessage::Open, introduction.is_open),
            (PendingMessage::Resize, introduction.has_size),
        ];
        for (message, wanted) in messages {
            if wanted {
                self.mark_pending(message);
            }
        }
    }

    /// The host's side was opened.
    pub(super) fn on_host_open(&mut self) {
        if self.is_ready {
            self.mark_pending(PendingMessage::Open);
        }
    }

    /// The host's side was closed.
    pub(super) fn on_host_close(&mut self) {
        // A driver that has not heard of the peer need not hear of its end either.
        self.pending &= !(PendingMessage::Open as u32);
        if self.sent_open {
            self.mark_pending(PendingMessage::Close);
        }
    }

    /// The console's size changed.
    pub(super) fn on_resize(&mut self) {
        if self.is_ready {
            self.mark_pending(PendingMessage::Resize);
        }
    }

    /// Whether data may go to the guest: both sides are open, and the driver knows which peer it is.
    pub(super) fn can_receive(&self) -> bool {
        let changes = PendingMessage::Close as u32 | PendingMessage::Open as u32;
        self.is_open && self.sent_open && self.pending & changes == 0
    }

    /// The next message that is pending.
    pub(super) fn next<'a>(&self, port: PortDescription<'a>) -> Option<DeviceMessage<'a>> {
        Some(match self.first()? {
            PendingMessage::Add => DeviceMessage::PortAdd,
            PendingMessage::Console => DeviceMessage::ConsolePort,
            PendingMessage::Name => DeviceMessage::PortName(port.name),
            PendingMessage::Close => DeviceMessage::PortOpen(false),
            PendingMessage::Open => DeviceMessage::PortOpen(true),
            PendingMessage::Resize => DeviceMessage::Resize {
                columns: port.size.columns,
                rows: port.size.rows,
            },
        })
    }

    /// The driver got what [`next`](Self::next) says.
    pub(super) fn on_sent(&mut self) {
        if let Some(pending) = self.first() {
            self.pending &= !(pending as u32);
            match pending {
                PendingMessage::Close => self.sent_open = false,
                PendingMessage::Open => self.sent_open = true,
                PendingMessage::Add
                | PendingMessage::Console
                | PendingMessage::Name
                | PendingMessage::Resize => {}
            }
        }
    }

    fn first(&self) -> Option<PendingMessage> {
        ORDER
            .into_iter()
            .find(|message| self.pending & *message as u32 != 0)
    }

    fn mark_pending(&mut self, message: PendingMessage) {
        self.pending |= message as u32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ready() -> GuestSide {
        let mut side = GuestSide::default();
        side.on_ready(
            true,
            Introduction {
                is_console: false,
                is_named: true,
                is_open: false,
                has_size: false,
            },
        );
        side
    }

    fn deliver(side: &mut GuestSide) -> Option<DeviceMessage<'static>> {
        let port = PortDescription {
            name: "n",
            size: ConsoleSize::default(),
        };
        let message = side.next(port);
        side.on_sent();
        message
    }

    #[test]
    fn a_peer_that_came_and_went_unseen_is_not_spoken_of() {
        let mut side = ready();
        side.on_host_open();
        side.on_host_close();
        assert_eq!(deliver(&mut side), Some(DeviceMessage::PortName("n")));
        assert_eq!(deliver(&mut side), None);
    }

    #[test]
    fn a_peer_in_place_of_another_is_a_close_and_an_open() {
        let mut side = ready();
        side.on_host_open();
        while deliver(&mut side).is_some() {}
        side.is_open = true;
        assert!(side.can_receive());
        side.on_host_close();
        side.on_host_open();
        assert!(!side.can_receive());
        assert_eq!(deliver(&mut side), Some(DeviceMessage::PortOpen(false)));
        assert!(!side.can_receive());
        assert_eq!(deliver(&mut side), Some(DeviceMessage::PortOpen(true)));
        assert!(side.can_receive());
    }

    proptest! {
        /// Opens and closes of the host, looked at now and then: the driver's `PORT_OPEN` alternate, and
        /// the last one is right.
        #[test]
        fn a_driver_gets_opens_and_closes_by_turns(
            steps in prop::collection::vec(prop_oneof![Just(None), Just(Some(1)), Just(Some(9))], 0..40),
        ) {
            let mut side = ready();
            let (mut is_open, mut heard) = (false, false);
            for step in steps.into_iter().chain([Some(9)]) {
                match step {
                    None if is_open => { side.on_host_close(); is_open = false; }
                    None => { side.on_host_open(); is_open = true; }
                    Some(count) => for _ in 0..count {
                        if let Some(DeviceMessage::PortOpen(open)) = deliver(&mut side) {
                            prop_assert_eq!(open, !heard);
                            heard = open;
                        }
                    },
                }
                prop_assert_eq!(side.sent_open, heard);
            }
            prop_assert_eq!(heard, is_open);
        }
    }
}
