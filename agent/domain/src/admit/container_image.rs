//! Images with a disk: where a text says that one is.

use super::boot::{image_location, path_and_reference};
use super::image_reference;
use super::path::host_path;
use super::review::Review;
use crate::paths::PathUse;
use crate::vmi::{ContainerImage, ImageArchive};

/// Transports of skopeo that are not read.
const OTHER_TRANSPORTS: [&str; 4] = [
    "docker-daemon:",
    "containers-storage:",
    "http://",
    "https://",
];

/// What a text begins with, as skopeo spells it.
enum Transport<'a> {
    /// A layout of the node.
    Layout,
    /// A directory of the node.
    Directory(&'a str),
    /// An archive of the node.
    Archive { is_docker: bool, rest: &'a str },
    /// None: it is a name in a registry.
    Registry,
    /// One that is not read.
    Other,
}

fn transport(text: &str) -> Transport<'_> {
    let archive = |prefix, is_docker| {
        let rest = text.strip_prefix(prefix)?;
        Some(Transport::Archive { is_docker, rest })
    };
    if OTHER_TRANSPORTS
        .iter()
        .any(|prefix| text.starts_with(prefix))
    {
        Transport::Other
    } else if text.starts_with("oci:") {
        Transport::Layout
    } else if let Some(path) = text.strip_prefix("dir:") {
        Transport::Directory(path)
    } else {
        archive("oci-archive:", false)
            .or_else(|| archive("docker-archive:", true))
            .unwrap_or(Transport::Registry)
    }
}

/// The pull policy of an image for which none is given; nothing when the text names none. What is on the node never changes
/// under its name.
pub(super) fn default_pull_policy(text: &str) -> Option<&'static str> {
    match transport(text) {
        Transport::Registry => image_reference::default_pull_policy(text),
        Transport::Layout | Transport::Directory(_) | Transport::Archive { .. } => {
            Some(image_reference::pull_policy(false))
        }
        Transport::Other => None,
    }
}

/// The image that a text names.
pub(super) fn judge(field: &str, text: &str, review: &mut Review<'_>) -> Option<ContainerImage> {
    match transport(text) {
        Transport::Other => {
            let message = "such images are not read: use a name in a registry, oci:PATH[:REF], oci-archive:PATH[:REF], docker-archive:PATH[:REF] or dir:PATH on the node (skopeo copy makes them), or hostDisk for a disk of the node";
            review.unable(field, text, message);
            None
        }
        Transport::Layout => image_location(field, text, review).map(ContainerImage::Layout),
        Transport::Directory(path) => {
            host_path(field, path, PathUse::Image, review).map(ContainerImage::Directory)
        }
        Transport::Archive { is_docker, rest } => {
            let (path, reference) = path_and_reference(field, (text, rest), review)?;
            Some(ContainerImage::Archive(ImageArchive {
                is_docker,
                path,
                reference,
            }))
        }
        Transport::Registry => match image_reference::parse(text) {
            Ok(image) => Some(ContainerImage::Registry(image)),
            Err(rule) => {
                review.unable(field, text, rule);
                None
            }
        },
    }
}
