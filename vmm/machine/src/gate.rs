//! The gate that vCPU threads pass on their way into the guest.
//!
//! The machine thread gives one command to all vCPUs and can wait until each has carried it out. A vCPU looks
//! at the gate before every entry, which costs one atomic load while the gate is open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vmm_kvm::StartState;

/// What all vCPUs are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Stay out of the guest.
    Hold,
    /// Go back to power-on; the boot processor gets these registers, if any. Then hold.
    Reset(Option<StartState>),
    /// Run the guest.
    Run,
    /// Put the vCPU's state into the table. Then hold.
    Save,
    /// Take the vCPU's state from the table, before it ever ran. Then hold.
    Restore,
    /// Let the clock of a restored vCPU go on, once all are restored. Then hold.
    StartClock,
    /// End the thread.
    Leave,
}

/// A command with its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub command: Command,
    pub number: u64,
}

#[derive(Debug)]
struct State {
    order: Order,
    /// vCPUs that have carried out the order.
    done: u32,
}

/// One gate for all vCPUs of a machine.
#[derive(Debug)]
pub(crate) struct Gate {
    vcpus: u32,
    open: AtomicBool,
    /// The guest has stopped a device, and may not go on before that is at rest.
    quiesce_requested: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    /// A closed gate for `vcpus` vCPUs.
    pub(crate) fn new(vcpus: u32) -> Self {
        Self {
            vcpus,
            open: AtomicBool::new(false),
            quiesce_requested: AtomicBool::new(false),
            state: Mutex::new(State {
                order: Order {
                    command: Command::Hold,
                    number: 0,
                },
                done: vcpus,
            }),
            changed: Condvar::new(),
        }
    }

    /// Whether vCPUs may enter the guest.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    /// Gives a command to all vCPUs. Those in the guest have to be kicked.
    pub(crate) fn order(&self, command: Command) {
        let mut state = self.lock();
        state.order = Order {
            command,
            number: state.order.number + 1,
        };
        state.done = 0;
        self.open.store(command == Command::Run, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// Keeps vCPUs from entering the guest until the next order. Does not wait.
    pub(crate) fn close(&self) {
        if self.is_open() {
            self.order(Command::Hold);
        }
    }

    /// The guest may go on only once its devices are at rest, whatever the machine thread is at.
    pub(crate) fn request_quiesce(&self) {
        self.quiesce_requested.store(true, Ordering::SeqCst);
    }

    /// Whether the guest may go on only once its devices are at rest.
    pub(crate) fn is_quiesce_requested(&self) -> bool {
        self.quiesce_requested.load(Ordering::SeqCst)
    }

    /// All devices are at rest, while no vCPU runs.
    pub(crate) fn note_quiesced(&self) {
        self.quiesce_requested.store(false, Ordering::SeqCst);
    }

    /// Waits until all vCPUs have carried out the order, at most `limit`. Tells whether they have.
    pub(crate) fn wait_done(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        while state.done < self.vcpus {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return false;
            };
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    /// For vCPUs: the present order, once it has a number above `seen`. Blocks until then.
    pub(crate) fn next_order(&self, seen: u64) -> Order {
        let mut state = self.lock();
        while state.order.number <= seen {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.order
    }

    /// For vCPUs: the order with this number is carried out.
    pub(crate) fn report_done(&self, number: u64) {
        let mut state = self.lock();
        if state.order.number == number {
            state.done += 1;
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole whatever happened to another holder of the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[allow(clippy::disallowed_methods, reason = "threads of a test, not of a VMM")]
    #[test]
    fn an_order_is_done_when_every_vcpu_says_so() {
        let gate = Arc::new(Gate::new(2));
        gate.order(Command::Hold);
        assert!(!gate.wait_done(Duration::from_millis(1)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let gate = Arc::clone(&gate);
                std::thread::spawn(move || {
                    let order = gate.next_order(0);
                    gate.report_done(order.number);
                })
            })
            .collect();
        assert!(gate.wait_done(Duration::from_secs(10)));
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_late_report_does_not_count_for_the_next_order() {
        let gate = Gate::new(1);
        gate.order(Command::Hold);
        let first = gate.next_order(0);
        gate.order(Command::Run);
        gate.report_done(first.number);
        assert!(!gate.wait_done(Duration::from_millis(1)));
        assert!(gate.is_open());
    }

    #[test]
    fn closing_a_closed_gate_changes_nothing() {
        let gate = Gate::new(1);
        gate.order(Command::Hold);
        let number = gate.next_order(0).number;
        gate.close();
        assert_eq!(gate.next_order(0).number, number);
    }
}
