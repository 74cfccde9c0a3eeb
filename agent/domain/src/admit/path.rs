//! Host paths of callers. Judged as text here; whoever opens one resolves it beneath the directory
//! again, because text knows nothing of symlinks.

use std::path::{Path, PathBuf};

use super::review::Review;
use crate::{FieldError, Rule};

/// Linux' PATH_MAX without the terminating zero.
const MAX_PATH_BYTES: usize = 4095;

/// Whether the directory itself is meant or something in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// The path may be an allowed directory itself.
    AtOrBelow,
    /// The path must be below an allowed directory.
    Below,
}

/// A path of the host, absolute and normalised.
pub(super) fn host_path(
    field: &str,
    text: &str,
    depth: Depth,
    review: &mut Review<'_>,
) -> Option<PathBuf> {
    let path = match plain(text) {
        Ok(path) => path,
        Err(why) => {
            review.invalid(field, text, why);
            return None;
        }
    };
    let Some(caps) = review.caps else {
        return Some(path);
    };
    let allowed = caps.allowed_dirs.iter().any(|dir| {
        path.starts_with(dir) && (depth == Depth::AtOrBelow || path.as_path() != dir.as_path())
    });
    if allowed {
        return Some(path);
    }
    let dirs: Vec<String> = caps
        .allowed_dirs
        .iter()
        .map(|dir| dir.display().to_string())
        .collect();
    let dirs = if dirs.is_empty() {
        "none".to_owned()
    } else {
        dirs.join(", ")
    };
    let error = FieldError::new(
        field,
        Rule::Forbidden,
        format!(
            "{text:?} is not below a directory that node {:?} allows",
            caps.node_name
        ),
    )
    .fix(format!(
        "allowed: {dirs}; set by {}",
        caps.allowed_dirs_setting
    ));
    review.push(error);
    None
}

/// A path within an image: absolute as KubeVirt writes it, relative in the answer.
pub(super) fn image_path(field: &str, text: &str, review: &mut Review<'_>) -> Option<PathBuf> {
    match plain(text) {
        Ok(path) => {
            let relative = path.strip_prefix("/").unwrap_or(&path).to_path_buf();
            if relative.as_os_str().is_empty() {
                review.invalid(field, text, "must name a file of the image");
                return None;
            }
            Some(relative)
        }
        Err(why) => {
            review.invalid(field, text, why);
            None
        }
    }
}

/// An absolute path without `..` and odd characters, with `.` and doubled slashes taken out.
fn plain(text: &str) -> Result<PathBuf, &'static str> {
    if text.len() > MAX_PATH_BYTES {
        return Err("must have at most 4095 bytes");
    }
    if text.chars().any(char::is_control) {
        return Err("must not contain control characters");
    }
    if !text.starts_with('/') {
        return Err("must be an absolute path");
    }
    if text.split('/').any(|part| part == "..") {
        return Err("must not contain '..'");
    }
    Ok(Path::new(text).components().collect())
}
