//! Flow control of a connection (VIRTIO 1.2, 5.10.6.3).
//!
//! Each side announces the size of its buffer (`buf_alloc`) and how many bytes have left it
//! (`fwd_cnt`); the other keeps count of what it has sent. All counts wrap at 2^32.

/// Buffer of a connection for a host program that does not read: our `buf_alloc`.
pub(super) const BUFFER_BYTES: u32 = 64 << 10;

/// The guest has sent more than it was allowed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CreditExceeded;

/// The accounts of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Credit {
    /// Towards the guest: its buffer, what has left it, and what we have sent.
    guest_buffer: u32,
    guest_forwarded: u32,
    sent: u32,
    /// From the guest: what came, what has left our buffer, and what of it the guest knows.
    received: u32,
    forwarded: u32,
    announced: u32,
}

impl Credit {
    /// Takes what the guest announces. Any numbers will do: the worst that they do is to let us
    /// fill the buffers of the guest's own receive queue, or to stop its own connection.
    pub(super) fn update(&mut self, buf_alloc: u32, fwd_cnt: u32) {
        self.guest_buffer = buf_alloc;
        self.guest_forwarded = fwd_cnt;
    }

    /// What may be sent now.
    pub(super) fn available(&self) -> u32 {
        // A buffer that has become smaller than what is in it has no room.
        let in_it = self.sent.wrapping_sub(self.guest_forwarded);
        self.guest_buffer.saturating_sub(in_it)
    }

    /// Notes what was sent to the guest.
    pub(super) fn sent(&mut self, bytes: u32) {
        self.sent = self.sent.wrapping_add(bytes);
    }

    /// Bytes of the guest that have not left our buffer.
    pub(super) fn held(&self) -> u32 {
        self.received.wrapping_sub(self.forwarded)
    }

    /// Notes what came from the guest.
    pub(super) fn receive(&mut self, bytes: u32) -> Result<(), CreditExceeded> {
        if bytes > BUFFER_BYTES.saturating_sub(self.held()) {
            return Err(CreditExceeded);
        }
        self.received = self.received.wrapping_add(bytes);
        Ok(())
    }

    /// Notes what has left our buffer: no more than is in it.
    pub(super) fn forward(&mut self, bytes: u32) {
        self.forwarded = self.forwarded.wrapping_add(bytes.min(self.held()));
    }

    /// Whether to send `CREDIT_UPDATE` before the guest has to wait: it believes that half of our buffer
    /// is full, and is wrong.
    pub(super) fn needs_update(&self) -> bool {
        let believed = self.received.wrapping_sub(self.announced);
        self.announced != self.forwarded && believed >= BUFFER_BYTES / 2
    }

    /// `buf_alloc` and `fwd_cnt` for a packet to the guest, which knows them from now on.
    pub(super) fn announce(&mut self) -> (u32, u32) {
        self.announced = self.forwarded;
        (BUFFER_BYTES, self.forwarded)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An account as after any number of bytes both ways.
    fn old_account(sent: u32, received: u32) -> Credit {
        Credit {
            sent,
            guest_forwarded: sent,
            received,
            forwarded: received,
            announced: received,
            guest_buffer: 0,
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Send(u32),
        GuestReads(u32),
        Receive(u32),
        Forward(u32),
        Announce,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = || prop_oneof![0..200u32, 0..2 * BUFFER_BYTES];
        let step = prop_oneof![
            bytes().prop_map(Step::Send),
            bytes().prop_map(Step::GuestReads),
            bytes().prop_map(Step::Receive),
            bytes().prop_map(Step::Forward),
            Just(Step::Announce),
        ];
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        /// Against a book kept in numbers that do not wrap, from any beginning.
        #[test]
        fn neither_side_ever_sends_more_than_the_other_has_room_for(
            begin in any::<(u32, u32)>(), guest_buffer in 0..200_000u32, steps in steps(),
        ) {
            let mut credit = old_account(begin.0, begin.1);
            credit.update(guest_buffer, begin.0);
            let (mut in_guest, mut in_us) = (0u64, 0u64);
            let (mut guest_forwarded, mut unannounced) = (begin.0, 0u64);
            for step in steps {
                match step {
                    Step::Send(bytes) => {
                        let bytes = bytes.min(credit.available());
                        credit.sent(bytes);
                        in_guest += u64::from(bytes);
                    }
                    Step::GuestReads(bytes) => {
                        let bytes = u64::from(bytes).min(in_guest);
                        in_guest -= bytes;
                        guest_forwarded = guest_forwarded.wrapping_add(u32::try_from(bytes).unwrap());
                        credit.update(guest_buffer, guest_forwarded);
                    }
                    Step::Receive(bytes) => {
                        let fits = in_us + u64::from(bytes) <= u64::from(BUFFER_BYTES);
                        prop_assert_eq!(credit.receive(bytes).is_ok(), fits);
                        if fits {
                            in_us += u64::from(bytes);
                        }
                    }
                    Step::Forward(bytes) => {
                        let bytes = u64::from(bytes).min(in_us);
                        credit.forward(u32::try_from(bytes).unwrap());
                        in_us -= bytes;
                        unannounced += bytes;
                    }
                    Step::Announce => {
                        let (buffer, _) = credit.announce();
                        prop_assert_eq!(buffer, BUFFER_BYTES);
                        unannounced = 0;
                    }
                }
                prop_assert!(in_guest <= u64::from(guest_buffer));
                prop_assert_eq!(u64::from(credit.available()), u64::from(guest_buffer) - in_guest);
                prop_assert_eq!(u64::from(credit.held()), in_us);
                // A guest that waits for room gets an update.
                let believed = in_us + unannounced;
                let needs = unannounced > 0 && believed >= u64::from(BUFFER_BYTES / 2);
                prop_assert_eq!(credit.needs_update(), needs);
            }
        }

        #[test]
        fn hostile_announcements_give_no_more_than_they_announce(
            sent: u32, updates in prop::collection::vec(any::<(u32, u32, u32)>(), 1..50),
        ) {
            let mut credit = old_account(sent, 0);
            for (buf_alloc, fwd_cnt, bytes) in updates {
                credit.update(buf_alloc, fwd_cnt);
                prop_assert!(credit.available() <= buf_alloc);
                credit.sent(bytes.min(credit.available()));
                prop_assert_eq!(credit.held(), 0);
                credit.forward(bytes);
                prop_assert_eq!(credit.held(), 0);
            }
        }
    }
}
