//! The main thread's dealings with consoles and their clients.

use std::io;
use std::os::fd::OwnedFd;

use proto_vmm::v1::{self, frame::Body};

use super::Console;
use super::client::{NewClient, client_name, stream_socket};
use crate::answers::{Requester, error};
use crate::log::Level;
use crate::poller::{Ready, Source, Terminal};
use crate::server::Server;

impl Server {
    fn terminal(&mut self, terminal: Terminal) -> Option<&mut Console> {
        match terminal {
            Terminal::Serial => Some(&mut self.console),
            Terminal::Virtio => self.console_ports.as_mut()?.console.as_mut(),
        }
    }

    pub(crate) fn attach_console(
        &mut self,
        requester: Requester,
        attach: &v1::AttachConsole,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), v1::Error> {
        let client = NewClient {
            terminal: Terminal::Serial,
            socket: stream_socket("AttachConsole", descriptors)?,
            name: client_name(&attach.client),
            force: attach.force,
            replay: attach.replay.then_some(attach.replay_from),
        };
        self.attach_client(requester, client)
    }

    pub(crate) fn attach_client(
        &mut self,
        requester: Requester,
        client: NewClient,
    ) -> Result<(), v1::Error> {
        if client.force {
            // The present client's descriptor is about to be closed.
            self.poller.forget(Source::ConsoleClient(client.terminal));
        }
        let console = self.terminal(client.terminal).ok_or_else(|| {
            let text = "the machine has no virtio console with a console port";
            error(v1::ErrorCode::InvalidArgument, text)
        })?;
        let attached = console.attach(client.socket, client.name, client.replay, client.force);
        let console_offset = attached.map_err(|busy| {
            let text = format!("the console is in use by {:?}", busy.client);
            error(v1::ErrorCode::ConsoleBusy, &text)
        })?;
        let response = v1::Response {
            id: requester.request,
            error: None,
            status: Some(self.status()),
            console_offset,
            ..v1::Response::default()
        };
        self.send(requester.connection, Body::Response(response));
        Ok(())
    }

    /// Answers with what the guest printed last; all that was printed before the request is in the log.
    pub(crate) fn read_console(&mut self, requester: Requester, read: v1::ReadConsole) {
        self.on_console_output(Terminal::Serial);
        let past = self.console.past(read.from);
        let response = v1::Response {
            id: requester.request,
            status: Some(self.status()),
            console_offset: past.offset,
            console_bytes: past.bytes,
            console_printed: past.printed,
            console_logged: past.logged,
            ..v1::Response::default()
        };
        self.send(requester.connection, Body::Response(response));
    }

    /// Whether a client has not been sent everything.
    pub(crate) fn is_client_behind(&self) -> bool {
        let virtio = self
            .console_ports
            .iter()
            .filter_map(|served| served.console.as_ref());
        let mut clients = virtio.chain([&self.console]).filter_map(Console::client);
        clients.any(|(_, interest)| interest.writable)
    }

    /// A client that cannot be watched is closed: it must not end the guest.
    pub(crate) fn watch_clients(&mut self) {
        for terminal in Terminal::ALL {
            let source = Source::ConsoleClient(terminal);
            let client = self.terminal(terminal).and_then(|console| console.client());
            let Some((fd, interest)) = client else {
                self.poller.forget(source);
                continue;
            };
            let watched = self
                .poller
                .watch(source, fd, interest.readable, interest.writable);
            if let Err(error) = watched {
                self.log
                    .repeated(Level::Warn, "console-closed", &error.to_string());
                self.poller.forget(source);
                if let Some(console) = self.terminal(terminal) {
                    console.on_client_gone();
                }
            }
        }
    }

    pub(crate) fn on_console_output(&mut self, terminal: Terminal) {
        let failed = self.terminal(terminal).and_then(Console::serve_output);
        self.report_lost_log(failed);
    }

    pub(crate) fn on_console_input_space(&mut self, terminal: Terminal) {
        if let Some(console) = self.terminal(terminal) {
            console.serve_input();
        }
    }

    pub(crate) fn on_console_client(&mut self, terminal: Terminal, ready: Ready) {
        let Some(console) = self.terminal(terminal) else {
            return;
        };
        let before = console.client().map(|(fd, _)| fd);
        if ready.readable {
            console.on_client_readable();
        }
        let mut failed = None;
        if ready.writable {
            failed = console.on_client_writable();
        }
        if ready.hung_up {
            console.on_client_gone();
        }
        if console.client().map(|(fd, _)| fd) != before {
            // A closed descriptor is not polled by the kernel any more; its number may come back.
            self.poller.forget(Source::ConsoleClient(terminal));
        }
        self.report_lost_log(failed);
    }

    fn report_lost_log(&self, failed: Option<io::Error>) {
        if let Some(error) = failed {
            self.log
                .repeated(Level::Error, "console-log-lost", &error.to_string());
        }
    }
}
