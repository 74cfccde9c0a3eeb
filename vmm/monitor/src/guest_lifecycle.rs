//! Builds the guest, handles what its machine reports, and ends it.

use std::os::fd::OwnedFd;

use prost::Message;
use proto_vmm::v1;
use vmm_machine::{BuildError, Change, End, Request, Restore, Status, chain};

use crate::answers::{Requester, error, field_error};
use crate::config::error::FieldError;
use crate::config::{self, CheckedConfig};
use crate::descriptors::{Access, Descriptors};
use crate::exit_record::Target;
use crate::guest::Guest;
use crate::log::Level;
use crate::log_file::LogFile;
use crate::notices::Notice;
use crate::poller::Terminal;
use crate::server::Server;
use crate::snapshot_file;
use crate::status;

impl Server {
    /// The machine's status as the wire has it.
    pub(crate) fn status(&self) -> v1::MachineStatus {
        match &self.guest {
            Some(guest) => status::of_machine(&guest.handle.status(), guest.exit.as_ref()),
            None => status::unconfigured(),
        }
    }

    pub(crate) fn configure(
        &mut self,
        requester: Requester,
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
                self.answer(requester, None);
            } else {
                self.pending.builders.push(requester);
            }
            return Ok(());
        }
        if self.farewell.is_some() {
            return Err(error(v1::ErrorCode::WrongState, "this VMM is about to end"));
        }
        self.times.note_configure();
        let wire = configure.machine.clone().unwrap_or_default();
        let mut descriptors = Descriptors::new(descriptors);
        let snapshot = configure
            .snapshot_fd
            .map(|index| descriptors.take_file("snapshot_fd", index, Access::Read))
            .transpose()
            .map_err(field_error)?;
        let checked =
            config::check(&wire, descriptors, self.serial.config()).map_err(field_error)?;
        let restore = snapshot
            .map(|file| snapshot_file::read(file, checked.machine.memory.bytes))
            .transpose()
            .map_err(|wrong| field_error(FieldError::new("snapshot_fd", chain(&wrong))))?;
        self.start_machine(&wire, encoded, checked, restore)?;
        self.pending.builders.push(requester);
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
        let vsock = config::vsock_control(&checked.machine.devices);
        let placement = checked.machine.placement.clone();
        let host_failed =
            |io_error: std::io::Error| error(v1::ErrorCode::Host, &io_error.to_string());
        if let Some(parts) = checked.console {
            self.open_console_ports(parts).map_err(host_failed)?;
        }
        let observer = self.notices.observer();
        let handle = match self.machine.build(checked.machine, restore, observer) {
            Ok(handle) => handle,
            Err(io_error) => {
                self.close_console_ports();
                return Err(host_failed(io_error));
            }
        };
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
            placement,
            vsock,
            is_built: false,
            exit: None,
        });
        let vmi = format!("{}/{}", wire.vmi_namespace, wire.vmi_name);
        self.log.set_guest(&vmi, &wire.vmi_uid, wire.incarnation);
        Ok(())
    }

    /// Handles the notices of the machine's thread.
    pub(crate) fn on_notices(&mut self) {
        for notice in self.notices.take() {
            match notice {
                Notice::Built(Ok(())) => self.on_built(),
                Notice::Built(Err(error)) => self.on_build_failed(&error),
                Notice::Answered { ticket, result } => self.on_answered(ticket, result),
                Notice::Changed {
                    change: Change::Ended,
                    status,
                } => self.on_ended(&status),
                Notice::Changed { change, status } => {
                    let detail = status::change_detail(change);
                    self.log
                        .repeated(Level::Info, status::change_name(change), &detail);
                    if let Some(kind) = status::event_kind(change) {
                        self.broadcast(kind, &status);
                    }
                }
            }
        }
    }

    fn on_built(&mut self) {
        self.log.info("configured", "");
        if let Some(guest) = &mut self.guest {
            guest.is_built = true;
            // The main thread is one of the emulator's; the machine has seen to all others.
            if let Err(error) = guest.placement.pin_emulator() {
                self.log.warn("emulator-not-pinned", &error.to_string());
            }
        }
        for requester in std::mem::take(&mut self.pending.builders) {
            self.answer(requester, None);
        }
    }

    /// A wrong configuration leaves everything as it was; a host that fails ends the process.
    fn on_build_failed(&mut self, build_error: &BuildError) {
        let text = chain(build_error);
        self.log.error("configure", &text);
        let refusal = if build_error.is_configuration() {
            self.recorder.clear_target();
            self.close_console_ports();
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
        for requester in std::mem::take(&mut self.pending.builders) {
            self.answer(requester, Some(refusal.clone()));
        }
        self.refuse_pending("the machine could not be built");
    }

    fn on_ended(&mut self, status: &Status) {
        for terminal in Terminal::ALL {
            self.on_console_output(terminal);
        }
        let Some(guest) = &mut self.guest else {
            return;
        };
        let End { reason, detail } = status.end.clone().unwrap_or(End {
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
        self.broadcast(v1::EventKind::Exited, status);
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

/// The field that a configuration's build error is about.
fn field_of(build_error: &BuildError) -> String {
    let field = match build_error {
        BuildError::Cpus(error) => return format!("cpus.{}", error.field()),
        BuildError::Layout(error) if error.is_of_max() => "memory.max_size_bytes",
        BuildError::Layout(_) => "memory.size_bytes",
        BuildError::Slots(_) => "memory.max_size_bytes",
        BuildError::Placement(error) => return config::placement_field(error),
        BuildError::TooManyVcpus { .. } | BuildError::Acpi(_) => "cpus.count",
        BuildError::Device(_) | BuildError::Pci(_) => "devices",
        BuildError::Snapshot(_) => "snapshot_fd",
        BuildError::Boot(_) => "kernel",
        _ => "",
    };
    field.to_owned()
}
