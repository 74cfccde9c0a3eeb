//! Safe wrappers of the KVM ioctls: VM, vCPUs, memslots, interrupt routing.
//!
//! Everything is learned from `KVM_CAP`s and `KVM_GET_SUPPORTED_CPUID`, never from the vendor of the
//! CPU. The descriptor of `/dev/kvm` is inherited; nothing is opened here.

mod coalesced_pio;
mod cpu;
mod dirty;
mod error;
mod host;
mod irq;
mod kick;
mod msr;
mod overlay;
mod overlay_set;
mod routing_table;
mod saved;
mod state;
mod vcpu;
mod vm;

pub use coalesced_pio::CoalescedPio;
pub use cpu::{
    CpuConfig, CpuError, CpuMismatch, CpuModel, CpuState, CpuTopology, Feature, FeatureSet,
    GuestCpu, HostCpu, HypervConfig, KvmConfig, KvmFeature, Toggle, TopologyError, TscConfig,
};
pub use error::KvmError;
pub use host::{HostKind, KvmHost};
pub use irq::{GsiPool, InterruptRouter};
pub use kick::{VcpuKick, kick_signal};
pub use overlay_set::{Backing, Overlay};
pub use saved::{SavedStateError, VcpuState, VmState};
pub use state::{PowerOnState, VmPowerOnState};
pub use vcpu::{Exit, FailureDetail, Segment, StartState, Vcpu};
pub use vm::{BareVm, IoEventBinding, MissedTicks, Vm};
