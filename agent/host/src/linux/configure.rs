//! Giving a VMM its machine: everything is opened here and passed as descriptors.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use agent_domain::{
    Attachment, Boot, Disk, DiskSource, FirmwareBoot, KernelBoot, SingleDevice, Vmi,
};
use agent_plan::{Failure, ImageEvent, PciAddresses, Record, Timestamp};
use proto_vmm::v1::{self, request::Kind};

use super::LinuxHost;
use crate::container_disks::Wanted;
use crate::control::{self, Connection};
use crate::disks::{DiskError, DiskOpener};
use crate::failure::{chain, fatal, retry};
use crate::firmware::{self, FirmwareError, VariablePlaces};
use crate::kernels::{KernelError, boot_files};
use crate::layout::PathUid;
use crate::machine_config::{
    Launch, MachinePolicy, Opened, OpenedBoot, OpenedTap, OpenedVsock, assemble, offer_vhost,
};
use crate::taps::{self, TapSpec};
use crate::work::{ClosedElsewhere, Work};

const VHOST_NET: &str = "/dev/vhost-net";

impl LinuxHost {
    /// Makes sure that what is booted can be had.
    pub(super) async fn ensure_boot_files(
        &self,
        uid: &PathUid,
        vmi: &Vmi,
        work: &Work,
    ) -> Result<(), Failure> {
        let failure = match &vmi.boot {
            Boot::Kernel(kernel) => return self.open_kernel(vmi, kernel, work).await.map(drop),
            Boot::Firmware(boot) => match self.open_firmware(uid, vmi, boot, work).await {
                Ok(_) => return Ok(()),
                // The VMI's own VMM may have its variables already.
                Err(FirmwareError::InUse { .. }) if self.is_configured(uid).await => return Ok(()),
                Err(error) => error,
            },
        };
        Err(firmware_failure(&failure))
    }

    async fn open_boot(
        &self,
        uid: &PathUid,
        vmi: &Vmi,
        work: &Work,
    ) -> Result<ClosedElsewhere<OpenedBoot>, Failure> {
        match &vmi.boot {
            Boot::Kernel(kernel) => self.open_kernel(vmi, kernel, work).await,
            Boot::Firmware(boot) => {
                let opened = self.open_firmware(uid, vmi, boot, work).await;
                opened.map_err(|error| firmware_failure(&error))
            }
        }
    }

    /// Finds, unpacks and caches kernel and initrd.
    async fn open_kernel(
        &self,
        vmi: &Vmi,
        kernel: &KernelBoot,
        work: &Work,
    ) -> Result<ClosedElsewhere<OpenedBoot>, Failure> {
        let settings = self.settings();
        let unpack = settings.config.unpack_kernels;
        let allowed = settings.allowed_paths(&vmi.namespace);
        let files = boot_files(kernel, &allowed, (&self.kernels, unpack), work)
            .await
            .map_err(|error| kernel_failure(&error))?;
        let files = files.into_inner();
        Ok(ClosedElsewhere::new(OpenedBoot::Kernel {
            kernel: files.kernel.into(),
            initrd: files.initrd.map(Into::into),
            cmdline: kernel.cmdline.clone(),
        }))
    }

    async fn open_firmware(
        &self,
        uid: &PathUid,
        vmi: &Vmi,
        boot: &FirmwareBoot,
        work: &Work,
    ) -> Result<ClosedElsewhere<OpenedBoot>, FirmwareError> {
        let places = VariablePlaces {
            own: self.layout.variables_of(uid),
            kept: self.layout.kept_variables(&vmi.namespace, &vmi.name),
        };
        let (boot, settings) = (boot.clone(), self.settings());
        let place = settings.firmware.place().to_owned();
        let of_operation = work.clone();
        let opened = work.files(&place, move || {
            let opened = firmware::open(&boot, &settings.firmware, &places, &of_operation);
            Ok::<_, io::Error>(opened.map(ClosedElsewhere::new))
        });
        opened.await.map_err(|source| FirmwareError::Open {
            path: place.display().to_string(),
            source,
        })?
    }

    /// Makes sure that every disk can be had.
    pub(super) async fn ensure_disks(
        &self,
        uid: &PathUid,
        vmi: &Vmi,
        work: &Work,
    ) -> Result<(), Failure> {
        let (bases, present) = self.open_bases(vmi, work).await?;
        match self
            .each_disk(
                uid,
                (vmi, &PciAddresses::default(), bases),
                work,
                DiskOpener::ensure,
            )
            .await
        {
            Ok(_) => {}
            // The VMI's own VMM may have it already.
            Err(DiskError::InUse { .. }) if self.is_configured(uid).await => {}
            Err(error) => return Err(disk_failure(&error)),
        }
        // Not before all is there: an attempt that waits for another disk is repeated each second.
        for image in present {
            work.report_image(ImageEvent::Present { image });
        }
        Ok(())
    }

    /// The disks out of images, and the names of images for which nothing was pulled.
    async fn open_bases(
        &self,
        vmi: &Vmi,
        work: &Work,
    ) -> Result<(Vec<Option<File>>, Vec<String>), Failure> {
        let settings = self.settings();
        let mut bases = Vec::new();
        let mut present = Vec::new();
        for disk in &vmi.disks {
            let DiskSource::Container(container) = &disk.source else {
                bases.push(None);
                continue;
            };
            let wanted = Wanted {
                disk: container,
                namespace: &vmi.namespace,
                allowed: settings.allowed_paths(&vmi.namespace),
                registries: &settings.config.registries,
                work,
            };
            let opened = self.container_disks.open(wanted).await?;
            if opened.was_present {
                present.push(container.name.clone());
            }
            bases.push(Some(opened.file));
        }
        Ok((bases, present))
    }

    /// Does something with each disk, one after the other, so that what has to be waited for has a name.
    async fn each_disk<T: Send + 'static>(
        &self,
        uid: &PathUid,
        (vmi, addresses, bases): (&Vmi, &PciAddresses, Vec<Option<File>>),
        work: &Work,
        call: fn(&DiskOpener, &Vmi, &Disk, Option<File>) -> Result<T, DiskError>,
    ) -> Result<Vec<T>, DiskError> {
        let vmi = Arc::new(vmi.clone());
        let mut done = Vec::new();
        for (disk, base) in vmi.disks.iter().zip(bases) {
            let opener = DiskOpener {
                allowed: self.settings().allowed_paths(&vmi.namespace),
                own_dir: self.layout.disks_of(uid),
                addresses: addresses.clone(),
                work: work.clone(),
            };
            let place = match &disk.source {
                DiskSource::Host { path, .. } => path.clone(),
                _ => opener.own_dir.clone(),
            };
            let (of_thread, wanted) = (Arc::clone(&vmi), disk.clone());
            let open = move || Ok::<_, io::Error>(call(&opener, &of_thread, &wanted, base));
            let outcome = work.files(&place, open).await;
            let outcome = outcome.map_err(|source| DiskError::Io {
                disk: disk.name.to_string(),
                path: place.display().to_string(),
                action: "opened",
                source,
            })?;
            done.push(outcome?);
        }
        Ok(done)
    }

    /// Makes sure that there is a tap for every interface.
    pub(super) async fn ensure_taps(&self, uid: &PathUid, vmi: &Vmi) -> Result<(), Failure> {
        self.ensure_pod_network(vmi).await?;
        let settings = self.settings();
        for (index, interface) in vmi.interfaces.iter().enumerate() {
            // The pod network's is made in the VMM's namespace, once there is one.
            let Attachment::Network(network) = &interface.attachment else {
                continue;
            };
            if self.memory().vmi(uid).taps.contains_key(&index) {
                continue;
            }
            let network = network.as_str();
            let bridge = settings.config.bridges.get(network).ok_or_else(|| {
                let message = format!(
                    "interface {}: the setting networks.{network}.bridge is missing",
                    interface.name
                );
                retry("NetworkNotConfigured", message)
            })?;
            let name = taps::tap_name(uid, index);
            let spec = TapSpec {
                name: &name,
                network,
                bridge,
                guest_mac: interface.mac.octets(),
                queues: interface.queues,
            };
            match taps::create(&spec).await {
                Ok(tap) => {
                    self.memory().vmi(uid).taps.insert(index, tap);
                }
                Err(_) if self.is_configured(uid).await => {}
                Err(error) => {
                    let message = format!("interface {}: {}", interface.name, chain(&error));
                    return Err(retry("NetworkNotReady", message));
                }
            }
        }
        Ok(())
    }

    /// Takes copies of the taps' descriptors; the agent's own go when the VMM has them.
    fn held_taps(&self, uid: &PathUid, count: usize) -> Result<Vec<OpenedTap>, Failure> {
        let mut memory = self.memory();
        let taps = &memory.vmi(uid).taps;
        (0..count)
            .map(|index| {
                let tap = taps.get(&index).ok_or_else(|| {
                    retry("NetworkNotReady", format!("interface {index} has no tap"))
                })?;
                let queues = tap.queues.iter().map(OwnedFd::try_clone);
                let queues = queues.collect::<Result<_, _>>().map_err(|error| {
                    retry("NetworkNotReady", format!("interface {index}: {error}"))
                })?;
                Ok(OpenedTap {
                    queues,
                    mtu: tap.mtu,
                })
            })
            .collect()
    }

    /// The socket at which the VMM, which has no machine yet, will listen for peers of its guest's
    /// agent.
    fn listen_for_guest_agent(&self, uid: &PathUid, incarnation: u64) -> Result<OwnedFd, Failure> {
        let dir = self.layout.run_of_vmm(uid, incarnation);
        let listener = control::listen_for_guest_agent(&dir)
            .map_err(|error| retry("HostFailed", format!("{}: {error}", dir.display())))?;
        Ok(listener.into())
    }

    /// Both ways between programs of the guest and of the node.
    fn vsock(
        &self,
        uid: &PathUid,
        incarnation: u64,
        vmi: &Vmi,
        record: &Record,
    ) -> Result<Option<OpenedVsock>, Failure> {
        if !vmi.has(SingleDevice::Vsock) {
            return Ok(None);
        }
        let cid = record
            .allocations
            .vsock_cid
            .ok_or_else(|| fatal("NoVsockAddress", "the VMI has no vsock address"))?;
        let dir = self.layout.run_of_vmm(uid, incarnation);
        let broker = Arc::clone(&self.memory().vmi(uid).broker);
        let failed = |error: io::Error| retry("HostFailed", format!("{}: {error}", dir.display()));
        Ok(Some(OpenedVsock {
            cid,
            listener: control::listen_for_vsock(&dir).map_err(failed)?.into(),
            broker: broker.start(incarnation, &dir).map_err(failed)?,
        }))
    }

    /// Whether a VMM of this VMI has its machine, and thereby its disks and taps.
    async fn is_configured(&self, uid: &PathUid) -> bool {
        let Ok(incarnations) = self.layout.run_incarnations(uid) else {
            return false;
        };
        for incarnation in incarnations {
            let vmm = self
                .living_vmm(uid, incarnation, Timestamp::default())
                .await;
            let machine = vmm
                .ok()
                .flatten()
                .and_then(|vmm| vmm.machine.present().cloned());
            if machine
                .is_some_and(|machine| machine.state != agent_plan::MachineState::Unconfigured)
            {
                return true;
            }
        }
        false
    }

    /// Opens the files and devices of a machine.
    async fn open_all(
        &self,
        uid: &PathUid,
        incarnation: u64,
        (vmi, record): (&Vmi, &Record),
        work: &Work,
    ) -> Result<ClosedElsewhere<Opened>, Failure> {
        let boot = self.open_boot(uid, vmi, work).await?;
        let (bases, _) = self.open_bases(vmi, work).await?;
        let addresses = &record.allocations.pci;
        let disks = self.each_disk(
            uid,
            (vmi, addresses, bases),
            work,
            |opener, vmi, disk, base| opener.open(vmi, disk, base).map(ClosedElsewhere::new),
        );
        let disks = disks.await;
        let disks = disks.map_err(|error| disk_failure(&error))?;
        let exit_record_path = self.layout.exit_record(uid, incarnation);
        let console_log_path = self.layout.console_log(uid, incarnation);
        let kvm = open_kvm(Path::new("/dev/kvm"))?;
        let exit_record = open_own(&exit_record_path);
        let exit_record = exit_record.map_err(|error| host_failure(&error, &exit_record_path))?;
        let console_log = open_own(&console_log_path);
        let console_log = console_log.map_err(|error| host_failure(&error, &console_log_path))?;
        let taps = self.held_taps(uid, vmi.interfaces.len())?;
        let guest_agent = self.listen_for_guest_agent(uid, incarnation)?;
        let vsock = self.vsock(uid, incarnation, vmi, record)?;
        Ok(ClosedElsewhere::new(Opened {
            kvm,
            exit_record,
            console_log,
            boot: boot.into_inner(),
            disks: disks.into_iter().map(ClosedElsewhere::into_inner).collect(),
            taps,
            guest_agent,
            vsock,
        }))
    }

    /// Opens everything and sends it. A VMM that has its machine already is left alone.
    pub(super) async fn configure_vmm(
        &self,
        uid: &PathUid,
        incarnation: u64,
        (vmi, record): (&Vmi, &Record),
        work: &Work,
    ) -> Result<(), Failure> {
        let mut connection = self.connect(uid, incarnation).await?;
        if let Some(configured) = configured_as(&connection) {
            if configured == (uid.as_str().to_owned(), incarnation) {
                // The answer to an earlier request may have been lost.
                self.memory().vmi(uid).taps.clear();
                return Ok(());
            }
            let (other, number) = configured;
            return Err(retry(
                "VmmHasAnotherMachine",
                format!("the VMM runs incarnation {number} of the VMI {other}"),
            ));
        }
        self.ensure_taps(uid, vmi).await?;
        self.wall_in(uid, incarnation, vmi).await?;
        self.join_pod_network(uid, incarnation, (vmi, record))
            .await?;
        let opened = self.open_all(uid, incarnation, (vmi, record), work);
        let opened = opened.await?;
        let launch = Launch {
            incarnation,
            addresses: &record.allocations.pci,
            cpus: record
                .allocations
                .reservation
                .as_ref()
                .and_then(|demand| demand.cpus.as_ref()),
            generation_id: generation_id()
                .map_err(|error| host_failure(&error, Path::new("/dev/urandom")))?,
        };
        let settings = self.settings();
        let policy = MachinePolicy {
            console_log_bytes: settings.config.console_log_bytes,
            memory_mapped_pci: settings.config.memory_mapped_pci,
            debug_ports: settings.config.debug_ports,
        };
        let (mut machine, mut descriptors) = assemble(vmi, launch, opened.get(), policy)
            .map_err(|error| fatal(error.reason(), chain(&error)))?;
        let vhost = offer_vhost(&mut machine, descriptors.len(), open_vhost_net);
        descriptors.extend(vhost.iter().map(AsFd::as_fd));
        let request = Kind::Configure(v1::Configure {
            machine: Some(machine),
            snapshot_fd: None,
        });
        connection
            .request(request, &descriptors)
            .await
            .map_err(|error| super::execute::control_failure(&error))?;
        // The VMM has them now; closing the agent's lets them end with the VMM.
        self.memory().vmi(uid).taps.clear();
        Ok(())
    }
}

/// The VMI and incarnation that a VMM was configured for.
fn configured_as(connection: &Connection) -> Option<(String, u64)> {
    let hello = connection.hello();
    let state = hello.status.as_ref().map(v1::MachineStatus::state)?;
    if state == v1::MachineState::Unconfigured {
        return None;
    }
    let identity = hello.identity.clone().unwrap_or_default();
    Some((identity.vmi_uid, identity.incarnation))
}

/// What tells this start of a guest from all others.
fn generation_id() -> io::Result<[u8; 16]> {
    let mut id = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(id)
}

fn open_vhost_net() -> io::Result<OwnedFd> {
    let mut options = fs::OpenOptions::new();
    options
        .read(true)
        .write(true)
        .open(VHOST_NET)
        .map(Into::into)
}

fn open_kvm(path: &Path) -> Result<OwnedFd, Failure> {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map(Into::into)
        .map_err(|error| {
            let hint = "load kvm-intel or kvm-amd, switch virtualization on in the firmware, or give \
                        the agent access to the device";
            retry("KvmNotAvailable", format!("{}: {error} ({hint})", path.display()))
        })
}

fn host_failure(error: &io::Error, path: &Path) -> Failure {
    retry("HostFailed", format!("{}: {error}", path.display()))
}

/// A file that the agent makes and the VMM writes.
fn open_own(path: &Path) -> io::Result<OwnedFd> {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map(Into::into)
}

fn kernel_failure(error: &KernelError) -> Failure {
    if error.is_final() {
        fatal(error.reason(), chain(error))
    } else {
        retry(error.reason(), chain(error))
    }
}

/// Packages may be installed, settings changed and stores removed.
fn firmware_failure(error: &FirmwareError) -> Failure {
    retry(error.reason(), chain(error))
}

fn disk_failure(error: &DiskError) -> Failure {
    if error.is_final() {
        fatal(error.reason(), chain(error))
    } else {
        retry(error.reason(), chain(error))
    }
}
