//! The guest's CPUs: topology, models, feature policies, Hyper-V's enlightenments.
//!
//! [`GuestCpu::resolve`] is a pure function of what is asked for ([`CpuConfig`]) and what the host
//! can give ([`HostCpu`]). Leaves are edited when the host has them, whoever made the CPU; the vendor
//! matters only where the manuals differ.

mod config;
mod error;
mod features;
mod guest;
mod host;
mod hyperv;
mod hypervisor;
pub(crate) mod l1;
mod leaves;
mod models;
mod needs;
mod policy;
mod saved;
#[cfg(test)]
mod tests;
mod topology;
mod topology_leaves;
mod xsave;

pub use config::{CpuConfig, CpuModel, KvmConfig, Toggle, TscConfig};
pub use error::{CpuError, KvmFeature};
pub use features::{Feature, FeatureSet};
pub use guest::GuestCpu;
pub use host::HostCpu;
pub(crate) use host::HostTsc;
pub use hyperv::HypervConfig;
pub(crate) use leaves::Leaves;
pub use saved::{CpuMismatch, CpuState};
pub use topology::{CpuTopology, TopologyError};
