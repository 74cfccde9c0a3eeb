//! CPUID of guests on two hosts that are written down as data.

mod documented;
mod fixtures;
mod hypervisors;
mod models;
mod saved;
mod topologies;

use super::{CpuConfig, CpuError, CpuModel, CpuTopology, Feature, GuestCpu};
use super::{HostCpu, Leaves};
use proto_machine::cpu_features::FeaturePolicy;
use proto_machine::cpu_features::Register;
use proto_machine::cpu_models::NamedModel;

fn config(sockets: u32, cores: u32, threads: u32) -> CpuConfig {
    CpuConfig::passthrough(CpuTopology::new(sockets, cores, threads).unwrap())
}

fn of_model(name: &str) -> CpuConfig {
    CpuConfig {
        model: CpuModel::Named(NamedModel::by_name(name).unwrap()),
        ..config(1, 2, 1)
    }
}

fn with_policy(base: CpuConfig, name: &str, policy: FeaturePolicy) -> CpuConfig {
    let mut features = base.features;
    features.push((Feature::by_name(name).unwrap(), policy));
    CpuConfig { features, ..base }
}

fn first_vcpu(config: &CpuConfig, host: &HostCpu) -> Leaves {
    GuestCpu::resolve(config, host).unwrap().leaves(0)
}

fn refused(config: &CpuConfig, host: &HostCpu) -> CpuError {
    GuestCpu::resolve(config, host).unwrap_err()
}

/// The four registers of a leaf.
fn row(leaves: &Leaves, leaf: u32, subleaf: u32) -> [u32; 4] {
    let registers = [Register::Eax, Register::Ebx, Register::Ecx, Register::Edx];
    registers.map(|register| leaves.get(leaf, subleaf, register))
}

fn has_leaf(leaves: &Leaves, leaf: u32) -> bool {
    leaves.iter().any(|entry| entry.function == leaf)
}
