//! Why a machine could not be built.

use std::io;

use vmm_devices::QuiesceError;
use vmm_kvm::{CpuError, KvmError};
use vmm_memory::{LayoutError, RamError, RomError};

use crate::acpi::AcpiError;
use crate::boot::BootError;
use crate::firmware::error::FirmwareError;
use crate::functions::error::DeviceError;
use crate::memory::error::TooManySlots;
use crate::pci::address::PciAddress;
use crate::pci::error::PciBusError;
use crate::placement::PlacementError;
use crate::smbios::SmbiosError;
use crate::snapshot::error::SnapshotError;
use crate::stuck::{StuckThread, StuckVcpus};

/// Why a machine could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// KVM refused.
    #[error("KVM cannot make this machine")]
    Kvm(#[from] KvmError),
    /// RAM cannot be laid out.
    #[error("guest memory cannot be laid out")]
    Layout(#[from] LayoutError),
    /// KVM has too few memslots.
    #[error("guest memory cannot be laid out")]
    Slots(#[from] TooManySlots),
    /// RAM cannot be made.
    #[error("guest memory cannot be made")]
    Ram(#[from] RamError),
    /// Threads cannot run where they are to.
    #[error("threads cannot run where they are to")]
    Placement(#[from] PlacementError),
    /// More vCPUs than the host takes.
    #[error("{wanted} vCPUs are more than the {limit} that this host's KVM allows")]
    TooManyVcpus {
        /// Asked for.
        wanted: u32,
        /// The host's limit.
        limit: usize,
    },
    /// The host cannot give such CPUs.
    #[error("this host cannot give the guest its CPUs")]
    Cpus(#[from] CpuError),
    /// A PCI function cannot be made.
    #[error("PCI functions cannot be made")]
    Device(#[from] DeviceError),
    /// BARs do not fit.
    #[error("PCI functions do not fit")]
    Pci(#[from] PciBusError),
    /// There is no memory to show them in.
    #[error("PCI functions cannot be shown")]
    Shown(#[from] RomError),
    /// ACPI tables do not fit.
    #[error("ACPI tables cannot be written")]
    Acpi(#[from] AcpiError),
    /// SMBIOS does not fit.
    #[error("SMBIOS cannot be written")]
    Smbios(#[from] SmbiosError),
    /// Kernel, initrd or command line.
    #[error("the guest cannot be booted")]
    Boot(#[from] BootError),
    /// The firmware's image, its variable store or its configuration cannot be used.
    #[error("the guest cannot be booted by firmware")]
    Firmware(#[from] FirmwareError),
    /// Threads or descriptors.
    #[error("{what} could not be started")]
    Thread {
        /// The thread or descriptor.
        what: &'static str,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// It cannot be made of the snapshot.
    #[error("the snapshot does not fit")]
    Snapshot(#[from] SnapshotError),
    /// A device does not come to rest.
    #[error("{address} does not come to rest")]
    Quiesce {
        /// PCI address of the device.
        address: PciAddress,
        /// What it waits for.
        #[source]
        source: QuiesceError,
    },
    /// vCPUs did not come up.
    #[error("vCPUs did not get ready")]
    Vcpus(#[from] StuckVcpus),
}

impl From<StuckThread> for BuildError {
    fn from(stuck: StuckThread) -> Self {
        match stuck.device {
            Some(address) => Self::Quiesce {
                address,
                source: QuiesceError::InFlight {
                    in_flight: 1,
                    waited_ms: u64::try_from(stuck.waited.as_millis()).unwrap_or(u64::MAX),
                },
            },
            None => Self::Thread {
                what: "the pause of a device thread",
                source: io::ErrorKind::TimedOut.into(),
            },
        }
    }
}

impl BuildError {
    /// Whether the configuration is at fault, not the host.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            Self::Layout(_)
                | Self::Slots(_)
                | Self::Placement(PlacementError::NoCpu { .. })
                | Self::TooManyVcpus { .. }
                | Self::Cpus(_)
                | Self::Device(_)
                | Self::Pci(_)
                | Self::Acpi(_)
                | Self::Smbios(_)
                | Self::Snapshot(_)
                | Self::Boot(_)
                | Self::Firmware(_)
        )
    }
}
