//! Images of the node: layouts, archives, and directories as skopeo writes them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use agent_domain::{ContainerDisk, ContainerImage, ImageArchive};
use agent_images::oci::{ArchiveKind, ImageManifest, OciLimits, Window};

use crate::beneath::{AllowedPaths, BeneathDir};
use crate::helpers::{self, Memory};
use crate::image_defaults::ImageDefaults;
use crate::kernels::{KernelError, blocking, find_in_archive, open_layout, shared};
use crate::work::Work;

/// Go's word for the architecture of this release's guests.
const ARCHITECTURE: &str = "amd64";

/// What may be read of an image with a disk.
pub(super) const LIMITS: OciLimits = OciLimits {
    document_bytes: 4 << 20,
    layers: 128,
    layer_bytes: 64 << 30,
    unpacked_layer_bytes: 128 << 30,
    file_bytes: 64 << 30,
    total_bytes: 512 << 30,
};

/// An image of the node whose layers can be read.
#[derive(Debug)]
pub(super) struct LocalImage {
    pub(super) manifest: ImageManifest,
    /// What messages call it.
    pub(super) location: String,
    /// The lowest first.
    pub(super) layers: Layers,
    pub(super) defaults: ImageDefaults,
}

/// How the layers of an image are stored.
#[derive(Debug)]
pub(super) enum Layers {
    /// A file each.
    Files(Vec<File>),
    /// Within one file.
    Archive(File, Vec<Window>),
}

impl Layers {
    /// A descriptor for each layer, and where each is in its file.
    pub(super) fn files(self) -> io::Result<(Vec<File>, Vec<Window>)> {
        match self {
            Self::Files(files) => Ok((files, Vec::new())),
            Self::Archive(file, windows) => {
                let files = windows.iter().map(|_| file.try_clone());
                Ok((files.collect::<io::Result<_>>()?, windows))
            }
        }
    }
}

/// Finds an image of the node.
pub(super) async fn open(
    disk: &ContainerDisk,
    allowed: &AllowedPaths,
    helper: &Path,
    work: &Work,
) -> Result<LocalImage, KernelError> {
    let allowed = allowed.clone();
    let name = &disk.name;
    match &disk.image {
        ContainerImage::Layout(location) => {
            let location = location.clone();
            let opened = blocking(move || {
                let image = open_layout(&location, &allowed)?;
                let layers = Layers::Files(image.open_layers()?);
                Ok(LocalImage {
                    layers,
                    defaults: image.defaults(),
                    location: image.location().to_owned(),
                    manifest: image.manifest,
                })
            });
            work.during(name, opened).await
        }
        ContainerImage::Directory(path) => {
            let path = path.clone();
            let opened = blocking(move || open_directory(&path, &allowed));
            work.during(name, opened).await
        }
        ContainerImage::Archive(archive) => {
            let path = archive.path.clone();
            let opened = blocking(move || shared(allowed.open_image_file(&path)?, &path));
            let file = work.during(name, opened).await?;
            // Only then, so that a file system that does not answer keeps no memory from others.
            let memory = helpers::READ_ARCHIVE.granted(Some(work)).await?;
            let found = read_archive(archive, file, helper, memory);
            work.during(name, found).await
        }
        ContainerImage::Registry(image) => Err(KernelError::Layers {
            location: image.repository.clone(),
            message: "it is in a registry".to_owned(),
        }),
    }
}

/// Layers lie beside the manifest, named by the digits of their digests.
fn open_directory(path: &Path, allowed: &AllowedPaths) -> Result<LocalImage, KernelError> {
    let location = format!("dir:{}", path.display());
    let failed = |message: String| KernelError::Layers {
        location: location.clone(),
        message,
    };
    let directory = allowed.open_image_dir(path)?;
    let bytes = document(&directory, "manifest.json").map_err(|error| failed(error.to_string()))?;
    let manifest = ImageManifest::of_document(&bytes, LIMITS)
        .map_err(|error| failed(crate::failure::chain(&error)))?;
    let layers = manifest
        .layer_paths()
        .map(|blob| {
            let name = blob.file_name().unwrap_or_default();
            shared(directory.open(Path::new(name))?, &path.join(name))
        })
        .collect::<Result<_, KernelError>>()?;
    let open = |file: &Path| {
        let name = file.file_name().unwrap_or_default();
        let opened = directory.open(Path::new(name));
        opened.map_err(io::Error::other)
    };
    let config = manifest.config(&open, LIMITS);
    Ok(LocalImage {
        manifest,
        location,
        layers: Layers::Files(layers),
        defaults: ImageDefaults::of_any(&config.unwrap_or_default()),
    })
}

fn document(directory: &BeneathDir, name: &str) -> io::Result<Vec<u8>> {
    let file = directory
        .open(Path::new(name))
        .map_err(|error| io::Error::other(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(LIMITS.document_bytes + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LIMITS.document_bytes {
        let text = format!("{name} has more than {} bytes", LIMITS.document_bytes);
        return Err(io::Error::other(text));
    }
    Ok(bytes)
}

async fn read_archive(
    archive: &ImageArchive,
    file: File,
    helper: &Path,
    memory: Memory,
) -> Result<LocalImage, KernelError> {
    let (kind, word) = if archive.is_docker {
        (ArchiveKind::Docker, "docker-archive")
    } else {
        (ArchiveKind::Oci, "oci-archive")
    };
    let reference = archive.reference.as_ref();
    let suffix = reference.map_or_else(String::new, |reference| format!(":{reference}"));
    let location = format!("{word}:{}{suffix}", archive.path.display());
    let request = crate::child::ArchiveRequest {
        kind,
        reference: archive.reference.clone(),
        architecture: ARCHITECTURE.to_owned(),
        limits: LIMITS,
    };
    let (found, defaults) =
        find_in_archive(helper, &location, file.as_fd(), &request, memory).await?;
    // The process that answered has read what others wrote: each layer becomes a descriptor here.
    let layers = found.manifest.layer_paths().count();
    if layers > LIMITS.layers || found.windows.len() != layers {
        return Err(KernelError::Layers {
            location,
            message: format!(
                "{} places were found for {layers} layers; there can be {}",
                found.windows.len(),
                LIMITS.layers
            ),
        });
    }
    Ok(LocalImage {
        manifest: found.manifest,
        location,
        layers: Layers::Archive(file, found.windows),
        defaults,
    })
}
