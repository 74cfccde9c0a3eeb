//! What peers ask for, and who is answered.

use std::os::fd::OwnedFd;

use proto_vmm::v1::{self, frame::Body, request::Kind};
use vmm_machine::{GuestRam, MachineHandle, Request, RequestError, Snapshot, chain};

use crate::answers::{Requester, error, field_error};
use crate::config;
use crate::descriptors::{Access, Descriptors};
use crate::server::Server;
use crate::snapshot_file;
use crate::vsock;

/// Answers that peers wait for; a peer that asks for more at a time is refused.
const MAX_PENDING: usize = 256;

impl Server {
    /// Carries out a request, or passes it on to the machine.
    pub(crate) fn on_request(
        &mut self,
        connection: u32,
        request: v1::Request,
        descriptors: Vec<OwnedFd>,
    ) {
        let requester = Requester {
            connection,
            request: request.id,
        };
        let refused = match request.kind {
            Some(Kind::Configure(configure)) => self.configure(requester, &configure, descriptors),
            Some(Kind::Save(_)) => self.save(requester, descriptors),
            Some(Kind::AttachConsole(attach)) => {
                self.attach_console(requester, &attach, descriptors)
            }
            Some(Kind::AttachPort(attach)) => self.attach_port(requester, &attach, descriptors),
            Some(Kind::AttachBroker(_)) => {
                let control = self.guest.as_ref().and_then(|guest| guest.vsock.clone());
                vsock::attach_broker(control, descriptors).map(|()| self.answer(requester, None))
            }
            _ if !descriptors.is_empty() => Err(error(
                v1::ErrorCode::InvalidArgument,
                "descriptors came with a request that takes none",
            )),
            Some(Kind::GetStatus(_)) => {
                self.answer(requester, None);
                Ok(())
            }
            Some(Kind::GetTimeline(_)) => {
                self.answer_timeline(requester);
                Ok(())
            }
            Some(Kind::Subscribe(_)) => {
                self.answer(requester, None);
                self.subscribe(connection);
                Ok(())
            }
            Some(Kind::Boot(_)) => self.ask(requester, Request::Boot),
            Some(Kind::PowerButton(_)) => self.ask(requester, Request::PowerButton),
            Some(Kind::SoftReboot(_)) => self.ask(requester, Request::SoftReboot),
            Some(Kind::Stop(stop)) => self.stop(requester, stop.reason),
            Some(Kind::Reset(_)) => self.ask(requester, Request::Reset),
            Some(Kind::Pause(_)) => self.ask(requester, Request::Pause),
            Some(Kind::Resume(_)) => self.ask(requester, Request::Resume),
            Some(Kind::ResizeDisk(resize)) => self.resize_disk(requester, &resize),
            Some(Kind::SetDiskLimits(change)) => self.set_disk_limits(requester, &change),
            Some(Kind::SetLink(change)) => self.set_link(requester, &change),
            Some(Kind::SetNetLimits(change)) => self.set_net_limits(requester, &change),
            Some(Kind::AnnounceNet(change)) => self.announce_net(requester, &change),
            Some(Kind::SetBalloon(change)) => self.set_balloon(requester, change),
            Some(Kind::GetBalloonStats(wanted)) => self.balloon_stats(requester, wanted),
            Some(Kind::ReadConsole(read)) => {
                self.read_console(requester, read);
                Ok(())
            }
            Some(Kind::GetDiskStats(_)) => self.answer_disk_stats(requester),
            Some(Kind::GetNetStats(_)) => self.answer_net_stats(requester),
            Some(Kind::ResizeConsole(resize)) => self.resize_console(requester, resize),
            None => Err(error(
                v1::ErrorCode::Unsupported,
                "this VMM does not know the request",
            )),
        };
        if let Err(refusal) = refused {
            self.answer(requester, Some(refusal));
        }
    }

    pub(crate) fn answer(&mut self, requester: Requester, error: Option<v1::Error>) {
        let response = v1::Response {
            id: requester.request,
            error,
            status: Some(self.status()),
            ..v1::Response::default()
        };
        self.send(requester.connection, Body::Response(response));
    }

    /// Passes a request on; the machine's answer goes back by its ticket.
    pub(crate) fn ask(&mut self, requester: Requester, request: Request) -> Result<(), v1::Error> {
        self.pass_on(requester, |handle, ticket| handle.request(ticket, request))
    }

    /// Has the machine write a snapshot, on its own thread.
    fn save(&mut self, requester: Requester, descriptors: Vec<OwnedFd>) -> Result<(), v1::Error> {
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
        self.pass_on(requester, |handle, ticket| {
            let saver = move |snapshot: &Snapshot, ram: &GuestRam| {
                snapshot_file::write(&file, snapshot, ram)
            };
            handle.save(ticket, Box::new(saver));
        })
    }

    fn pass_on(
        &mut self,
        requester: Requester,
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
        self.pending.waiting.insert(ticket, requester);
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

    fn resize_disk(
        &mut self,
        requester: Requester,
        resize: &v1::ResizeDisk,
    ) -> Result<(), v1::Error> {
        let disk = config::disk_address(resize.disk.as_ref()).map_err(field_error)?;
        self.ask(requester, Request::GrowDisk { disk })
    }

    fn set_disk_limits(
        &mut self,
        requester: Requester,
        change: &v1::SetDiskLimits,
    ) -> Result<(), v1::Error> {
        let disk = config::disk_address(change.disk.as_ref()).map_err(field_error)?;
        let limits = config::disk_limits(change.limits.as_ref());
        self.ask(requester, Request::SetDiskLimits { disk, limits })
    }

    fn stop(&mut self, requester: Requester, reason: String) -> Result<(), v1::Error> {
        if self.guest.is_some() {
            return self.ask(requester, Request::Stop { reason });
        }
        self.log.info("stopped", "before it was configured");
        self.answer(requester, None);
        self.begin_farewell();
        Ok(())
    }

    /// The machine has carried a request out, or refused it.
    pub(crate) fn on_answered(&mut self, ticket: u64, result: Result<(), RequestError>) {
        let Some(requester) = self.pending.waiting.remove(&ticket) else {
            return;
        };
        let refusal = result.err().map(|refused| match refused {
            RequestError::WrongState { .. } => {
                error(v1::ErrorCode::WrongState, &refused.to_string())
            }
            RequestError::Disk(_) | RequestError::Nic(_) => {
                error(v1::ErrorCode::InvalidArgument, &chain(&refused))
            }
            RequestError::Host(_) | RequestError::Memory(_) | RequestError::Save(_) => {
                error(v1::ErrorCode::Host, &chain(&refused))
            }
        });
        self.answer(requester, refusal);
    }

    /// Nobody is answered by the machine any more.
    pub(crate) fn refuse_pending(&mut self, text: &str) {
        for (_, requester) in std::mem::take(&mut self.pending.waiting) {
            self.answer(requester, Some(error(v1::ErrorCode::WrongState, text)));
        }
    }
}
