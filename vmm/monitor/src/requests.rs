//! What peers ask for, and who is answered.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use proto_vmm::v1::{self, frame::Body, request::Kind};
use vmm_machine::{GuestRam, MachineHandle, Request, RequestError, Snapshot, chain};

use crate::config::{self, FieldError};
use crate::descriptors::{Access, Descriptors};
use crate::server::Server;
use crate::snapshot_file;
use crate::vsock;

/// Answers that peers wait for; a peer that asks for more at a time is refused.
const MAX_PENDING: usize = 256;

/// Who waits for which answer.
#[derive(Default)]
pub struct PendingAnswers {
    next_ticket: u64,
    waiting: BTreeMap<u64, Asker>,
    /// Those who sent a configuration that is being built.
    pub builders: Vec<Asker>,
}

/// A request of a peer.
#[derive(Clone, Copy)]
pub struct Asker {
    /// Number of the connection.
    pub connection: u32,
    /// Id of the request.
    pub request: u64,
}

impl Server {
    /// Carries out a request, or passes it on to the machine.
    pub(crate) fn on_request(
        &mut self,
        connection: u32,
        request: v1::Request,
        descriptors: Vec<OwnedFd>,
    ) {
        let asker = Asker {
            connection,
            request: request.id,
        };
        let refused = match request.kind {
            Some(Kind::Configure(configure)) => self.configure(asker, &configure, descriptors),
            Some(Kind::Save(_)) => self.save(asker, descriptors),
            Some(Kind::AttachConsole(attach)) => self.attach_console(asker, &attach, descriptors),
            Some(Kind::AttachPort(attach)) => self.attach_port(asker, &attach, descriptors),
            Some(Kind::AttachBroker(_)) => {
                let control = self.guest.as_ref().and_then(|guest| guest.vsock.clone());
                vsock::attach_broker(control, descriptors).map(|()| self.answer(asker, None))
            }
            _ if !descriptors.is_empty() => Err(error(
                v1::ErrorCode::InvalidArgument,
                "descriptors came with a request that takes none",
            )),
            Some(Kind::GetStatus(_)) => {
                self.answer(asker, None);
                Ok(())
            }
            Some(Kind::GetTimeline(_)) => {
                self.answer_timeline(asker);
                Ok(())
            }
            Some(Kind::Subscribe(_)) => {
                self.answer(asker, None);
                self.subscribe(connection);
                Ok(())
            }
            Some(Kind::Boot(_)) => self.ask(asker, Request::Boot),
            Some(Kind::PowerButton(_)) => self.ask(asker, Request::PowerButton),
            Some(Kind::Stop(stop)) => self.stop(asker, stop.reason),
            Some(Kind::Reset(_)) => self.ask(asker, Request::Reset),
            Some(Kind::Pause(_)) => self.ask(asker, Request::Pause),
            Some(Kind::Resume(_)) => self.ask(asker, Request::Resume),
            Some(Kind::ResizeDisk(resize)) => self.resize_disk(asker, &resize),
            Some(Kind::SetDiskLimits(change)) => self.set_disk_limits(asker, &change),
            Some(Kind::SetLink(change)) => self.set_link(asker, &change),
            Some(Kind::SetNetLimits(change)) => self.set_net_limits(asker, &change),
            Some(Kind::AnnounceNet(change)) => self.announce_net(asker, &change),
            Some(Kind::SetBalloon(change)) => self.set_balloon(asker, change),
            Some(Kind::GetBalloonStats(wanted)) => self.balloon_stats(asker, wanted),
            Some(Kind::ReadConsole(read)) => {
                self.read_console(asker, read);
                Ok(())
            }
            Some(Kind::GetDiskStats(_)) => self.answer_disk_stats(asker),
            Some(Kind::GetNetStats(_)) => self.answer_net_stats(asker),
            Some(Kind::ResizeConsole(resize)) => self.resize_console(asker, resize),
            None => Err(error(
                v1::ErrorCode::Unsupported,
                "this VMM does not know the request",
            )),
        };
        if let Err(refusal) = refused {
            self.answer(asker, Some(refusal));
        }
    }

    pub(crate) fn answer(&mut self, asker: Asker, error: Option<v1::Error>) {
        let response = v1::Response {
            id: asker.request,
            error,
            status: Some(self.status()),
            ..v1::Response::default()
        };
        self.send(asker.connection, Body::Response(response));
    }

    /// Passes a request on; the machine's answer goes back by its ticket.
    pub(crate) fn ask(&mut self, asker: Asker, request: Request) -> Result<(), v1::Error> {
        self.pass_on(asker, |handle, ticket| handle.request(ticket, request))
    }

    /// Has the machine write a snapshot, on its own thread.
    fn save(&mut self, asker: Asker, descriptors: Vec<OwnedFd>) -> Result<(), v1::Error> {
        let mut descriptors = Descriptors::new(descriptors);
        let file = descriptors
            .take_file("descriptors", 0, Access::Write)
            .map_err(field_error)?;
        if descriptors.first_unused().is_some() {
            return Err(error(
                v1::ErrorCode::InvalidArgument,
                "Save takes exactly one descriptor, a regular file",
            ));
        }
        self.pass_on(asker, |handle, ticket| {
            let saver = move |snapshot: &Snapshot, ram: &GuestRam| {
                snapshot_file::write(&file, snapshot, ram)
            };
            handle.save(ticket, Box::new(saver));
        })
    }

    fn pass_on(
        &mut self,
        asker: Asker,
        pass: impl FnOnce(&MachineHandle, u64),
    ) -> Result<(), v1::Error> {
        self.live_machine()?;
        if self.pending.waiting.len() >= MAX_PENDING {
            return Err(error(
                v1::ErrorCode::WrongState,
                "too many requests wait for their answers",
            ));
        }
        let ticket = self.pending.next_ticket;
        self.pending.next_ticket += 1;
        pass(self.live_machine()?, ticket);
        self.pending.waiting.insert(ticket, asker);
        Ok(())
    }

    /// The machine, if it is configured and has not ended.
    pub(crate) fn live_machine(&self) -> Result<&MachineHandle, v1::Error> {
        match &self.guest {
            None => Err(error(
                v1::ErrorCode::WrongState,
                "the machine is not configured yet",
            )),
            Some(guest) if guest.exit.is_some() => {
                Err(error(v1::ErrorCode::WrongState, "the guest has ended"))
            }
            Some(guest) => Ok(&guest.handle),
        }
    }

    fn resize_disk(&mut self, asker: Asker, resize: &v1::ResizeDisk) -> Result<(), v1::Error> {
        let disk = config::disk_address(resize.disk.as_ref()).map_err(field_error)?;
        self.ask(asker, Request::GrowDisk { disk })
    }

    fn set_disk_limits(
        &mut self,
        asker: Asker,
        change: &v1::SetDiskLimits,
    ) -> Result<(), v1::Error> {
        let disk = config::disk_address(change.disk.as_ref()).map_err(field_error)?;
        let limits = config::disk_limits(change.limits.as_ref());
        self.ask(asker, Request::SetDiskLimits { disk, limits })
    }

    fn stop(&mut self, asker: Asker, reason: String) -> Result<(), v1::Error> {
        if self.guest.is_some() {
            return self.ask(asker, Request::Stop { reason });
        }
        self.log.info("stopped", "before it was configured");
        self.answer(asker, None);
        self.begin_farewell();
        Ok(())
    }

    /// The machine has carried a request out, or refused it.
    pub(crate) fn on_answered(&mut self, ticket: u64, result: Result<(), RequestError>) {
        let Some(asker) = self.pending.waiting.remove(&ticket) else {
            return;
        };
        let refusal = result.err().map(|refused| match refused {
            RequestError::WrongState { .. } => {
                error(v1::ErrorCode::WrongState, &refused.to_string())
            }
            RequestError::Disk(_) | RequestError::Card(_) => {
                error(v1::ErrorCode::InvalidArgument, &chain(&refused))
            }
            RequestError::Host(_) | RequestError::Memory(_) | RequestError::Save(_) => {
                error(v1::ErrorCode::Host, &chain(&refused))
            }
        });
        self.answer(asker, refusal);
    }

    /// Nobody is answered by the machine any more.
    pub(crate) fn refuse_pending(&mut self, text: &str) {
        for (_, asker) in std::mem::take(&mut self.pending.waiting) {
            self.answer(asker, Some(error(v1::ErrorCode::WrongState, text)));
        }
    }
}

/// A refusal.
pub fn error(code: v1::ErrorCode, message: &str) -> v1::Error {
    v1::Error {
        code: code.into(),
        message: message.to_owned(),
        field: String::new(),
    }
}

/// A refusal of a field.
pub fn field_error(wrong: FieldError) -> v1::Error {
    v1::Error {
        field: wrong.field.clone(),
        ..error(v1::ErrorCode::InvalidArgument, &wrong.to_string())
    }
}
