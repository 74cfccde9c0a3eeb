//! A machine that outlives its process: everything but RAM as named sections, and RAM as a file.
//!
//! A snapshot is taken of a machine that is paused, and a machine that is built of one is paused
//! until it is resumed. The configuration comes anew with new descriptors: whoever restores gives the
//! same machine, and every section is checked against it. A section that nothing takes is an error.

mod blocks;
mod checksums;
pub(crate) mod error;
mod ram;

use prost::Message;
use vmm_devices::{DeviceState, Payload, Payloads, StateError};
use vmm_kvm::{CpuState, GuestCpu, SavedStateError, VcpuState, VmState};

pub use self::checksums::{RAM_CHUNK_BYTES, ram_checksum_count};
pub use self::ram::{load_ram, ram_bytes, save_ram};
use crate::generation_id::GenerationState;
use crate::pci::address::PciAddress;
use crate::snapshot::error::SnapshotError;

const VM: &str = "vm";
const CPUS: &str = "cpus";
const COM1: &str = "com1";
const LEGACY: &str = "legacy";
const GENERATION: &str = "generation";

/// State of one part of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Which part, such as `vcpu 0` or `pci 00:02`.
    pub name: String,
    /// Its state.
    pub payload: Payload,
}

/// The state of a machine but its RAM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// All parts, in no order.
    pub sections: Vec<Section>,
}

/// Messages of `vmm/kvm` as payloads.
struct KvmState<M>(M);

trait KvmKind: Message + Default {
    const KIND: &'static str;
}

impl KvmKind for VmState {
    const KIND: &'static str = "kvm-vm";
}

impl KvmKind for CpuState {
    const KIND: &'static str = "kvm-cpus";
}

impl KvmKind for VcpuState {
    const KIND: &'static str = "kvm-vcpu";
}

const KVM_VERSION: u32 = 1;

impl<M: KvmKind> KvmState<M> {
    fn payload(&self) -> Payload {
        Payload::of(M::KIND, KVM_VERSION, &self.0)
    }

    fn read(payload: &Payload) -> Result<M, StateError> {
        payload.read(M::KIND, KVM_VERSION)
    }
}

impl Snapshot {
    pub(crate) fn put_vm(&mut self, state: VmState) {
        self.put(VM.to_owned(), KvmState(state).payload());
    }

    pub(crate) fn put_cpus(&mut self, cpu: &GuestCpu) {
        self.put(CPUS.to_owned(), KvmState(cpu.save()).payload());
    }

    pub(crate) fn put_vcpu(&mut self, index: usize, state: VcpuState) {
        self.put(vcpu_name(index), KvmState(state).payload());
    }

    /// A state as anybody may have written it.
    pub(crate) fn put_vcpu_bytes(&mut self, index: usize, bytes: Vec<u8>) {
        let payload = KvmState(VcpuState::default()).payload();
        self.put(vcpu_name(index), Payload { bytes, ..payload });
    }

    pub(crate) fn put_com1(&mut self, payload: Payload) {
        self.put(COM1.to_owned(), payload);
    }

    pub(crate) fn put_legacy(&mut self, state: &impl DeviceState) {
        self.put(LEGACY.to_owned(), state.to_payload());
    }

    pub(crate) fn put_function(&mut self, address: PciAddress, payloads: Vec<Payload>) {
        for payload in payloads {
            self.put(function_name(address), payload);
        }
    }

    pub(crate) fn put_generation(&mut self, state: &GenerationState) {
        self.put(GENERATION.to_owned(), state.to_payload());
    }

    /// State of a part that only some machines have.
    pub(crate) fn put_part(&mut self, name: &str, payload: Payload) {
        self.put(name.to_owned(), payload);
    }

    /// Takes what [`Self::put_part`] put.
    pub(crate) fn take_part(&mut self, name: &str) -> Result<Payload, SnapshotError> {
        self.take_one(name)?.ok_or_else(|| missing(name))
    }

    pub(crate) fn take_vm(&mut self) -> Result<VmState, SnapshotError> {
        self.take_kvm(VM.to_owned())
    }

    /// Checks that the guest started with CPUs like `cpu`.
    pub(crate) fn take_cpus(&mut self, cpu: &GuestCpu) -> Result<(), SnapshotError> {
        let state: CpuState = self.take_kvm(CPUS.to_owned())?;
        let checked = cpu.check(&state).map_err(SavedStateError::from);
        checked.map_err(kvm_error(CPUS))
    }

    pub(crate) fn take_vcpu(&mut self, index: usize) -> Result<VcpuState, SnapshotError> {
        let name = vcpu_name(index);
        let state: VcpuState = self.take_kvm(name.clone())?;
        state.check().map_err(kvm_error(&name))?;
        Ok(state)
    }

    pub(crate) fn take_com1(&mut self) -> Result<Payload, SnapshotError> {
        self.take_one(COM1)?.ok_or_else(|| missing(COM1))
    }

    pub(crate) fn take_legacy<S: DeviceState>(&mut self) -> Result<S, SnapshotError> {
        let payload = self.take_one(LEGACY)?.ok_or_else(|| missing(LEGACY))?;
        S::from_payload(&payload).map_err(device_error(LEGACY))
    }

    /// The generation id that the guest had, if it had one.
    pub(crate) fn take_generation(&mut self) -> Result<Option<GenerationState>, SnapshotError> {
        let payload = self.take_one(GENERATION)?;
        let state = payload.map(|payload| GenerationState::from_payload(&payload));
        state.transpose().map_err(device_error(GENERATION))
    }

    /// State of the function at `address`.
    pub(crate) fn take_function(&mut self, address: PciAddress) -> Payloads {
        Payloads::new(self.take(&function_name(address)))
    }

    /// Ends the taking.
    pub(crate) fn finish(self) -> Result<(), SnapshotError> {
        match self.sections.into_iter().next() {
            None => Ok(()),
            Some(Section { name, payload }) => {
                let kind = payload.kind;
                Err(device_error(&name)(StateError::Leftover { kind }))
            }
        }
    }

    fn put(&mut self, name: String, payload: Payload) {
        self.sections.push(Section { name, payload });
    }

    fn take(&mut self, name: &str) -> Vec<Payload> {
        self.sections
            .extract_if(.., |section| section.name == name)
            .map(|section| section.payload)
            .collect()
    }

    /// The payload of a part that has one; which of two would be the right one?
    fn take_one(&mut self, name: &str) -> Result<Option<Payload>, SnapshotError> {
        let mut payloads = self.take(name);
        let payload = payloads.pop();
        match payloads.pop() {
            None => Ok(payload),
            Some(Payload { kind, .. }) => Err(device_error(name)(StateError::Leftover { kind })),
        }
    }

    fn take_kvm<M: KvmKind>(&mut self, name: String) -> Result<M, SnapshotError> {
        let payload = self.take_one(&name)?.ok_or_else(|| missing(&name))?;
        KvmState::<M>::read(&payload).map_err(device_error(&name))
    }
}

/// An error of KVM's in a part.
pub(crate) fn kvm_error(part: &str) -> impl FnOnce(SavedStateError) -> SnapshotError {
    let part = part.to_owned();
    move |source| SnapshotError::Kvm { part, source }
}

/// An error in the state of a part.
pub(crate) fn device_error(part: &str) -> impl FnOnce(StateError) -> SnapshotError {
    let part = part.to_owned();
    move |source| SnapshotError::Device { part, source }
}

fn missing(name: &str) -> SnapshotError {
    device_error(name)(StateError::Missing { kind: "the part" })
}

fn vcpu_name(index: usize) -> String {
    format!("vcpu {index}")
}

fn function_name(address: PciAddress) -> String {
    format!("pci {address}")
}

#[cfg(test)]
mod tests;
