//! The admitted VMI.

use std::path::PathBuf;
use std::time::Duration;

use proto_machine::smbios::SmbiosConfig;
use serde::{Deserialize, Serialize};

use crate::access::AccessCredential;
use crate::cloud_init::{CloudInit, DataVolume};
use crate::cpu::{ClockOptions, CpuOptions};
use crate::disk::DiskOptions;
use crate::name::{MacAddress, Name, Namespace, Uid};
use crate::pod::{Attachment, GuestNames, PodInterface};
use crate::probe::Probes;
use crate::pull_credentials::PullCredentials;
use crate::single_device::SingleDevice;

/// A guest as it is to run, fully resolved but for what only the host can know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vmi {
    /// Identity; never used twice.
    pub uid: Uid,
    /// Namespace in which `name` is unique.
    pub namespace: Namespace,
    /// Name within the namespace.
    pub name: Name,
    /// What the guest is to call itself; a DNS label.
    pub hostname: String,
    /// The instance type that it was made of, for cloud-init.
    pub instance_type: Option<String>,
    /// It asks that nothing it sends to networks of the configuration be judged ([`NETWORK_WALLS_ANNOTATION`](crate::NETWORK_WALLS_ANNOTATION)).
    pub without_walls: bool,
    /// Generation of the spec that was admitted.
    pub generation: i64,
    /// vCPUs.
    pub cpus: CpuTopology,
    /// What the vCPUs are.
    pub cpu: CpuOptions,
    /// Clocks that are not the CPUs'.
    pub clock: ClockOptions,
    /// Memory that the guest sees; whole MiB.
    pub memory_bytes: u64,
    /// What that memory is made of and may grow to.
    pub memory: MemoryOptions,
    /// What the host sets aside.
    pub resources: Resources,
    /// Kernel or firmware.
    pub boot: Boot,
    /// What the guest finds in SMBIOS.
    pub identity: SmbiosConfig,
    /// Disks in the order of the spec; the guest finds them as vda, vdb ... .
    pub disks: Vec<Disk>,
    /// Interfaces in the order of the spec.
    pub interfaces: Vec<Interface>,
    /// Its DNS settings.
    pub names: GuestNames,
    /// Keys and passwords for users of the guest.
    pub access_credentials: Vec<AccessCredential>,
    /// Queues of each disk, 1 to 64.
    pub disk_queues: u32,
    /// Devices of which a machine has at most one, in the order in which they get addresses.
    pub single_devices: Vec<SingleDevice>,
    /// What follows when the watchdog runs out, if there is one.
    pub watchdog: Option<WatchdogAction>,
    /// By what the guest reports a panic, beside [`SingleDevice::Pvpanic`].
    pub panic_devices: PanicDevices,
    /// The guest waits for an unpause before its first instruction.
    pub start_paused: bool,
    /// What the guest is asked while it runs.
    pub probes: Probes,
    /// What the guest's reset does.
    pub reboot_policy: RebootPolicy,
    /// From the power button to the kill; zero kills at once.
    pub termination_grace_period: Duration,
}

impl Vmi {
    /// Whether its machine has this device.
    #[must_use]
    pub fn has(&self, device: SingleDevice) -> bool {
        self.single_devices.contains(&device)
    }

    /// The number of the interface that others know the guest by: that of the pod network, wherever it stands, else the first.
    #[must_use]
    pub fn primary_interface(&self) -> Option<usize> {
        let of_pod = self.pod_interface().map(|(index, _)| index);
        of_pod.or_else(|| (!self.interfaces.is_empty()).then_some(0))
    }

    /// The interface of the pod network, if there is one, and its number among all interfaces.
    #[must_use]
    pub fn pod_interface(&self) -> Option<(usize, &PodInterface)> {
        let mut all = self.interfaces.iter().enumerate();
        all.find_map(|(index, interface)| match &interface.attachment {
            Attachment::Pod(pod) => Some((index, &**pod)),
            Attachment::Network(_) => None,
        })
    }
}

/// What guest memory is made of, and what it may grow to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Huge pages of the node; `None`: ordinary pages.
    pub hugepages: Option<HugepageSize>,
    /// At least what the guest starts with.
    pub max_bytes: u64,
}

/// Sizes of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugepageSize {
    /// 2 MiB.
    Mib2,
    /// 1 GiB.
    Gib1,
}

impl HugepageSize {
    /// Bytes of a page.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Mib2 => 2 << 20,
            Self::Gib1 => 1 << 30,
        }
    }
}

/// What follows when a watchdog runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogAction {
    /// The guest ends.
    PowerOff,
    /// The machine is reset.
    Reset,
    /// The ACPI power button is pressed.
    Shutdown,
}

/// By what a guest reports a panic, but for PCI functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PanicDevices {
    /// pvpanic at its I/O port.
    pub isa: bool,
    /// Hyper-V's crash registers.
    pub hyperv: bool,
}

/// vCPUs. Every member is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTopology {
    /// Sockets of the machine.
    pub sockets: u32,
    /// Cores per socket.
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
}

impl CpuTopology {
    /// Number of vCPUs. Admission saw to it that it fits.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.sockets
            .saturating_mul(self.cores)
            .saturating_mul(self.threads)
    }
}

/// What the host sets aside, as `domain.resources` says. Absent: nothing was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// CPU request in thousandths of a CPU.
    pub cpu_request_millis: Option<u64>,
    /// CPU limit in thousandths of a CPU.
    pub cpu_limit_millis: Option<u64>,
    /// Memory request.
    pub memory_request_bytes: Option<u64>,
    /// Memory limit.
    pub memory_limit_bytes: Option<u64>,
}

/// What a machine boots: a kernel directly, or firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Boot {
    /// A kernel, without firmware.
    Kernel(KernelBoot),
    /// Firmware, which finds something to boot.
    Firmware(FirmwareBoot),
}

impl Boot {
    /// The firmware, if there is any.
    #[must_use]
    pub const fn firmware(&self) -> Option<&FirmwareBoot> {
        match self {
            Self::Kernel(_) => None,
            Self::Firmware(boot) => Some(boot),
        }
    }
}

/// Boot by firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirmwareBoot {
    /// The firmware.
    pub bootloader: Bootloader,
    /// What is tried, first choice first; nothing else is.
    pub order: Vec<BootDevice>,
}

/// Firmware that boots the guest's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bootloader {
    /// Legacy BIOS (SeaBIOS).
    Bios {
        /// It uses the serial console.
        serial: bool,
    },
    /// UEFI without secure boot.
    Efi {
        /// Its variables belong to the VMI's name, not to the VMI.
        persistent: bool,
    },
}

/// Something to boot from, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootDevice {
    /// Name of a disk of the spec.
    Disk(Name),
    /// Name of an interface of the spec, for network boot.
    Interface(Name),
}

/// Direct boot of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelBoot {
    /// Where the files are.
    pub image: ImageLocation,
    /// Path of the kernel within the image, relative, without `..`.
    pub kernel_path: PathBuf,
    /// Path of the initrd within the image, relative, without `..`.
    pub initrd_path: Option<PathBuf>,
    /// Command line, at most 2047 bytes, without NUL.
    pub cmdline: String,
}

/// Where an image is on the node. Paths are absolute, normalised, below an allowed directory as far
/// as text can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageLocation {
    /// `dir:PATH`: a directory.
    Directory(PathBuf),
    /// `oci:PATH[:REF]`: an OCI image layout and, where it holds several images, which.
    OciLayout {
        /// Directory of the layout.
        path: PathBuf,
        /// `org.opencontainers.image.ref.name` of the image.
        reference: Option<String>,
    },
}

/// A disk in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerDisk {
    /// The image as the spec names it.
    pub name: String,
    /// `name` once it was parsed: an image in a registry, or in a layout, archive or directory of the node.
    pub image: ContainerImage,
    /// The disk's file in the image, relative to its root; `None`: the only one in `disk`.
    pub path: Option<PathBuf>,
    /// When a registry is asked.
    pub pull: PullPolicy,
    /// The Secret of the VMI's namespace with what the registry wants, if it wants something.
    pub pull_secret: Option<String>,
    /// What it says, once it was read.
    pub credentials: PullCredentials,
}

/// Where an image with a disk is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerImage {
    /// In a layout of the node (`oci:`).
    Layout(ImageLocation),
    /// In an archive of the node (`oci-archive:`, `docker-archive:`).
    Archive(ImageArchive),
    /// In a directory of the node with its manifest and its layers, as skopeo writes it (`dir:`). Absolute, normalised,
    /// below an allowed directory as far as text can tell.
    Directory(PathBuf),
    /// In a registry.
    Registry(RegistryImage),
}

/// An archive of the node with images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageArchive {
    /// What `docker save` writes; otherwise an OCI image layout.
    pub is_docker: bool,
    /// Absolute, normalised, below an allowed directory as far as text can tell.
    pub path: PathBuf,
    /// Which of its images, where it holds several.
    pub reference: Option<String>,
}

/// An image in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryImage {
    /// `HOST[:PORT]`.
    pub registry: String,
    /// Path within the registry.
    pub repository: String,
    /// A tag, or `sha256:HEX`.
    pub reference: String,
}

/// When a registry is asked for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// At every start.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// No registry is asked: without the image on the node the VMI waits (`ErrImageNeverPull`).
    Never,
}

/// A virtio-blk disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Name of disk and volume; a DNS label, so it may be part of a file name.
    pub name: Name,
    /// Where its bytes are.
    pub source: DiskSource,
    /// The guest may only read.
    pub read_only: bool,
    /// What the guest reads as serial number; at most 20 bytes, may be empty.
    pub serial: String,
    /// How it is served.
    pub options: DiskOptions,
    /// Where the guest is to find it; `None`: anywhere. No other device asks for the same.
    pub pci_address: Option<PciAddress>,
}

impl Disk {
    /// Whether what the guest writes goes to a throw-away image over a base.
    #[must_use]
    pub const fn is_overlaid(&self) -> bool {
        matches!(self.source, DiskSource::Container(_)) && !self.read_only
    }
}

/// Where a PCI function sits: segment 0, function 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PciAddress {
    /// Bus number at power-on. Not 0: behind the root port with this secondary bus.
    pub bus: u8,
    /// 1 to 30 on bus 0, else 0.
    pub device: u8,
}

/// Where the bytes of a disk are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskSource {
    /// A raw image of the user's (`hostDisk`). It stays when the VMI is gone.
    Host {
        /// Absolute, normalised, below an allowed directory as far as text can tell.
        path: PathBuf,
        /// `DiskOrCreate`: make it, sparse, of this size, when it is missing.
        create_bytes: Option<u64>,
    },
    /// Files for cloud-init, on a volume that is made at each start.
    CloudInit(CloudInit),
    /// Data on a volume that is made at each start (`secret`, `configMap`, `sysprep`, `serviceAccount`,
    /// `downwardAPI`).
    Data(DataVolume),
    /// A disk in an image, under a throw-away overlay (`containerDisk`).
    Container(ContainerDisk),
    /// A sparse image that lives as long as the VMI (`emptyDisk`).
    Empty {
        /// Size; whole MiB.
        capacity_bytes: u64,
    },
}

impl DiskSource {
    /// Whether the agent makes it at the start of a guest, which only reads it.
    #[must_use]
    pub const fn is_made_once(&self) -> bool {
        matches!(self, Self::CloudInit(_) | Self::Data(_))
    }
}

/// A virtio-net interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name of interface and network; at most 63 bytes of `[A-Za-z0-9-_]`.
    pub name: Name,
    /// MAC address that the guest sees.
    pub mac: MacAddress,
    /// Where the guest is to find it; `None`: anywhere. No other device asks for the same.
    pub pci_address: Option<PciAddress>,
    /// Network that the interface is attached to.
    pub attachment: Attachment,
    /// Queue pairs, at least 1.
    pub queues: u32,
    /// The guest sees a link without carrier (`state: down`).
    pub link_down: bool,
    /// By which the guest finds it in its config drive; may be empty.
    pub tag: String,
    /// Number by which firmware names it: 1 to 16383, and no other interface's.
    pub acpi_index: Option<u16>,
}

/// What the guest's reset does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RebootPolicy {
    /// The guest boots again.
    #[default]
    Reboot,
    /// The VMI ends.
    Terminate,
}
