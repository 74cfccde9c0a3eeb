//! Confidential computing by KubeVirt's rules of amd64; this release has none.

use proto_node::vmi::VirtualMachineInstanceSpec;

use super::purpose::ARCHITECTURE;
use super::review::Review;
use crate::error::{FieldError, Rule};

/// The field as KubeVirt calls it in errors.
const FIELD: &str = "spec.launchSecurity";

/// Judges what launch security goes together with.
pub(super) fn check(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) {
    let Some(domain) = &spec.domain else { return };
    let Some(wanted) = &domain.launch_security else {
        return;
    };
    match spec.architecture.as_str() {
        "" | ARCHITECTURE => {}
        // What s390x demands of it is not judged here: no node of this release is one.
        "s390x" => return,
        other => {
            let text = format!("No launchSecurity support for architecture: {other}");
            return review.push(FieldError::new("spec.architecture", Rule::Invalid, text));
        }
    }
    let mut wrong = |message: String| review.push(FieldError::new(FIELD, Rule::Invalid, message));
    let (sev, snp, tdx) = (
        wanted.sev.is_some(),
        wanted.snp.is_some(),
        wanted.tdx.is_some(),
    );
    let name = match (sev, snp, tdx) {
        (true, false, false) => "SEV",
        (false, true, false) => "SNP",
        (false, false, true) => "TDX",
        _ => {
            return wrong("One and only one launchSecurity type can be set".to_owned());
        }
    };
    let smm = domain.features.as_ref().and_then(|features| features.smm);
    if tdx && smm.is_some_and(|smm| smm.enabled.unwrap_or(true)) {
        wrong("TDX does not work along with SMM".to_owned());
    }
    let firmware = domain.firmware.as_ref();
    let bootloader = firmware.and_then(|firmware| firmware.bootloader.as_ref());
    match bootloader.and_then(|bootloader| bootloader.efi.as_ref()) {
        None => wrong(format!("{name} requires OVMF (UEFI)")),
        Some(efi) => {
            if !tdx && efi.secure_boot.unwrap_or(true) {
                wrong(format!("{name} does not work along with SecureBoot"));
            }
            if !sev && efi.persistent == Some(true) {
                wrong(format!(
                    "{name} does not work along with Persistent EFI variables"
                ));
            }
        }
    }
    let sev_wanted = wanted.sev.as_ref();
    let is_attested = sev_wanted.is_some_and(|sev| sev.attestation.is_some());
    if is_attested && spec.start_strategy != "Paused" {
        wrong("SEV attestation requires VMI StartStrategy 'Paused'".to_owned());
    }
    let devices = domain.devices.iter();
    for interface in devices.flat_map(|devices| &devices.interfaces) {
        if interface.boot_order.is_some() {
            wrong(format!(
                "{name} does not work with bootable NICs: {}",
                interface.name
            ));
        }
    }
}
