//! Where kernel and initrd of a spec are.

use std::io;
use std::path::Path;
use std::sync::Arc;

use agent_domain::{ImageLocation, KernelBoot};
use agent_images::oci::{ImageManifest, OciError, OciLimits};

use super::layers::OpenedImage;
use super::{BootFiles, ExtractedFiles, KernelError, blocking, location_text};
use crate::beneath::{Access, AllowedDirs, BeneathDir, BeneathError, Wanted};

/// Go's word for the architecture that VMMs of this release run.
const ARCHITECTURE: &str = "amd64";

/// Opens the files that a spec names.
pub(super) async fn find(
    boot: &KernelBoot,
    allowed: &AllowedDirs,
    extracted: &ExtractedFiles,
) -> Result<BootFiles, KernelError> {
    let (wanted, allowed) = (boot.clone(), allowed.clone());
    let image = match &boot.image {
        ImageLocation::Directory(_) => {
            return blocking(move || find_in_directory(&wanted, &allowed)).await;
        }
        ImageLocation::OciLayout { .. } => blocking(move || open_layout(&wanted, &allowed)).await?,
    };
    let image = Arc::new(image);
    let initrd = match &boot.initrd_path {
        Some(path) => Some(extracted.open(&image, path).await?),
        None => None,
    };
    Ok(BootFiles {
        kernel: extracted.open(&image, &boot.kernel_path).await?,
        initrd,
    })
}

fn find_in_directory(boot: &KernelBoot, allowed: &AllowedDirs) -> Result<BootFiles, KernelError> {
    let path = image_path(&boot.image);
    let dir = open_dir(allowed, path)?;
    let open = |file: &Path| Ok::<_, KernelError>(dir.open(file)?);
    Ok(BootFiles {
        kernel: open(&boot.kernel_path)?,
        initrd: boot.initrd_path.as_deref().map(open).transpose()?,
    })
}

/// Finds the image in its layout.
fn open_layout(boot: &KernelBoot, allowed: &AllowedDirs) -> Result<OpenedImage, KernelError> {
    let reference = match &boot.image {
        ImageLocation::OciLayout { reference, .. } => reference.as_deref(),
        ImageLocation::Directory(_) => None,
    };
    let dir = open_dir(allowed, image_path(&boot.image))?;
    let open = |file: &Path| dir.open(file).map_err(into_io);
    let manifest = ImageManifest::open(&open, reference, ARCHITECTURE, OciLimits::default())
        .map_err(|source| image_error(&boot.image, source))?;
    Ok(OpenedImage {
        manifest,
        dir,
        location: location_text(&boot.image),
    })
}

fn open_dir(allowed: &AllowedDirs, path: &Path) -> Result<BeneathDir, BeneathError> {
    let dir = allowed.open(path, Wanted::Directory, Access::Read)?;
    Ok(BeneathDir::new(dir, path))
}

fn image_path(image: &ImageLocation) -> &Path {
    match image {
        ImageLocation::Directory(path) | ImageLocation::OciLayout { path, .. } => path,
    }
}

fn image_error(image: &ImageLocation, source: OciError) -> KernelError {
    KernelError::Image {
        location: location_text(image),
        source,
    }
}

/// The library knows only errors of reading; the kind is what it needs, the text what people do.
fn into_io(error: BeneathError) -> io::Error {
    let kind = match &error {
        BeneathError::NotFound { .. } => io::ErrorKind::NotFound,
        BeneathError::Io { source, .. } => source.kind(),
        _ => io::ErrorKind::PermissionDenied,
    };
    io::Error::new(kind, error)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Fixture {
        dir: tempfile::TempDir,
        allowed: AllowedDirs,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let images = dir.path().join("images");
            fs::create_dir_all(&images).unwrap();
            Self {
                allowed: AllowedDirs::new(&[images], "allowed_dirs"),
                dir,
            }
        }

        fn find(&self, image: ImageLocation, initrd: Option<&str>) -> Result<String, KernelError> {
            let boot = KernelBoot {
                image,
                kernel_path: "boot/vmlinuz".into(),
                initrd_path: initrd.map(Into::into),
                cmdline: String::new(),
            };
            find_in_directory(&boot, &self.allowed)
                .map(|files| io::read_to_string(files.kernel).unwrap())
        }
    }

    #[test]
    fn a_missing_file_of_a_directory_may_come_and_a_forbidden_one_may_not() {
        let fixture = Fixture::new();
        let path = fixture.dir.path().join("images");
        let error = fixture
            .find(ImageLocation::Directory(path.clone()), None)
            .unwrap_err();
        assert_eq!(
            (error.reason(), error.is_final()),
            ("KernelNotFound", false)
        );
        std::os::unix::fs::symlink("/boot", path.join("boot")).unwrap();
        let error = fixture
            .find(ImageLocation::Directory(path), None)
            .unwrap_err();
        assert!(error.is_final(), "{error}");
    }
}
