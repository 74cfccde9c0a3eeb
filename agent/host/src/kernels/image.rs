//! Where kernel and initrd of a spec are.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_domain::{ImageLocation, KernelBoot};
use agent_images::oci::{ImageManifest, OciError, OciLimits};
use sha2::{Digest, Sha256};

use super::cache::{TEMPORARY, evict, touch};
use super::{BootFiles, ExtractedFiles, KernelError, location_text};
use crate::beneath::{Access, AllowedDirs, BeneathDir, BeneathError, Wanted};
use crate::layout::{absent_is_none, ensure_private_dir};

/// Go's word for the architecture that VMMs of this release run.
const ARCHITECTURE: &str = "amd64";

/// Opens a file of an image by its path within it.
type FileOpener<'a> = Box<dyn Fn(&Path) -> Result<File, KernelError> + 'a>;

/// Opens the files that a spec names.
pub(super) fn find(
    boot: &KernelBoot,
    allowed: &AllowedDirs,
    extracted: &ExtractedFiles,
) -> Result<BootFiles, KernelError> {
    let (path, reference) = match &boot.image {
        ImageLocation::Directory(path) => (path, None),
        ImageLocation::OciLayout { path, reference } => (path, Some(reference.as_deref())),
    };
    let dir = allowed.open(path, Wanted::Directory, Access::Read)?;
    let dir = BeneathDir::new(dir, path);
    let open: FileOpener<'_> = match reference {
        None => Box::new(|file| Ok(dir.open(file)?)),
        Some(reference) => {
            let open = |file: &Path| dir.open(file).map_err(into_io);
            let manifest =
                ImageManifest::open(&open, reference, ARCHITECTURE, OciLimits::default())
                    .map_err(|source| image_error(&boot.image, source))?;
            let image = &boot.image;
            Box::new(move |file| {
                extracted
                    .open(&manifest, &open, file)
                    .map_err(|source| image_error(image, source))
            })
        }
    };
    Ok(BootFiles {
        kernel: open(&boot.kernel_path)?,
        initrd: boot.initrd_path.as_deref().map(open).transpose()?,
    })
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

impl ExtractedFiles {
    /// A file of an image, taken out if it was not before.
    ///
    /// The manifest's digest and the path name the contents, so a file that is there is right.
    fn open(
        &self,
        manifest: &ImageManifest,
        layout: &impl Fn(&Path) -> io::Result<File>,
        path: &Path,
    ) -> Result<File, OciError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);

        let key = Sha256::new()
            .chain_update(manifest.digest())
            .chain_update([0])
            .chain_update(path.as_os_str().as_encoded_bytes())
            .finalize();
        let key = hex::encode(key);
        let target = self.dir.join(&key);
        if let Some(file) = absent_is_none(File::open(&target)).map_err(OciError::Write)? {
            touch(&file, &target);
            return Ok(file);
        }
        // Two VMIs may want the same file at once: each takes it out, the last one stays.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.dir.join(format!("{TEMPORARY}{key}-{number}"));
        let result = self.extract(manifest, layout, path, &temporary, &target);
        if result.is_err()
            && let Err(error) = absent_is_none(fs::remove_file(&temporary))
        {
            tracing::warn!(path = %temporary.display(), %error, "a half-written file stays behind");
        }
        result
    }

    fn extract(
        &self,
        manifest: &ImageManifest,
        layout: &impl Fn(&Path) -> io::Result<File>,
        path: &Path,
        temporary: &Path,
        target: &Path,
    ) -> Result<File, OciError> {
        ensure_private_dir(&self.dir).map_err(OciError::Write)?;
        let mut output = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(temporary)
            .map_err(OciError::Write)?;
        manifest.extract(layout, path, &mut output, OciLimits::default())?;
        let publish = || -> io::Result<File> {
            output.sync_data()?;
            fs::rename(temporary, target)?;
            evict(&self.dir, target, self.max_bytes)?;
            File::open(target)
        };
        publish().map_err(OciError::Write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        dir: tempfile::TempDir,
        allowed: AllowedDirs,
        extracted: ExtractedFiles,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let images = dir.path().join("images");
            fs::create_dir_all(&images).unwrap();
            let extracted = ExtractedFiles {
                dir: dir.path().join("files"),
                max_bytes: 1 << 20,
            };
            Self {
                allowed: AllowedDirs::new(&[images], "allowed_dirs"),
                dir,
                extracted,
            }
        }

        fn find(&self, image: ImageLocation, initrd: Option<&str>) -> Result<String, KernelError> {
            let boot = KernelBoot {
                image,
                kernel_path: "boot/vmlinuz".into(),
                initrd_path: initrd.map(Into::into),
                cmdline: String::new(),
            };
            find(&boot, &self.allowed, &self.extracted)
                .map(|files| io::read_to_string(files.kernel).unwrap())
        }
    }

    /// An image layout of one layer with `boot/vmlinuz` in it.
    fn write_layout(dir: &Path) {
        fs::create_dir_all(dir.join("blobs/sha256")).unwrap();
        let blob = |media_type: &str, bytes: &[u8]| {
            let hex = hex::encode(Sha256::digest(bytes));
            fs::write(dir.join("blobs/sha256").join(&hex), bytes).unwrap();
            serde_json::json!({
                "mediaType": media_type, "digest": format!("sha256:{hex}"), "size": bytes.len(),
            })
        };
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(6);
        builder
            .append_data(&mut header, "boot/vmlinuz", &b"kernel"[..])
            .unwrap();
        let layer = blob(
            "application/vnd.oci.image.layer.v1.tar",
            &builder.into_inner().unwrap(),
        );
        let manifest = serde_json::json!({"layers": [layer]}).to_string();
        let manifest = blob(
            "application/vnd.oci.image.manifest.v1+json",
            manifest.as_bytes(),
        );
        let index = serde_json::json!({"manifests": [manifest]}).to_string();
        fs::write(dir.join("index.json"), index).unwrap();
    }

    #[test]
    fn a_file_of_an_oci_layout_is_taken_out_once() {
        let fixture = Fixture::new();
        let path = fixture.dir.path().join("images/layout");
        write_layout(&path);
        let image = ImageLocation::OciLayout {
            path: path.clone(),
            reference: None,
        };
        assert_eq!(fixture.find(image.clone(), None).unwrap(), "kernel");
        let blobs = path.join("blobs/sha256");
        for entry in fs::read_dir(&blobs).unwrap() {
            let path = entry.unwrap().path();
            // Only the manifest is read again.
            if !fs::read(&path).unwrap().starts_with(b"{") {
                fs::remove_file(path).unwrap();
            }
        }
        assert_eq!(fixture.find(image.clone(), None).unwrap(), "kernel");
        let error = fixture.find(image, Some("none")).unwrap_err();
        assert_eq!(error.reason(), "ImageNotReadable");
        assert_eq!(fs::read_dir(&fixture.extracted.dir).unwrap().count(), 1);
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
