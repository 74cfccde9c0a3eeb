//! The end of the node: guests are asked to shut down before network and storage go.

use std::time::{Duration, Instant};

use agent_host::{Host, longest_wait_for_turns};
use agent_plan::{Millis, StopCause, Timestamp, order_stop};
use sd_notify::NotifyState;
use tracing::{error, info, warn};

use super::drain::Guest;
use crate::error::WriteError;
use crate::node_service::NodeService;
use crate::{clock, events, orders, watchdog};

/// What a VMM takes to end by force, beyond the longest grace period.
const MARGIN: Duration = Duration::from_secs(15);

/// Poll interval while guests end.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How much more time the service manager is asked for, again and again.
const EXTEND_MICROSECONDS: u32 = 30_000_000;

impl<H: Host> NodeService<H> {
    /// Has every guest end, with its grace period or `longest`, whichever is shorter, and waits for it.
    pub(crate) async fn end_with_node(&self, longest: Duration) {
        info!("the node goes down; its guests are asked to shut down");
        self.node.maintenance.go_down();
        self.publish();
        self.actors.wake_all();
        self.store.nudge();
        let begun = Instant::now();
        let base = longest + MARGIN;
        let mut allowed = base;
        let longest = Millis(i64::try_from(longest.as_millis()).unwrap_or(i64::MAX));
        let mut logged = None;
        loop {
            let left = match self.end_guests(longest) {
                Ok(0) => return info!("no guest is left"),
                Ok(left) => {
                    // Guests end a few at a time. There are most at first.
                    allowed = allowed.max(base + longest_wait_for_turns(left));
                    left.to_string()
                }
                Err(error) => {
                    error!(%error, "the orders to shut down cannot be stored; trying again");
                    String::from("some")
                }
            };
            if begun.elapsed() >= allowed {
                return warn!(left, "guests are left, and are killed");
            }
            let status = format!("the node goes down; {left} guests are left");
            if logged.as_ref() != Some(&left) {
                info!(left, "waiting for guests to end");
                logged = Some(left);
            }
            watchdog::notify(&[
                NotifyState::ExtendTimeoutUsec(EXTEND_MICROSECONDS),
                NotifyState::Status(&status),
            ]);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Stores the order for guests that have none yet; returns how many are left.
    fn end_guests(&self, longest: Millis) -> Result<usize, WriteError> {
        let now = clock::now();
        let mut left = 0;
        for guest in self.all_guests()? {
            let record = &guest.record;
            let is_gone = record.report.end.is_some() && record.allocations.reservation.is_none();
            if is_gone || !record.may_have_run() {
                continue;
            }
            left += 1;
            if record.report.end.is_none() && !guest.is_deleting() && is_due(&guest, longest, now) {
                self.end_guest(&guest, longest)?;
            }
        }
        Ok(left)
    }

    fn end_guest(&self, guest: &Guest, longest: Millis) -> Result<(), WriteError> {
        // One that ends already keeps its time, as far as the node has it.
        let grace = match guest.record.orders.stop {
            Some(_) => longest,
            None => guest.own_grace().min(longest),
        };
        self.store.write(|transaction| {
            let vmi = (guest.uid.as_str(), &self.node.facts.boot_id);
            let given = orders::give(transaction, vmi, |record, now| {
                order_stop(record, grace, StopCause::NodeShutdown, now).ok()
            });
            let Some(now) = given? else {
                return Ok(());
            };
            let seconds = grace.0 / 1000;
            let text = format!(
                "The node goes down: the guest is asked to shut down, and is killed after {seconds} s."
            );
            let said = [events::normal("NodeShutdown", text)];
            self.store.record_events(transaction, (&guest.target, &guest.uid), &said, now)
        })?;
        self.actors.wake(&guest.uid);
        Ok(())
    }
}

/// Whether a guest has no order to shut down yet, or one with more time than the node has.
fn is_due(guest: &Guest, longest: Millis, now: Timestamp) -> bool {
    let stop = guest.record.orders.stop;
    stop.is_none_or(|stop| stop.requested_at.plus(stop.grace) > now.plus(longest))
}
