use std::fs;
use std::path::Path;

use self::format::format_of;
use super::*;
use crate::firmware::PlatformState;
use crate::legacy::LegacyState;
use crate::pci::{HostBridgeState, LpcState};

/// The prober of vmm-devices' tests, compiled for these tests, too: no crate ships it.
#[path = "../../../devices/src/state/format.rs"]
mod format;

#[test]
fn every_section_is_taken_once() {
    let mut snapshot = Snapshot::default();
    snapshot.put_vm(VmState::default());
    snapshot.put_vcpu(1, VcpuState::default());
    let mut taken = snapshot.clone();
    taken.take_vm().unwrap();
    taken.take_vm().unwrap_err();
    taken.take_vcpu(0).unwrap_err();
    taken.clone().finish().unwrap_err();
    let damaged = taken.take_vcpu(1).unwrap_err();
    assert_eq!(damaged.to_string(), "vcpu 1");
    taken.finish().unwrap();
}

#[test]
fn of_two_states_of_one_part_none_is_taken() {
    let mut snapshot = Snapshot::default();
    for _ in 0..2 {
        snapshot.put_vm(VmState::default());
    }
    let error = snapshot.take_vm().unwrap_err();
    assert!(matches!(
        error,
        SnapshotError::Device {
            source: StateError::Leftover { .. },
            ..
        }
    ));
}

/// As `kept` of vmm-devices, for the states of this room and of KVM's.
fn assert_is_kept<M: Message + Default>(kind: &str, version: u32) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/formats");
    let path = directory.join(format!("{kind}-{version}.txt"));
    let format = format_of::<M>();
    if !path.exists() && std::env::var_os("KVMLET_NEW_FORMATS").is_some() {
        fs::write(&path, &format).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        format, kept,
        "{kind} is not as version {version} was: see docs/snapshots.md"
    );
}

fn assert_kvm_is_kept<M: KvmKind>() {
    assert_is_kept::<M>(M::KIND, KVM_VERSION);
}

fn assert_device_is_kept<S: DeviceState>() {
    assert_is_kept::<S>(S::KIND, S::VERSION);
}

#[test]
fn formats_are_those_of_their_versions() {
    assert_kvm_is_kept::<CpuState>();
    assert_kvm_is_kept::<VcpuState>();
    assert_kvm_is_kept::<VmState>();
    assert_device_is_kept::<LegacyState>();
    assert_device_is_kept::<GenerationState>();
    assert_device_is_kept::<HostBridgeState>();
    assert_device_is_kept::<LpcState>();
    assert_device_is_kept::<PlatformState>();
}
