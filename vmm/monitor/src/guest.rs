//! What is asked of the guest, and what becomes of it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use prost::Message;
use proto_vmm::v1::{self, frame::Body, request::Kind};
use vmm_machine::{
    BuildError, Change, End, GuestRam, MachineConfig, MachineHandle, Request, Restore,
    SerialConfig, Snapshot,
};

use crate::config::{self, CheckedConfig, FieldError};
use crate::descriptors::{Access, Descriptors};
use crate::exit_record::Target;
use crate::log::chain;
use crate::log_file::LogFile;
use crate::notices::Notice;
use crate::server::Server;
use crate::snapshot_file;
use crate::status;

/// Answers that peers wait for; a peer that asks for more at a time is refused.
const MAX_PENDING: usize = 256;

/// The guest of this process, once it is configured.
pub struct Guest {
    /// Uid of the VMI.
    pub vmi_uid: String,
    /// Counts the VMMs of this uid.
    pub incarnation: u64,
    /// The configuration as it came, to know it again.
    encoded: Vec<u8>,
    handle: MachineHandle,
    is_built: bool,
    exit: Option<v1::ExitRecord>,
}

/// Who waits for which answer.
#[derive(Default)]
pub struct PendingAnswers {
    next_ticket: u64,
    waiting: BTreeMap<u64, Asker>,
    /// Those who sent a configuration that is being built.
    builders: Vec<Asker>,
}

/// A request of a peer.
#[derive(Clone, Copy)]
struct Asker {
    connection: u32,
    request: u64,
}

impl Server {
    /// The machine's status as the wire has it.
    pub(crate) fn status(&self) -> v1::MachineStatus {
        match &self.guest {
            Some(guest) => status::of_machine(&guest.handle.status(), guest.exit.as_ref()),
            None => status::unconfigured(),
        }
    }

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
            Some(Kind::AttachConsole(attach)) => self.attach_console(asker, attach, descriptors),
            _ if !descriptors.is_empty() => Err(error(
                v1::ErrorCode::InvalidArgument,
                "descriptors came with a request that takes none",
            )),
            Some(Kind::GetStatus(_)) => {
                self.answer(asker, None);
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
            None => Err(error(
                v1::ErrorCode::Unsupported,
                "this VMM does not know the request",
            )),
        };
        if let Err(refusal) = refused {
            self.answer(asker, Some(refusal));
        }
    }

    fn answer(&mut self, asker: Asker, error: Option<v1::Error>) {
        let response = v1::Response {
            id: asker.request,
            error,
            status: Some(self.status()),
            console_offset: 0,
        };
        self.send(asker.connection, Body::Response(response));
    }

    /// Passes a request on; the machine's answer goes back by its ticket.
    fn ask(&mut self, asker: Asker, request: Request) -> Result<(), v1::Error> {
        self.pass_on(asker, |handle, ticket| handle.request(ticket, request))
    }

    /// Has the machine write a snapshot, on its own thread.
    fn save(&mut self, asker: Asker, descriptors: Vec<OwnedFd>) -> Result<(), v1::Error> {
        let mut descriptors = Descriptors::new(descriptors);
        let file = descriptors
            .take_file("descriptors", 0, Access::Write)
            .map_err(field_error)?;
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
        let Some(guest) = &self.guest else {
            return Err(error(
                v1::ErrorCode::WrongState,
                "the machine is not configured yet",
            ));
        };
        if guest.exit.is_some() {
            return Err(error(v1::ErrorCode::WrongState, "the guest has ended"));
        }
        if self.pending.waiting.len() >= MAX_PENDING {
            return Err(error(
                v1::ErrorCode::WrongState,
                "too many requests wait for their answers",
            ));
        }
        let ticket = self.pending.next_ticket;
        self.pending.next_ticket += 1;
        self.pending.waiting.insert(ticket, asker);
        pass(&guest.handle, ticket);
        Ok(())
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

    fn attach_console(
        &mut self,
        asker: Asker,
        attach: v1::AttachConsole,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), v1::Error> {
        let Ok([socket]) = <[OwnedFd; 1]>::try_from(descriptors) else {
            return Err(error(
                v1::ErrorCode::InvalidArgument,
                "AttachConsole takes exactly one descriptor, a stream socket",
            ));
        };
        if nix::sys::socket::getsockopt(&socket, nix::sys::socket::sockopt::SockType)
            != Ok(nix::sys::socket::SockType::Stream)
        {
            return Err(error(
                v1::ErrorCode::InvalidArgument,
                "the descriptor of AttachConsole is not a stream socket",
            ));
        }
        // The present client's descriptor is about to be closed.
        let client: String = attach.client.chars().take(256).collect();
        if attach.force {
            self.forget_console_client();
        }
        let replay = attach.replay.then_some(attach.replay_from);
        let console_offset = self
            .console
            .attach(socket, client, replay, attach.force)
            .map_err(|busy| {
                let text = format!("the console is in use by {:?}", busy.client);
                error(v1::ErrorCode::ConsoleBusy, &text)
            })?;
        let response = v1::Response {
            id: asker.request,
            error: None,
            status: Some(self.status()),
            console_offset,
        };
        self.send(asker.connection, Body::Response(response));
        Ok(())
    }

    fn configure(
        &mut self,
        asker: Asker,
        configure: &v1::Configure,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), v1::Error> {
        let encoded = configure.encode_to_vec();
        if let Some(guest) = &self.guest {
            if guest.encoded != encoded {
                let text = format!(
                    "the machine is configured already, for uid {:?}, incarnation {}",
                    guest.vmi_uid, guest.incarnation
                );
                return Err(error(v1::ErrorCode::AlreadyConfigured, &text));
            }
            if guest.is_built {
                self.answer(asker, None);
            } else {
                self.pending.builders.push(asker);
            }
            return Ok(());
        }
        if self.farewell.is_some() {
            return Err(error(v1::ErrorCode::WrongState, "this VMM is about to end"));
        }
        let wire = configure.machine.clone().unwrap_or_default();
        let mut descriptors = Descriptors::new(descriptors);
        let snapshot = configure
            .snapshot_fd
            .map(|index| descriptors.take_file("snapshot_fd", index, Access::Read))
            .transpose()
            .map_err(field_error)?;
        let checked = config::check(&wire, descriptors).map_err(field_error)?;
        let restore = snapshot
            .map(|file| snapshot_file::read(file, checked.ram_bytes))
            .transpose()
            .map_err(|wrong| field_error(FieldError::new("snapshot_fd", chain(&wrong))))?;
        self.start_machine(&wire, encoded, checked, restore)?;
        self.pending.builders.push(asker);
        Ok(())
    }

    fn start_machine(
        &mut self,
        wire: &v1::MachineConfig,
        encoded: Vec<u8>,
        checked: CheckedConfig,
        restore: Option<Restore>,
    ) -> Result<(), v1::Error> {
        if let Some((file, limit_bytes)) = checked.console_log {
            let log = LogFile::new(file, limit_bytes).map_err(|io_error| {
                field_error(FieldError::new("serial.log_fd", io_error.to_string()))
            })?;
            self.console.set_log(log);
        }
        let machine = MachineConfig {
            dev_kvm: checked.dev_kvm,
            cpus: checked.cpus,
            clock: checked.clock,
            ram_bytes: checked.ram_bytes,
            kernel: checked.kernel,
            reboot_policy: checked.reboot_policy,
            serial: SerialConfig {
                port: self.console.port(),
                interrupt: self.console.interrupt(),
            },
            devices: checked.devices,
            io_threads: checked.io_threads,
            debug: checked.debug,
            numa_nodes: Vec::new(),
            smbios: checked.smbios,
        };
        let handle = vmm_machine::start(machine, restore, self.notices.observer())
            .map_err(|io_error| error(v1::ErrorCode::Host, &io_error.to_string()))?;
        self.recorder.set_target(Target {
            file: checked.exit_record,
            vmi_uid: wire.vmi_uid.clone(),
            incarnation: wire.incarnation,
            boot_id: self.identity.boot_id.clone(),
        });
        self.recorder.set_machine(handle.clone());
        self.guest = Some(Guest {
            vmi_uid: wire.vmi_uid.clone(),
            incarnation: wire.incarnation,
            encoded,
            handle,
            is_built: false,
            exit: None,
        });
        let vmi = format!("{}/{}", wire.vmi_namespace, wire.vmi_name);
        self.log.set_guest(&vmi, &wire.vmi_uid, wire.incarnation);
        Ok(())
    }

    /// What the machine's thread told.
    pub(crate) fn on_notices(&mut self) {
        for notice in self.notices.take() {
            match notice {
                Notice::Built(Ok(())) => self.on_built(),
                Notice::Built(Err(error)) => self.on_build_failed(&error),
                Notice::Answered { ticket, result } => {
                    if let Some(asker) = self.pending.waiting.remove(&ticket) {
                        let refusal = result.err().map(|refused| match refused {
                            vmm_machine::RequestError::WrongState { .. } => {
                                error(v1::ErrorCode::WrongState, &refused.to_string())
                            }
                            vmm_machine::RequestError::Disk(_) => {
                                error(v1::ErrorCode::InvalidArgument, &chain(&refused))
                            }
                            vmm_machine::RequestError::Host(_)
                            | vmm_machine::RequestError::Save(_) => {
                                error(v1::ErrorCode::Host, &chain(&refused))
                            }
                        });
                        self.answer(asker, refusal);
                    }
                }
                Notice::Changed(Change::Ended) => self.on_ended(),
                Notice::Changed(change) => {
                    self.log.info(change_name(change), &change_detail(change));
                    self.broadcast(status::event_kind(change));
                }
            }
        }
    }

    fn on_built(&mut self) {
        self.log.info("configured", "");
        if let Some(guest) = &mut self.guest {
            guest.is_built = true;
        }
        for asker in std::mem::take(&mut self.pending.builders) {
            self.answer(asker, None);
        }
    }

    /// A wrong configuration leaves everything as it was; a host that fails ends the process.
    fn on_build_failed(&mut self, build_error: &BuildError) {
        let text = chain(build_error);
        self.log.error("configure", &text);
        let refusal = if build_error.is_configuration() {
            self.recorder.clear_target();
            self.guest = None;
            v1::Error {
                field: field_of(build_error),
                ..error(v1::ErrorCode::InvalidArgument, &text)
            }
        } else {
            let reason = v1::ExitReason::ConfigureFailed;
            let record = self.recorder.write(&self.log, reason, &text, 0);
            if let Some(guest) = &mut self.guest {
                guest.exit = Some(record);
            }
            self.begin_farewell();
            error(v1::ErrorCode::Host, &text)
        };
        for asker in std::mem::take(&mut self.pending.builders) {
            self.answer(asker, Some(refusal.clone()));
        }
        self.refuse_pending("the machine could not be built");
    }

    fn refuse_pending(&mut self, text: &str) {
        for (_, asker) in std::mem::take(&mut self.pending.waiting) {
            self.answer(asker, Some(error(v1::ErrorCode::WrongState, text)));
        }
    }

    fn on_ended(&mut self) {
        let failed = self.console.serve_output();
        self.report_lost_log(failed);
        let Some(guest) = &mut self.guest else {
            return;
        };
        let End { reason, detail } = guest.handle.status().end.unwrap_or(End {
            reason: vmm_machine::EndReason::HostFailed,
            detail: "the machine ended without a reason".to_owned(),
        });
        let reason = status::exit_reason(reason);
        let signal = if reason == v1::ExitReason::Stopped {
            self.signal
        } else {
            0
        };
        let record = self.recorder.write(&self.log, reason, &detail, signal);
        self.log
            .info("ended", &format!("{}: {detail}", reason.as_str_name()));
        guest.exit = Some(record);
        self.refuse_pending("the guest has ended");
        self.broadcast(v1::EventKind::Exited);
        self.begin_farewell();
    }

    /// Somebody wants the process to end. The second time it ends at once.
    pub(crate) fn on_termination(&mut self, signal: u32) {
        let first = self.signal == 0;
        self.signal = signal;
        self.log.info("signal", &signal.to_string());
        match &self.guest {
            Some(guest) if first && guest.exit.is_none() => {
                let reason = format!("signal {signal}");
                // Nobody waits for this ticket.
                guest.handle.request(u64::MAX, Request::Stop { reason });
            }
            Some(_) => {
                let reason = v1::ExitReason::Stopped;
                self.recorder
                    .write(&self.log, reason, "asked twice by signal", signal);
                self.begin_farewell();
            }
            None => self.begin_farewell(),
        }
    }
}

fn error(code: v1::ErrorCode, message: &str) -> v1::Error {
    v1::Error {
        code: code.into(),
        message: message.to_owned(),
        field: String::new(),
    }
}

fn field_error(wrong: FieldError) -> v1::Error {
    v1::Error {
        field: wrong.field.clone(),
        ..error(v1::ErrorCode::InvalidArgument, &wrong.to_string())
    }
}

/// The field that a configuration's build error is about.
fn field_of(build_error: &BuildError) -> String {
    let field = match build_error {
        BuildError::Cpus(error) => return format!("cpus.{}", error.field()),
        BuildError::Layout(_) => "memory.size_bytes",
        BuildError::TooManyVcpus { .. } | BuildError::Acpi(_) => "cpus.count",
        BuildError::Device(_) | BuildError::Pci(_) => "devices",
        BuildError::Snapshot(_) => "snapshot_fd",
        BuildError::Boot(_) => "kernel",
        _ => "",
    };
    field.to_owned()
}

fn change_name(change: Change) -> &'static str {
    match change {
        Change::Booted => "booted",
        Change::Reset(_) => "reset",
        Change::Paused => "paused",
        Change::Resumed => "resumed",
        Change::Ended => "ended",
    }
}

fn change_detail(change: Change) -> String {
    match change {
        Change::Reset(Some(source)) => source.to_string(),
        Change::Reset(None) => "on request".to_owned(),
        Change::Booted | Change::Paused | Change::Resumed | Change::Ended => String::new(),
    }
}
