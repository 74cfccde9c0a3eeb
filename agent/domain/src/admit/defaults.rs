//! Defaults: what is filled into a VMI before it is judged, as KubeVirt's mutating webhook does it.
//!
//! They are taken from the object, from the uid of its machine and from the node's configuration. Filling in never fails, and
//! done again it changes nothing. What is malformed stays as it was written: the judges report it.

mod compute;
mod devices;
mod disks;
mod hyperv;
mod networks;
mod text;

use proto_node::vmi::{DomainSpec, Probe, VirtualMachineInstance, VirtualMachineInstanceSpec};

pub(super) use self::disks::{fill_image, fill_targets};
use super::metadata;
use super::purpose::AdmissionPurpose;
use crate::derive::firmware_uuid;

/// KubeVirt's default of `terminationGracePeriodSeconds`.
pub(super) const GRACE_SECONDS: i64 = 30;

/// A VMI with all its defaults. Nothing but [`default_vmi`] makes one.
#[derive(Clone, Debug)]
pub struct Defaulted<'a> {
    object: VirtualMachineInstance,
    purpose: AdmissionPurpose<'a>,
}

impl<'a> Defaulted<'a> {
    /// The object with every default filled in.
    #[must_use]
    pub const fn object(&self) -> &VirtualMachineInstance {
        &self.object
    }

    /// The same as [`Self::object`], to keep.
    #[must_use]
    pub fn into_object(self) -> VirtualMachineInstance {
        self.object
    }

    pub(super) const fn purpose(&self) -> AdmissionPurpose<'a> {
        self.purpose
    }
}

/// Fills in what a VMI leaves open: its namespace, and its spec ([`default_spec`]).
#[must_use]
pub fn default_vmi(
    mut object: VirtualMachineInstance,
    purpose: AdmissionPurpose<'_>,
) -> Defaulted<'_> {
    let metadata = object.metadata.get_or_insert_default();
    metadata::default(metadata);
    if let Some(spec) = &mut object.spec {
        default_spec(spec, metadata::seed(metadata), purpose);
    }
    Defaulted { object, purpose }
}

/// Fills in what the spec of a VMI leaves open. Addresses and identities that nobody chose are derived from `seed`, the uid of
/// the VirtualMachine, else of the VMI.
pub fn default_spec(
    spec: &mut VirtualMachineInstanceSpec,
    seed: &str,
    purpose: AdmissionPurpose<'_>,
) {
    if let (true, Some(architecture)) = (spec.architecture.is_empty(), purpose.architecture()) {
        architecture.clone_into(&mut spec.architecture);
    }
    spec.termination_grace_period_seconds
        .get_or_insert(GRACE_SECONDS);
    let probes = [&mut spec.liveness_probe, &mut spec.readiness_probe];
    probes.into_iter().flatten().for_each(fill_probe);
    disks::fill(spec);
    networks::fill(spec, seed, purpose);
    if let Some(domain) = &mut spec.domain {
        compute::fill(domain, &spec.architecture);
        hyperv::fill(domain);
        fill_identity(domain, seed);
        if let Some(devices) = &mut domain.devices {
            devices::fill(devices);
        }
    }
}

/// KubeVirt replaces whatever is less than 1.
fn fill_probe(probe: &mut Probe) {
    for (value, default) in [
        (&mut probe.timeout_seconds, 1),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.failure_threshold, 3),
    ] {
        if *value < 1 {
            *value = default;
        }
    }
}

fn fill_identity(domain: &mut DomainSpec, seed: &str) {
    let firmware = domain.firmware.get_or_insert_default();
    if firmware.uuid.is_empty() {
        firmware.uuid = firmware_uuid(seed);
    }
}
