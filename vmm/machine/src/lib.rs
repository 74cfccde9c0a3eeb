//! The machine of one guest: a minimal q35-compatible PC on KVM.
//!
//! Owns the build phases ([`build`]), the PCI bus and its interrupts, the vCPU threads, the thread
//! that serves devices and those of their own that some have, and the one machine thread, which alone changes a machine's state
//! ([`MachineThread`]), whose single queue takes requests and guest events alike.
//!
//! Threads of a running machine: `machine` (the machine thread), `devices`, one `io-NAME` for each thread that
//! the configuration asks for, and `vcpu0` to `vcpuN`. Only the
//! machine thread gives vCPUs commands, by the gate that each passes on its way into the guest.

#![forbid(unsafe_code)]

mod acpi;
mod backoff;
mod balloon;
mod boot;
pub mod build;
mod built;
mod cancelled_build;
mod chain;
mod change_limiter;
mod chipset;
mod clock_time;
mod coalesced_pio;
mod config;
mod device_thread;
mod direct_boot_tables;
mod disks;
mod durable;
mod event_loop;
mod events;
mod fields;
mod firmware;
mod fixed_devices;
mod functions;
pub mod fuzzing;
mod gate;
mod generation;
mod generation_id;
mod guest_event;
mod handle;
mod io_ports;
mod legacy;
mod machine_thread;
mod memory;
mod memory_log;
mod mp_table;
mod nics;
mod numa;
mod pci;
mod placement;
mod port_device;
mod request;
mod route_failures;
mod side_thread;
mod smbios;
mod snapshot;
mod status;
mod stuck;
mod timeline;
mod vcpus;

pub use acpi::AcpiError;
pub use boot::{BootError, KernelConfig, KernelEntry, MAX_CMDLINE_BYTES};
pub use build::error::BuildError;
pub use build::{RamFiller, Restore};
pub use chain::chain;
pub use config::{
    BootSource, ClockConfig, DebugIoPorts, DeviceConfig, LifeConfig, MachineConfig, PanicPolicy,
    RebootPolicy, SerialConfig,
};
pub use disks::DiskError;
pub use durable::{DurableStore, SyncFailure};
pub use firmware::config::{DebugLog, FirmwareConfig};
pub use firmware::error::FirmwareError;
pub use fixed_devices::FixedDevices;
pub use functions::error::{DeviceError, DeviceErrorKind};
pub use generation_id::GenerationId;
pub use guest_event::ResetSource;
pub use handle::SetBalloonError;
pub use machine_thread::MachineThread;
pub use memory::MemoryConfig;
pub use memory::error::TooManySlots;
pub use memory_log::{HeldMemory, MemoryVisitor, WrittenPages};
pub use nics::{NetChange, NicConfig, NicConfigError, NicCounts, NicError};
pub use numa::NumaNode;
pub use pci::address::PciAddress;
pub use pci::error::PciBusError;
pub use placement::{Placed, Placement, PlacementError};
pub use request::{MachineHandle, Observer, Request, RequestError, Saver};
pub use smbios::SmbiosError;
pub use snapshot::error::SnapshotError;
pub use snapshot::{
    RAM_CHUNK_BYTES, Section, Snapshot, load_ram, ram_bytes, ram_checksum_count, save_ram,
};
pub use status::{Change, End, EndReason, LastReset, MachineState, PauseReason, Status};
pub use stuck::StuckVcpus;
pub use timeline::{Phase, Timeline, monotonic_ns};
pub use vmm_devices::WatchdogAction;
pub use vmm_kvm::{
    CpuConfig, CpuError, CpuModel, CpuTopology, Feature, HypervConfig, KvmConfig, MissedTicks,
    Toggle, TopologyError, TscConfig,
};
pub use vmm_memory::{DirtyPages, GuestRam, HostPlacement, HostPolicy, Pages};
pub use vmm_sys::affinity::AffinityMask;
