//! Admission: from what somebody wrote to a value that is safe to act on.
//!
//! It has three steps, each of which wants what the one before made: [`default_vmi`] fills in defaults and never fails,
//! [`judge_vmi`] changes nothing and reports every rule that is broken, [`convert_vmi`] makes the value of a VMI that breaks
//! none.

mod about;
mod access;
pub(crate) mod admitted;
mod amount;
mod boot;
mod boot_order;
mod cdi;
mod claimed_devices;
mod clock;
mod cloud_init;
mod compute;
mod container_image;
mod convert;
mod cpu;
mod data_volume;
mod dedicated;
mod defaults;
mod disk_bus;
mod disk_options;
mod disks;
mod dns;
mod firmware;
mod hyperv;
mod identity;
pub(crate) mod image_reference;
mod judge;
mod launch_security;
mod life;
mod machine;
mod memory;
mod metadata;
mod metadata_volume;
mod network;
mod path;
mod pci;
mod probes;
mod purpose;
mod review;
mod rules;
mod scheduling;
mod secure_boot;
mod sidecars;
mod unserved;
mod unserved_volumes;
mod unsupported;
mod virtual_machine;
mod volume_claim;
mod volumes;
mod without_effect;

use proto_node::vmi::{ContainerDiskSource, VirtualMachineInstance};

use self::review::Review;
use crate::caps::NodeCaps;
use crate::error::FieldError;
use crate::vmi::{ContainerDisk, Vmi};
pub use admitted::{Admitted, Remark};
pub(crate) use boot::MAX_CMDLINE_BYTES;
pub use convert::convert_vmi;
pub use defaults::{Defaulted, default_spec, default_vmi};
pub(crate) use disks::MAX_SERIAL_BYTES;
pub use image_reference::{is_mirror, is_registry};
pub use judge::{JudgedVmi, Judgement, judge_vmi};
pub use metadata::check_metadata;
pub use network::NETWORK_WALLS_ANNOTATION;
pub use purpose::AdmissionPurpose;
pub use unserved::{judge_claim, judge_data_volume, judge_metadata, judge_preset};
pub use virtual_machine::{
    Absence, AdmittedVirtualMachine, MachineAdvice, admit_virtual_machine, default_virtual_machine,
    judge_virtual_machine,
};

impl Vmi {
    /// Admits an object on a node. The server has set `metadata.uid` before.
    ///
    /// # Errors
    /// Every rule that is broken.
    pub fn admit(
        object: VirtualMachineInstance,
        caps: &NodeCaps,
    ) -> Result<Admitted, Vec<FieldError>> {
        admit(object, AdmissionPurpose::New(caps))
    }

    /// Admits an object for a node that has all that this release can use, for those who have no node
    /// to ask.
    ///
    /// # Errors
    /// Every rule that is broken.
    pub fn admit_anywhere(object: VirtualMachineInstance) -> Result<Admitted, Vec<FieldError>> {
        admit(object, AdmissionPurpose::NewAnywhere)
    }

    /// The value of an object that was admitted before. What depends on the node is not judged again:
    /// a guest that runs must not be lost because the configuration changed.
    ///
    /// # Errors
    /// Every rule that is broken, as when the object was admitted by a release that knows more.
    pub fn restore(object: VirtualMachineInstance) -> Result<Admitted, Vec<FieldError>> {
        admit(object, AdmissionPurpose::Stored)
    }
}

/// A disk in an image, for those who want the image before there is a guest: judged as a `containerDisk` of the namespace.
///
/// # Errors
/// Every rule that is broken.
pub fn admit_container_disk(
    mut source: ContainerDiskSource,
    namespace: &str,
    caps: &NodeCaps,
) -> Result<ContainerDisk, Vec<FieldError>> {
    let mut review = Review::new(AdmissionPurpose::New(caps));
    review.namespace = namespace.to_owned();
    if source.image.is_empty() {
        review.required("image", "names the image");
    }
    let policies = ["", "Always", "IfNotPresent", "Never"];
    if !policies.contains(&source.image_pull_policy.as_str()) {
        let policy = source.image_pull_policy.clone();
        review.invalid(
            "pullPolicy",
            &policy,
            "must be Always, IfNotPresent or Never",
        );
    }
    defaults::fill_image(&mut source);
    match volumes::container("containerDisk", &source, &mut review) {
        Some(disk) if review.errors.is_empty() => Ok(disk),
        _ => Err(review.errors),
    }
}

/// The three steps.
fn admit(
    object: VirtualMachineInstance,
    purpose: AdmissionPurpose<'_>,
) -> Result<Admitted, Vec<FieldError>> {
    let defaulted = default_vmi(object, purpose);
    let judgement = judge_vmi(&defaulted);
    let vmi = convert_vmi(judgement.outcome?);
    Ok(Admitted {
        vmi,
        warnings: judgement.warnings,
        ignored: judgement.ignored,
        substituted: judgement.substituted,
        object: defaulted.into_object(),
    })
}
