//! Paths that callers name, of the host and within images.

use std::path::{Path, PathBuf};

use super::review::Review;
use crate::error::{FieldError, Rule};
use crate::paths::PathUse;

/// Linux' PATH_MAX without the terminating zero.
const MAX_PATH_BYTES: usize = 4095;

const NOT_ABSOLUTE: &str = "must be an absolute path";

/// A path of the host, absolute and normalised, that the VMI's namespace may use.
pub(super) fn host_path(
    field: &str,
    text: &str,
    wanted: PathUse,
    review: &mut Review<'_>,
) -> Option<PathBuf> {
    let path = match plain(text) {
        Ok(path) => path,
        Err(why) => {
            review.unable(field, text, why);
            return None;
        }
    };
    match refused(field, &path, wanted, review) {
        None => Some(path),
        Some(error) => {
            review.push(error);
            None
        }
    }
}

/// Why the VMI's namespace may not use a path of the host in this way.
pub(super) fn refused(
    field: &str,
    path: &Path,
    wanted: PathUse,
    review: &Review<'_>,
) -> Option<FieldError> {
    let caps = review.caps()?;
    let namespace = &review.namespace;
    let refusal = caps.paths.judge(namespace, path, wanted).err()?;
    let message = format!(
        "{:?} on node {:?} is {}",
        path.display().to_string(),
        caps.node_name,
        refusal.message(namespace)
    );
    let way_out = refusal.way_out(path, &caps.paths.setting);
    Some(FieldError::new(field, Rule::Forbidden, message).fix(way_out))
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
        Err(NOT_ABSOLUTE) => {
            let message =
                format!("{field} must be an absolute path to a file without relative components");
            review.invalid(field, text, message);
            None
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
        return Err(NOT_ABSOLUTE);
    }
    if text.split('/').any(|part| part == "..") {
        return Err("must not contain '..'");
    }
    Ok(Path::new(text).components().collect())
}
