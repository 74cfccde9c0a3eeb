//! Lines of the log that clients can cause at will, limited for each client.
//!
//! A client that is refused may ask again at once, and each line costs the node disk space and its reader attention.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of one client at once, and the time after which it may cause one more.
const AT_ONCE: u32 = 5;
const REFILL: Duration = Duration::from_secs(60);

/// Clients with an allowance of their own; further ones share one allowance, so that memory stays bounded.
const MOST_CLIENTS: usize = 256;

/// Allowances by client. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientLog(Arc<Mutex<HashMap<String, Allowance>>>);

#[derive(Debug)]
struct Allowance {
    lines: u32,
    /// When `lines` was last raised.
    refilled: Instant,
    /// Lines left out since the last one.
    left_out: u64,
}

impl ClientLog {
    /// Logs a warning about `client` if it has an allowance left. The line then also says how many were left out.
    pub(crate) fn warn(&self, client: &str, message: &str) {
        match self.take(client, Instant::now()) {
            Some(0) => tracing::warn!("{message}"),
            Some(left_out) => {
                tracing::warn!(
                    left_out,
                    "{message}; {left_out} such lines were left out before"
                );
            }
            None => {}
        }
    }

    /// Takes one line: how many were left out before it, or `None` when it is to be left out, too.
    fn take(&self, client: &str, now: Instant) -> Option<u64> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_CLIENTS && !known.contains_key(client) {
            known.retain(|_, allowance| !allowance.is_full(now));
        }
        let client = if known.len() < MOST_CLIENTS || known.contains_key(client) {
            client
        } else {
            "others"
        };
        let allowance = known.entry(client.to_owned()).or_insert(Allowance {
            lines: AT_ONCE,
            refilled: now,
            left_out: 0,
        });
        allowance.take(now)
    }
}

impl Allowance {
    fn refills(&self, now: Instant) -> u32 {
        let elapsed = now.saturating_duration_since(self.refilled);
        let refills = elapsed.as_secs() / REFILL.as_secs();
        u32::try_from(refills).unwrap_or(u32::MAX)
    }

    /// Whether forgetting it changes nothing.
    fn is_full(&self, now: Instant) -> bool {
        self.left_out == 0 && self.lines.saturating_add(self.refills(now)) >= AT_ONCE
    }

    fn take(&mut self, now: Instant) -> Option<u64> {
        let refills = self.refills(now);
        self.lines = self.lines.saturating_add(refills).min(AT_ONCE);
        self.refilled += REFILL * refills.min(AT_ONCE);
        if self.lines == AT_ONCE {
            self.refilled = now;
        }
        let Some(left) = self.lines.checked_sub(1) else {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        };
        self.lines = left;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_refused_again_and_again_is_logged_five_times_and_then_once_a_minute() {
        let (log, start) = (ClientLog::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let lines = |seconds| {
            (0..1000)
                .filter_map(|_| log.take("bob", at(seconds)))
                .count()
        };
        assert_eq!(lines(0), 5);
        assert_eq!(
            log.take("alice", at(0)),
            Some(0),
            "others are not in the way"
        );
        assert_eq!(lines(59), 0);
        assert_eq!(log.take("bob", at(60)), Some(1995));
        assert_eq!((lines(60), lines(180)), (0, 2));
        assert_eq!(lines(10_000), 5);
    }

    #[test]
    fn clients_without_number_take_no_memory_without_bound_and_no_more_lines() {
        let (log, start) = (ClientLog::default(), Instant::now());
        let lines = (0..10_000)
            .filter_map(|client| log.take(&client.to_string(), start))
            .count();
        assert!(
            lines <= MOST_CLIENTS + usize::try_from(AT_ONCE).expect("few"),
            "{lines}"
        );
        assert!(log.0.lock().expect("not poisoned").len() <= MOST_CLIENTS + 1);
        // A client that was quiet is forgotten for a new one.
        let later = start + Duration::from_secs(3600);
        assert_eq!(log.take("new", later), Some(0));
    }
}
