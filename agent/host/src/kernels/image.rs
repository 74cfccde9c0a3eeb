//! Where kernel and initrd of a spec are.

use agent_domain::{ImageLocation, KernelBoot};

use super::{KernelError, location_text};
use crate::beneath::{Access, AllowedDirs, BeneathDir, Wanted};
use crate::kernels::BootFiles;

/// Opens the files that a spec names.
pub(super) fn find(boot: &KernelBoot, allowed: &AllowedDirs) -> Result<BootFiles, KernelError> {
    match &boot.image {
        ImageLocation::Directory(path) => {
            let dir = allowed.open(path, Wanted::Directory, Access::Read)?;
            let dir = BeneathDir::new(dir, path);
            let initrd = boot.initrd_path.as_deref().map(|path| dir.open(path));
            Ok(BootFiles {
                kernel: dir.open(&boot.kernel_path)?,
                initrd: initrd.transpose()?,
            })
        }
        ImageLocation::OciLayout { .. } => Err(KernelError::Image {
            location: location_text(&boot.image),
            source: "OCI layouts can not be read by this release; unpack it and use dir:PATH"
                .into(),
        }),
    }
}
