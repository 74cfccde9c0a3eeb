//! Serves the ports of the guest's virtio console on the main thread.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use proto_vmm::v1;
use vmm_devices::virtio::console::{AttachError, ConsoleSize};

use crate::answers::{Requester, error};
use crate::config::ConsoleParts;
use crate::console::{NewClient, client_name, stream_socket};
use crate::console_ports::ServedConsolePorts;
use crate::log::Level;
use crate::poller::{Source, Terminal};
use crate::server::Server;

/// Connections accepted before others have their turn.
const MAX_ACCEPTED: usize = 16;
/// A listener from which nothing can be accepted, as when no descriptor is left, rests this long.
const REST: Duration = Duration::from_secs(1);

impl Server {
    /// Begins to serve console ports.
    pub(crate) fn open_console_ports(&mut self, parts: ConsoleParts) -> io::Result<()> {
        let console_ports = ServedConsolePorts::new(parts);
        if let Some(console) = &console_ports.console {
            let output = Source::ConsoleOutput(Terminal::Virtio);
            self.poller
                .watch(output, console.output_event(), true, false)?;
            let input_space = Source::ConsoleInputSpace(Terminal::Virtio);
            self.poller
                .watch(input_space, console.input_space_event(), true, false)?;
        }
        self.console_ports = Some(console_ports);
        Ok(())
    }

    /// Serves no console ports any more: the machine was not built.
    pub(crate) fn close_console_ports(&mut self) {
        let Some(console_ports) = self.console_ports.take() else {
            return;
        };
        let console = [
            Source::ConsoleOutput(Terminal::Virtio),
            Source::ConsoleInputSpace(Terminal::Virtio),
            Source::ConsoleClient(Terminal::Virtio),
        ];
        let listeners = console_ports.listeners.iter();
        let listeners = listeners.map(|listener| Source::PortListener(listener.port.number()));
        for source in console.into_iter().chain(listeners) {
            self.poller.forget(source);
        }
    }

    /// Watches the listeners, but for those that rest.
    pub(crate) fn watch_listeners(&mut self) {
        let Some(console_ports) = &mut self.console_ports else {
            return;
        };
        let now = Instant::now();
        for listener in &mut console_ports.listeners {
            let source = Source::PortListener(listener.port.number());
            if listener.rests_until.is_some_and(|until| now < until) {
                self.poller.forget(source);
                continue;
            }
            listener.rests_until = None;
            let fd = listener.socket.as_raw_fd();
            if let Err(error) = self.poller.watch(source, fd, true, false) {
                self.log.warn("port-listener", &error.to_string());
                listener.rests_until = Some(now + REST);
            }
        }
    }

    /// Somebody wants to talk to a port's guest: the first one may, others are closed.
    pub(crate) fn accept_peers(&mut self, number: u16) {
        let Some(console_ports) = &mut self.console_ports else {
            return;
        };
        let all = console_ports.listeners.iter_mut();
        for listener in all.filter(|listener| listener.port.number() == number) {
            for _ in 0..MAX_ACCEPTED {
                let failed = match listener.socket.accept() {
                    Ok((socket, _)) => {
                        let attached = listener.port.attach(socket.into(), "its socket", false);
                        match attached {
                            Ok(()) | Err(AttachError::Busy { .. }) => continue,
                            Err(AttachError::Watch(error)) => error,
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => error,
                };
                self.log
                    .repeated(Level::Warn, "port-accept", &failed.to_string());
                listener.rests_until = Some(Instant::now() + REST);
                break;
            }
        }
    }

    pub(crate) fn attach_port(
        &mut self,
        requester: Requester,
        attach: &v1::AttachPort,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), v1::Error> {
        let socket = stream_socket("AttachPort", descriptors)?;
        let name = client_name(&attach.client);
        let line = self
            .console_ports
            .as_ref()
            .and_then(|console_ports| console_ports.host.console());
        if attach.port.is_empty() || line.is_some_and(|line| line.name() == attach.port) {
            let client = NewClient {
                terminal: Terminal::Virtio,
                socket,
                name,
                force: attach.force,
                replay: attach.replay.then_some(attach.replay_from),
            };
            return self.attach_client(requester, client);
        }
        let console_ports = self.console_ports.as_ref();
        let port = console_ports
            .and_then(|console_ports| console_ports.named(&attach.port))
            .ok_or_else(|| {
                let text = format!("the machine has no port named {:?}", attach.port);
                error(v1::ErrorCode::InvalidArgument, &text)
            })?;
        port.attach(socket, &name, attach.force)
            .map_err(|refused| match refused {
                AttachError::Busy { client } => {
                    let text = format!("the port is in use by {client:?}");
                    error(v1::ErrorCode::ConsoleBusy, &text)
                }
                AttachError::Watch(_) => error(v1::ErrorCode::Host, &vmm_machine::chain(&refused)),
            })?;
        self.answer(requester, None);
        Ok(())
    }

    pub(crate) fn resize_console(
        &mut self,
        requester: Requester,
        resize: v1::ResizeConsole,
    ) -> Result<(), v1::Error> {
        let invalid = |text| error(v1::ErrorCode::InvalidArgument, text);
        let size = (u16::try_from(resize.columns).ok())
            .zip(u16::try_from(resize.rows).ok())
            .map(|(columns, rows)| ConsoleSize { columns, rows })
            .ok_or_else(|| invalid("columns and rows of a console are at most 65535"))?;
        let console_ports = self.console_ports.as_ref();
        let console = console_ports
            .and_then(|console_ports| console_ports.host.console())
            .ok_or_else(|| invalid("the machine has no virtio console with a console port"))?;
        console.resize(size);
        self.answer(requester, None);
        Ok(())
    }
}
