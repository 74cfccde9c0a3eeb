//! Where kernel and initrd of a spec are.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use agent_domain::{ImageLocation, KernelBoot};
use agent_images::oci::{ImageManifest, OciError, OciLimits};

use super::error::KernelError;
use super::layers::{ExtractedFiles, OpenedImage};
use super::lock::shared;
use crate::beneath::{AllowedPaths, BeneathError};
use crate::work::Work;

/// Go's word for the architecture that VMMs of this release run.
const ARCHITECTURE: &str = "amd64";

/// What is booted, opened for reading.
#[derive(Debug)]
pub(crate) struct BootFiles {
    pub(crate) kernel: File,
    pub(crate) initrd: Option<File>,
}

/// Opens the files that a spec names.
pub(super) async fn find(
    boot: &KernelBoot,
    allowed: &AllowedPaths,
    extracted: &ExtractedFiles,
    work: &Work,
) -> Result<BootFiles, KernelError> {
    let (wanted, allowed) = (boot.clone(), allowed.clone());
    let place = image_path(&boot.image);
    let image = match &boot.image {
        ImageLocation::Directory(_) => {
            let found = work.files(place, move || find_in_directory(&wanted, &allowed));
            return found.await;
        }
        ImageLocation::OciLayout { .. } => {
            let opened = work.files(place, move || open_layout(&wanted.image, &allowed));
            opened.await?
        }
    };
    let image = Arc::new(image);
    let initrd = match &boot.initrd_path {
        Some(path) => Some(extracted.open(&image, path, work).await?),
        None => None,
    };
    Ok(BootFiles {
        kernel: extracted.open(&image, &boot.kernel_path, work).await?,
        initrd,
    })
}

fn find_in_directory(boot: &KernelBoot, allowed: &AllowedPaths) -> Result<BootFiles, KernelError> {
    let path = image_path(&boot.image);
    let dir = allowed.open_image_dir(path)?;
    let open = |file: &Path| shared(dir.open(file)?, &path.join(file));
    Ok(BootFiles {
        kernel: open(&boot.kernel_path)?,
        initrd: boot.initrd_path.as_deref().map(open).transpose()?,
    })
}

/// Finds the image in its layout.
pub(crate) fn open_layout(
    image: &ImageLocation,
    allowed: &AllowedPaths,
) -> Result<OpenedImage, KernelError> {
    let reference = match image {
        ImageLocation::OciLayout { reference, .. } => reference.as_deref(),
        ImageLocation::Directory(_) => None,
    };
    let dir = allowed.open_image_dir(image_path(image))?;
    let open = |file: &Path| dir.open(file).map_err(into_io);
    let manifest = ImageManifest::open(&open, reference, ARCHITECTURE, OciLimits::default())
        .map_err(|source| image_error(image, source))?;
    Ok(OpenedImage {
        manifest,
        dir,
        path: image_path(image).to_owned(),
        location: location_text(image),
    })
}

/// An image as the spec names it.
fn location_text(location: &ImageLocation) -> String {
    match location {
        ImageLocation::Directory(path) => format!("dir:{}", path.display()),
        ImageLocation::OciLayout { path, reference } => {
            let suffix = reference.as_ref().map(|name| format!(":{name}"));
            format!("oci:{}{}", path.display(), suffix.unwrap_or_default())
        }
    }
}

pub(crate) fn image_path(image: &ImageLocation) -> &Path {
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
    use std::fs::{self, File};

    use agent_domain::PathRules;

    use super::*;

    struct Fixture {
        dir: tempfile::TempDir,
        allowed: AllowedPaths,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let images = dir.path().join("images");
            fs::create_dir_all(images.join("a")).unwrap();
            Self {
                allowed: AllowedPaths::new(
                    PathRules {
                        boot: vec![images],
                        ..PathRules::default()
                    },
                    "a",
                ),
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
    fn a_disk_that_somebody_writes_to_is_not_booted_and_a_kernel_is_not_written_to() {
        let fixture = Fixture::new();
        let dir = fixture.dir.path().join("images/a");
        let path = dir.join("disk.img");
        fs::write(&path, "secret").unwrap();
        let open = || {
            let boot = KernelBoot {
                image: ImageLocation::Directory(dir.clone()),
                kernel_path: "disk.img".into(),
                initrd_path: None,
                cmdline: String::new(),
            };
            find_in_directory(&boot, &fixture.allowed)
        };
        let disk = File::options().read(true).write(true).open(&path).unwrap();
        disk.try_lock().unwrap();
        let error = open().unwrap_err();
        assert_eq!((error.reason(), error.is_final()), ("KernelInUse", false));
        drop(disk);
        let booted = open().unwrap();
        let disk = File::options().read(true).write(true).open(&path).unwrap();
        disk.try_lock().unwrap_err();
        drop(booted);
        disk.try_lock().unwrap();
    }

    #[test]
    fn a_missing_file_of_a_directory_may_come_and_a_forbidden_one_may_not() {
        let fixture = Fixture::new();
        let path = fixture.dir.path().join("images/a");
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
