//! Flags of what a machine's CPUs and memory are, and where they run.

use proto_vmm::v1;

use crate::arguments::Arguments;
use crate::cpu_options::{FeatureFlag, HypervFlag, KvmFlag};
use crate::options::SizeFlag;
use crate::place_options::{NumaFlag, PinFlag, Pinned};

/// CPUs and memory beyond their number and size.
#[derive(Debug, Default)]
pub struct Tuning {
    /// Sockets that there may ever be.
    pub max_sockets: u32,
    /// NAME=POLICY, one of force, require, optional, disable and forbid.
    pub cpu_feature: Vec<FeatureFlag>,
    /// Any of KubeVirt's names after commas, as relaxed,vpindex,spinlocks=8191,vendorid=NAME
    pub hyperv: Option<HypervFlag>,
    /// Any of: hidden ,clock=on ,clock=off ,spinlocks=on ,spinlocks=off ,eoi=on ,eoi=off
    pub kvm: Option<KvmFlag>,
    /// What memory may grow to.
    pub max_memory: Option<SizeFlag>,
    /// Memory from a pool of the host: 2M or 1G.
    pub hugepages: Option<SizeFlag>,
    /// The host is not advised to make huge pages.
    pub small_pages: bool,
    /// All memory is there before the guest starts.
    pub prefault: bool,
    /// A NUMA node of the guest: SIZE,vcpus=0-1:3, then any of: ,bind=NODES ,preferred=NODE
    /// ,interleave=NODES ,distances=10:20
    pub numa: Vec<NumaFlag>,
    /// WHO=CPUS: WHO is the number of a vCPU, emulator, or the name of a disk's thread.
    pub pin: Vec<PinFlag>,
}

impl Tuning {
    /// Takes a flag if it is one of these.
    pub fn take(&mut self, name: &str, arguments: &mut Arguments) -> anyhow::Result<bool> {
        match name {
            "max-sockets" => self.max_sockets = arguments.value(name)?,
            "cpu-feature" => self.cpu_feature.push(arguments.value(name)?),
            "hyperv" => self.hyperv = Some(arguments.value(name)?),
            "kvm" => self.kvm = Some(arguments.value(name)?),
            "max-memory" => self.max_memory = Some(arguments.value(name)?),
            "hugepages" => self.hugepages = Some(arguments.value(name)?),
            "small-pages" => self.small_pages = true,
            "prefault" => self.prefault = true,
            "numa" => self.numa.push(arguments.value(name)?),
            "pin" => self.pin.push(arguments.value(name)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Makes the machine so.
    pub fn apply(&self, machine: &mut v1::MachineConfig) {
        let memory = machine.memory.get_or_insert_default();
        memory.max_size_bytes = self.max_memory.map_or(0, |size| size.0);
        memory.hugepage_bytes = self.hugepages.map_or(0, |size| size.0);
        memory.transparent_hugepages = self.hugepages.is_none() && !self.small_pages;
        memory.prefault = self.prefault;
        memory.numa_nodes = self.numa.iter().map(|flag| flag.0.clone()).collect();
        let cpus = machine.cpus.get_or_insert_default();
        cpus.max_sockets = self.max_sockets;
        cpus.features = self.cpu_feature.iter().map(|flag| flag.0.clone()).collect();
        cpus.hyperv = self.hyperv.as_ref().map(|flag| flag.0.clone());
        cpus.kvm = self.kvm.map(|flag| flag.0);
        for PinFlag { who, cpus: host } in &self.pin {
            let host = host.clone();
            match who {
                Pinned::Vcpu(index) => {
                    // The VMM takes no list or one with an entry for each.
                    let entries = usize::try_from(cpus.count).unwrap_or(0).max(index + 1);
                    cpus.vcpu_pins.resize_with(entries, Default::default);
                    if let Some(pin) = cpus.vcpu_pins.get_mut(*index) {
                        *pin = host;
                    }
                }
                Pinned::Emulator => cpus.emulator_pin = Some(host),
                Pinned::Thread(name) => cpus.io_thread_pins.push(v1::IoThreadPin {
                    io_thread: name.clone(),
                    cpus: Some(host),
                }),
            }
        }
    }
}
