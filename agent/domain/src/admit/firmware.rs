//! Boot by firmware: which, and whether this release and the node have it.

use proto_node::vmi::{DomainSpec, Efi, Firmware};

use super::admitted::Remark;
use super::review::Review;
use crate::caps::Lack;
use crate::error::{Bound, FieldError, Rule};
use crate::vmi::Bootloader;

const BOOTLOADER: &str = "spec.domain.firmware.bootloader";

/// The firmware that boots a machine without a kernel: BIOS unless UEFI is asked for.
pub(super) fn bootloader(domain: &DomainSpec, review: &mut Review<'_>) -> Bootloader {
    let given = given(domain);
    let Some(efi) = &given.efi else {
        require(
            BOOTLOADER,
            review.caps().and_then(|caps| caps.firmware.bios.clone()),
            review,
        );
        let serial = given.bios.and_then(|bios| bios.use_serial);
        return Bootloader::Bios {
            serial: serial.unwrap_or(true),
        };
    };
    let lack = review.caps().and_then(|caps| caps.firmware.efi.clone());
    require(&format!("{BOOTLOADER}.efi"), lack, review);
    Bootloader::Efi {
        persistent: efi.persistent.unwrap_or(false),
    }
}

/// Whether UEFI is asked for.
pub(super) fn is_efi(domain: &DomainSpec) -> bool {
    given(domain).efi.is_some()
}

/// What holds of a bootloader whether it is used or not.
pub(super) fn check(domain: &DomainSpec, review: &mut Review<'_>) {
    let given = given(domain);
    if given.bios.is_some() && given.efi.is_some() {
        let message = format!(
            "{BOOTLOADER} has both EFI and BIOS configured, but they are mutually exclusive."
        );
        review.push(FieldError::new(BOOTLOADER, Rule::Invalid, message));
    }
    let smm = domain.features.as_ref().and_then(|features| features.smm);
    let smm = smm.is_some_and(|smm| smm.enabled.unwrap_or(true));
    let security = domain.launch_security.as_ref();
    if security.is_some_and(|security| security.tdx.is_some()) {
        // Its firmware keeps the keys itself.
        return;
    }
    if let Some(efi) = &given.efi
        && efi.secure_boot != Some(false)
    {
        check_secure_boot(efi, smm, review);
    }
}

/// A bootloader beside a kernel, which is booted without one.
pub(super) fn beside_kernel(domain: &DomainSpec, review: &mut Review<'_>) {
    let given = given(domain);
    if given.efi.is_some() {
        let message = "a kernel is booted without firmware by this release";
        let error = FieldError::new(format!("{BOOTLOADER}.efi"), Rule::Invalid, message);
        let error = error.fix("leave it out, or kernelBoot");
        review.push(error.beyond(Bound::Release));
    }
    if given.bios.is_some_and(|bios| bios.use_serial.is_some()) {
        review.ignored.push(Remark {
            path: format!("{BOOTLOADER}.bios.useSerial"),
            message: "a kernel is booted without firmware".to_owned(),
        });
    }
}

fn check_secure_boot(efi: &Efi, smm: bool, review: &mut Review<'_>) {
    let way_out = "set spec.domain.firmware.bootloader.efi.secureBoot: false";
    if !smm {
        let message = "spec.domain has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled.";
        let error = FieldError::new("spec.domain", Rule::Invalid, message);
        review.push(error.fix(way_out));
    } else if efi.secure_boot.is_none() {
        // One that is written out was reported already.
        let message = "is true unless it is set, which is not supported by this release: machines have no system management mode";
        let field = format!("{BOOTLOADER}.efi.secureBoot");
        review.push(FieldError::new(field, Rule::NotSupported, message).fix(way_out));
    }
}

fn given(domain: &DomainSpec) -> proto_node::vmi::Bootloader {
    let firmware: Option<&Firmware> = domain.firmware.as_ref();
    firmware
        .and_then(|firmware| firmware.bootloader)
        .unwrap_or_default()
}

fn require(field: &str, lack: Option<Lack>, review: &mut Review<'_>) {
    if let Some(Lack { why, way_out }) = lack {
        review.push(FieldError::new(field, Rule::Forbidden, why).fix(way_out));
    }
}
