//! Volumes with a service account's token or metadata of the VMI.

use std::collections::BTreeSet;

use proto_node::vmi::{
    DownwardApiVolumeFile, DownwardApiVolumeSource, ServiceAccountVolumeSource, Volume,
};

use super::data_volume::{LABEL, check_label};
use super::metadata::is_qualified_name;
use super::review::Review;
use crate::cloud_init::{DataVolume, DataVolumeSource, MetadataField, MetadataFile};
use crate::error::{FieldError, Rule};

/// Most files of a volume, and ours: more fields than that are none.
const MAX_FILES: usize = 256;
/// Longest name that a file of a volume has (`agent_images::iso::MAX_NAME_BYTES`).
const MAX_NAME_BYTES: usize = 103;
/// Directories within directories.
const MAX_DEPTH: usize = 8;

/// Reads a `serviceAccount` volume.
pub(super) fn service_account(
    path: &str,
    wire: &ServiceAccountVolumeSource,
    review: &mut Review<'_>,
) -> Option<DataVolume> {
    if wire.service_account_name.is_empty() {
        let field = format!("{path}.serviceAccountName");
        let message = format!("{field} is a required field");
        review.required(&field, message);
        return None;
    }
    Some(DataVolume::new(
        LABEL,
        DataVolumeSource::ServiceAccount {
            name: wire.service_account_name.clone(),
        },
    ))
}

/// One such volume at most, and the account that the spec names.
pub(super) fn check_service_accounts(volumes: &[Volume], account: &str, review: &mut Review<'_>) {
    let mounted: Vec<&str> = volumes
        .iter()
        .filter_map(|volume| volume.service_account.as_ref())
        .map(|volume| volume.service_account_name.as_str())
        .collect();
    if mounted.len() > 1 {
        let message = "spec.volumes must have max one serviceAccount volume set";
        review.push(FieldError::new("spec.volumes", Rule::Invalid, message));
    }
    for name in mounted {
        if !account.is_empty() && name != account && !name.is_empty() {
            let message = format!(
                "spec.serviceAccountName {account:?} and serviceAccount volume {name:?} must reference the same service account"
            );
            review.invalid("spec.serviceAccountName", account, message);
        }
    }
}

/// Reads a `downwardAPI` volume.
pub(super) fn downward_api(
    path: &str,
    wire: &DownwardApiVolumeSource,
    review: &mut Review<'_>,
) -> Option<DataVolume> {
    let list = format!("{path}.fields");
    if !review.lists_fit(&[(&list, wire.fields.len())], MAX_FILES) {
        return None;
    }
    let label = check_label(path, (&wire.volume_label, LABEL), review)?;
    let before = review.errors.len();
    let mut taken = UsedPaths::default();
    let mut files = Vec::new();
    for (index, field) in wire.fields.iter().enumerate() {
        files.extend(file(&format!("{list}[{index}]"), field, &mut taken, review));
    }
    let source = DataVolumeSource::Metadata(files);
    (review.errors.len() == before).then(|| DataVolume::new(label, source))
}

fn file(
    path: &str,
    wire: &DownwardApiVolumeFile,
    taken: &mut UsedPaths,
    review: &mut Review<'_>,
) -> Option<MetadataFile> {
    let name = format!("{path}.path");
    if wire.path.is_empty() {
        review.missing(&name, "names the file on the volume");
    } else if let Err(rule) = check_path(&wire.path) {
        review.unable(&name, &wire.path, rule);
    } else if !taken.take(&wire.path) {
        let message = "is the path of another file, or the directory of one";
        review.unable(&name, &wire.path, message);
    }
    // It is refused by its level.
    if wire.resource_field_ref.is_some() {
        return None;
    }
    let field = wire
        .field_ref
        .as_ref()
        .map(|field| field.field_path.as_str());
    let Some(field) = field.filter(|field| !field.is_empty()) else {
        review.missing(&format!("{path}.fieldRef.fieldPath"), "names the field");
        return None;
    };
    let version = wire
        .field_ref
        .as_ref()
        .map_or("", |field| field.api_version.as_str());
    if !["", "v1"].contains(&version) {
        review.unable(
            &format!("{path}.fieldRef.apiVersion"),
            version,
            "must be v1",
        );
    }
    let Some(field) = metadata_field(field) else {
        let message = "must be one of: metadata.name, metadata.namespace, metadata.uid, metadata.labels, \
                       metadata.annotations, metadata.labels['KEY'], metadata.annotations['KEY']";
        review.unable(&format!("{path}.fieldRef.fieldPath"), field, message);
        return None;
    };
    Some(MetadataFile {
        path: wire.path.clone(),
        field,
    })
}

fn metadata_field(text: &str) -> Option<MetadataField> {
    let key_of = |list: &str| {
        let key = text
            .strip_prefix(list)?
            .strip_prefix("['")?
            .strip_suffix("']")?;
        is_qualified_name(&key.to_lowercase()).then(|| key.to_owned())
    };
    Some(match text {
        "metadata.name" => MetadataField::Name,
        "metadata.namespace" => MetadataField::Namespace,
        "metadata.uid" => MetadataField::Uid,
        "metadata.labels" => MetadataField::Labels,
        "metadata.annotations" => MetadataField::Annotations,
        _ => match key_of("metadata.labels") {
            Some(key) => MetadataField::Label(key),
            None => MetadataField::Annotation(key_of("metadata.annotations")?),
        },
    })
}

/// Kubernetes' rules of such paths, and those of the volume.
fn check_path(path: &str) -> Result<(), &'static str> {
    if path.starts_with('/') {
        return Err("must be a relative path");
    }
    let parts: Vec<&str> = path.split('/').collect();
    if parts.contains(&"..") {
        return Err("must not contain '..'");
    }
    if path.starts_with("..") {
        return Err("must not start with '..'");
    }
    let is_bad = |letter: char| letter.is_control() || "\\:;*?".contains(letter);
    let is_name = |part: &&str| {
        (1..=MAX_NAME_BYTES).contains(&part.len()) && *part != "." && !part.contains(is_bad)
    };
    if parts.len() > MAX_DEPTH || !parts.iter().all(is_name) {
        return Err(
            "must have names of 1 to 103 bytes without control characters, '\\', ':', ';', '*' and '?', in at most 7 directories",
        );
    }
    Ok(())
}

/// Paths that a volume has already.
#[derive(Default)]
struct UsedPaths {
    files: BTreeSet<String>,
    directories: BTreeSet<String>,
}

impl UsedPaths {
    /// Whether nothing is in the way of a file.
    fn take(&mut self, path: &str) -> bool {
        let above: Vec<String> = path
            .match_indices('/')
            .filter_map(|(at, _)| path.get(..at).map(str::to_owned))
            .collect();
        let is_free = !self.directories.contains(path)
            && above
                .iter()
                .all(|directory| !self.files.contains(directory));
        self.directories.extend(above);
        is_free && self.files.insert(path.to_owned())
    }
}
