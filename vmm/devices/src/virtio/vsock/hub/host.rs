//! What comes from the host: events of sockets, new connections, answers of the broker.

use std::os::fd::AsRawFd;
use std::time::Instant;

use vmm_sys::socket::StreamSocket;
use vmm_sys_util::epoll::{EpollEvent, EventSet};

use super::{
    ACCEPT_PAUSE, BROKER, FIRST_HOST_PORT, GREETING_PATIENCE, Hub, LISTENER, MAX_CONNECTIONS,
    MAX_GREETINGS, REQUEST_PATIENCE,
};
use crate::virtio::vsock::broker::{Answer, FromBroker};
use crate::virtio::vsock::connection::{Connection, Key, Phase};
use crate::virtio::vsock::greeting::{Greeting, GreetingOutcome};

/// Events taken at a time, and how often in one turn.
const BATCH: usize = 64;
const BATCHES: usize = 16;

impl Hub {
    /// Takes events, if there may be some; no more than one turn's.
    pub(in super::super) fn poll(&mut self) {
        if std::mem::take(&mut self.is_broker_due) {
            self.on_broker();
        }
        if !self.is_poll_due {
            return;
        }
        let mut events = [EpollEvent::default(); BATCH];
        for _ in 0..BATCHES {
            // An error can only be an interruption: the next turn goes on.
            let Ok(count) = self.poll.wait(0, &mut events) else {
                return;
            };
            for event in events.iter().take(count) {
                self.on_event(event.data(), event.event_set());
            }
            if count < BATCH {
                self.is_poll_due = false;
                return;
            }
        }
    }

    fn on_event(&mut self, number: u64, set: EventSet) {
        match number {
            LISTENER => self.may_accept = true,
            BROKER => self.on_broker(),
            _ if self.greetings.contains_key(&number) => self.greet(number),
            _ => {
                if let Some(key) = self.keys.get(&number).copied() {
                    self.on_socket(key, set);
                }
            }
        }
    }

    fn on_socket(&mut self, key: Key, set: EventSet) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        let hung_up = set.intersects(EventSet::HANG_UP | EventSet::ERROR);
        if hung_up && connection.phase == Phase::Requested {
            return self.reset(key);
        }
        let readable = set.intersects(EventSet::IN | EventSet::READ_HANG_UP);
        let writable = set.contains(EventSet::OUT);
        connection.on_socket(readable || hung_up, writable || hung_up, hung_up);
        self.touch(key);
    }

    /// Whether something was left for another turn.
    pub(in super::super) fn is_due(&self) -> bool {
        self.is_poll_due || self.is_broker_due || self.can_accept()
    }

    fn can_accept(&self) -> bool {
        self.may_accept
            && self.greetings.len() < MAX_GREETINGS
            && self.connections.len() + self.greetings.len() < MAX_CONNECTIONS
            && !self.is_backlogged()
    }

    /// Takes connections of host programs, as many as there is room for.
    pub(in super::super) fn accept(&mut self) {
        while self.can_accept() {
            let accepted = self.listener.as_ref().map(|listener| listener.accept());
            match accepted {
                Some(Ok(Some(socket))) => self.on_accepted(socket),
                Some(Ok(None)) | None => self.may_accept = false,
                Some(Err(_)) => {
                    // Such as no descriptor being left, whose end no event signals.
                    self.may_accept = false;
                    let later = Instant::now() + ACCEPT_PAUSE;
                    self.deadlines.set(LISTENER, later);
                }
            }
        }
    }

    fn on_accepted(&mut self, socket: StreamSocket) {
        let number = self.new_number();
        // One that cannot be watched is closed.
        if self.watch(socket.as_raw_fd(), number).is_ok() {
            self.greetings.insert(number, Greeting::new(socket));
            let deadline = Instant::now() + GREETING_PATIENCE;
            self.deadlines.set(number, deadline);
            self.greet(number);
        }
    }

    /// Reads what a host program says first.
    fn greet(&mut self, number: u64) {
        let Some(greeting) = self.greetings.get_mut(&number) else {
            return;
        };
        let said = greeting.read();
        if said == GreetingOutcome::Nothing {
            return;
        }
        self.deadlines.clear(number);
        let greeting = self.greetings.remove(&number);
        if let (GreetingOutcome::Port(guest_port), Some(greeting)) = (said, greeting) {
            let host_port = self.new_host_port(guest_port);
            let key = Key {
                host_port,
                guest_port,
            };
            self.deadlines
                .set(number, Instant::now() + REQUEST_PATIENCE);
            self.insert(key, Connection::from_host(number, greeting.socket));
        }
    }

    /// A port of the host that has no connection to `guest_port`. There are far more ports than
    /// connections.
    fn new_host_port(&mut self, guest_port: u32) -> u32 {
        loop {
            let host_port = FIRST_HOST_PORT | (self.host_connections % FIRST_HOST_PORT);
            self.host_connections = self.host_connections.wrapping_add(1);
            let key = Key {
                host_port,
                guest_port,
            };
            if !self.connections.contains_key(&key) {
                return host_port;
            }
        }
    }

    /// Reads the broker's answers: as many as questions, so that it cannot keep us busy.
    fn on_broker(&mut self) {
        let most = self.asked.len() + 1;
        for _ in 0..most {
            let Some(broker) = &self.broker else {
                return;
            };
            match broker.answer() {
                FromBroker::Nothing => return,
                FromBroker::Answer(answer) => self.on_answer(answer),
                // The question runs into its deadline.
                FromBroker::Lost => {}
                FromBroker::Gone => return self.drop_broker(),
            }
        }
        // Late ones, or more than were asked for: in the next turn.
        self.is_broker_due = true;
    }

    fn on_answer(&mut self, answer: Answer) {
        // Of a connection that is no more, or that was answered: the descriptor is closed.
        if !self.asked.remove(&answer.number) {
            return;
        }
        let Some(key) = self.keys.get(&answer.number).copied() else {
            return;
        };
        self.deadlines.clear(answer.number);
        let socket = answer
            .descriptor
            .and_then(|descriptor| StreamSocket::adopt(descriptor).ok());
        let Some(socket) = socket else {
            return self.reset(key);
        };
        if self.watch(socket.as_raw_fd(), answer.number).is_err() {
            return self.reset(key);
        }
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.answered(socket);
        }
        self.touch(key);
    }
}
