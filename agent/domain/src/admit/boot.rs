//! What is booted: a kernel, or firmware.

use std::path::PathBuf;

use proto_node::vmi::{DomainSpec, KernelBoot as WireKernelBoot, KernelBootContainer};

use super::firmware;
use super::path::{host_path, image_path};
use super::review::Review;
use crate::error::{Bound, FieldError, Rule};
use crate::paths::PathUse;
use crate::vmi::{Bootloader, ImageLocation, KernelBoot};

const KERNEL_BOOT: &str = "spec.domain.firmware.kernelBoot";
/// `COMMAND_LINE_SIZE` of Linux on x86 without the terminating zero.
pub(crate) const MAX_CMDLINE_BYTES: usize = 2047;

/// What boots the machine.
#[derive(Debug, PartialEq)]
pub(super) enum Booted {
    /// A kernel.
    Kernel(KernelBoot),
    /// Firmware.
    By(Bootloader),
}

/// Reads what is to be booted: a kernel if one is named, else firmware.
pub(super) fn judge(domain: &DomainSpec, review: &mut Review<'_>) -> Option<Booted> {
    firmware::check(domain, review);
    let Some(kernel) = kernel(domain) else {
        return Some(Booted::By(firmware::bootloader(domain, review)));
    };
    let args = kernel.kernel_args;
    check_cmdline(&args, review);
    let Some(container) = kernel.container else {
        review.invalid(
            &format!("{KERNEL_BOOT}.kernelArgs"),
            &args,
            "kernel arguments cannot be provided without an external kernel",
        );
        return None;
    };
    firmware::beside_kernel(domain, review);
    from_container(&container, args, review).map(Booted::Kernel)
}

/// Whether BIOS boots the machine.
pub(super) fn is_by_bios(domain: &DomainSpec) -> bool {
    kernel(domain).is_none() && !firmware::is_efi(domain)
}

/// The kernel that is named.
fn kernel(domain: &DomainSpec) -> Option<WireKernelBoot> {
    let firmware = domain.firmware.as_ref()?;
    let kernel = firmware.kernel_boot.clone();
    kernel.filter(|kernel| *kernel != WireKernelBoot::default())
}

fn check_cmdline(args: &str, review: &mut Review<'_>) {
    let path = format!("{KERNEL_BOOT}.kernelArgs");
    if args.len() > MAX_CMDLINE_BYTES {
        review.unable(
            &path,
            args,
            format!(
                "is {} bytes long: at most {MAX_CMDLINE_BYTES} are read by a kernel",
                args.len()
            ),
        );
    }
    if args.chars().any(char::is_control) {
        review.unable(&path, args, "must be one line without control characters");
    }
}

fn from_container(
    container: &KernelBootContainer,
    cmdline: String,
    review: &mut Review<'_>,
) -> Option<KernelBoot> {
    let base = format!("{KERNEL_BOOT}.container");
    let image = image_location(&format!("{base}.image"), &container.image, review);
    let initrd_path = if container.initrd_path.is_empty() {
        None
    } else {
        image_path(
            &format!("{base}.initrdPath"),
            &container.initrd_path,
            review,
        )
    };
    if container.kernel_path.is_empty() {
        let (bound, message) = if container.initrd_path.is_empty() {
            let message = format!(
                "{base} must be defined with at least one of the following: kernelPath, initrdPath"
            );
            (Bound::Api, message)
        } else {
            let message = "this release boots an initrd with its kernel only";
            (Bound::Release, message.to_owned())
        };
        let error = FieldError::new(format!("{base}.kernelPath"), Rule::Required, message);
        review.push(error.beyond(bound));
        return None;
    }
    let kernel_path = image_path(
        &format!("{base}.kernelPath"),
        &container.kernel_path,
        review,
    )?;
    Some(KernelBoot {
        image: image?,
        kernel_path,
        initrd_path,
        cmdline,
    })
}

/// `dir:PATH` or `oci:PATH[:REF]`, as skopeo spells them.
pub(super) fn image_location(
    field: &str,
    text: &str,
    review: &mut Review<'_>,
) -> Option<ImageLocation> {
    if let Some(path) = text.strip_prefix("dir:") {
        return host_path(field, path, PathUse::Image, review).map(ImageLocation::Directory);
    }
    if let Some(rest) = text.strip_prefix("oci:") {
        let (path, reference) = path_and_reference(field, (text, rest), review)?;
        return Some(ImageLocation::OciLayout { path, reference });
    }
    if !text.is_empty() {
        review.unable(
            field,
            text,
            "images are not pulled by this release: use dir:PATH for a directory of the node or oci:PATH[:REF] for an OCI image layout",
        );
    }
    None
}

/// `PATH[:REF]`, of a whole text.
pub(super) fn path_and_reference(
    field: &str,
    (text, rest): (&str, &str),
    review: &mut Review<'_>,
) -> Option<(PathBuf, Option<String>)> {
    let (path, reference) = match rest.split_once(':') {
        Some((path, reference)) => (path, Some(reference)),
        None => (rest, None),
    };
    if reference.is_some_and(|name| {
        name.is_empty() || name.len() > 255 || name.chars().any(char::is_control)
    }) {
        review.invalid(
            field,
            text,
            "the reference after the second ':' must have 1 to 255 printable characters",
        );
        return None;
    }
    let path = host_path(field, path, PathUse::Image, review)?;
    Some((path, reference.map(str::to_owned)))
}
