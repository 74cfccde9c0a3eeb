//! The thread of a machine: it waits for a configuration, builds the machine, then owns it.
//!
//! It is started before there is a configuration, by a process that then gives up the right to start
//! threads itself. It gives up that right, too, and whatever else only building takes, before
//! it reports that the machine is built.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use vmm_sys::affinity::{of_this_thread, pin_this_thread};
use vmm_sys::threads::{ThreadKind, Threads};

use crate::build::error::BuildError;
use crate::build::{Configured, Restore};
use crate::cancelled_build::end_unbuilt;
use crate::config::MachineConfig;
use crate::event_loop::{Built, EventLoop};
use crate::events::GuestEvents;
use crate::gate::Gate;
use crate::request::{MachineHandle, Message, Observer};
use crate::status::{MachineState, StatusBoard, boottime_ns};
use crate::timeline::Phase;

/// A thread on which one machine can be built.
#[derive(Debug)]
pub struct MachineThread {
    orders: Sender<Order>,
}

/// What is to be built, and whoever waits for it.
struct Order {
    config: MachineConfig,
    restore: Option<Restore>,
    observer: Box<dyn Observer>,
    queue: Sender<Message>,
    messages: Receiver<Message>,
    board: StatusBoard,
}

impl MachineThread {
    /// Starts the thread. It starts those of devices and vCPUs with `threads`.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(threads: Threads) -> io::Result<Self> {
        vmm_sys::signal::install_kick(vmm_kvm::kick_signal())?;
        let (orders, received) = channel();
        threads.spawn(ThreadKind::Builder, "machine".to_owned(), move || {
            serve(&received, threads);
        })?;
        Ok(Self { orders })
    }

    /// Builds a machine, which the thread then owns; `observer` gets the outcome. One that is
    /// built of a snapshot is paused. After a failure another one can be built.
    ///
    /// # Errors
    /// The thread has ended with its machine.
    pub fn build(
        &self,
        config: MachineConfig,
        restore: Option<Restore>,
        observer: Box<dyn Observer>,
    ) -> io::Result<MachineHandle> {
        let (queue, messages) = channel();
        let board = StatusBoard::default();
        let handle = MachineHandle::new(queue.clone(), board.clone());
        let order = Order {
            config,
            restore,
            observer,
            queue,
            messages,
            board,
        };
        self.orders
            .send(order)
            .map_err(|_| io::Error::other("the machine has ended"))?;
        Ok(handle)
    }
}

/// Builds until it succeeds.
fn serve(orders: &Receiver<Order>, threads: Threads) {
    while let Ok(order) = orders.recv() {
        let Order {
            config,
            restore,
            mut observer,
            queue,
            messages,
            board,
        } = order;
        let is_restored = restore.is_some();
        let is_placed = config.placement.emulator.is_some();
        let free = is_placed.then(of_this_thread).and_then(Result::ok);
        match build(config, restore, queue, &board, threads) {
            Ok(built) => {
                board.update(|status| {
                    if is_restored {
                        status.state = MachineState::Paused;
                        status.booted_at_ns = boottime_ns();
                    } else {
                        status.state = MachineState::Configured;
                    }
                });
                observer.built(Ok(()));
                return EventLoop::new(built, messages, board, observer).run();
            }
            Err(error) if error.is_cancelled() => {
                return end_unbuilt(&messages, &board, &mut *observer);
            }
            Err(error) => {
                if let Some(free) = free {
                    // The next machine may have another place, and says so when it cannot be there.
                    pin_this_thread(&free).unwrap_or_default();
                }
                observer.built(Err(error));
            }
        }
    }
}

fn build(
    config: MachineConfig,
    restore: Option<Restore>,
    queue: Sender<Message>,
    board: &StatusBoard,
    threads: Threads,
) -> Result<Built, BuildError> {
    let reboot_policy = config.reboot_policy;
    let gate = Arc::new(Gate::new(config.cpus.topology.count()));
    let events = GuestEvents::new(queue, Arc::clone(&gate));
    board.timeline().note(Phase::Begun);
    let configured = Configured::new(config, threads)?;
    board.timeline().note(Phase::HostChecked);
    let machine = configured
        .build_memory(restore, board)?
        .build_devices(&events, board)?
        .build_vcpus(&gate, &events, board)?;
    threads
        .confine(ThreadKind::Machine)
        .map_err(|error| BuildError::Thread {
            what: "the confined life of the machine's thread",
            source: io::Error::other(error),
        })?;
    Ok(Built {
        machine,
        reboot_policy,
    })
}
