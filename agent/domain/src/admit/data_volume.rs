//! Volumes with data of Secrets and ConfigMaps, by KubeVirt's rules.

use proto_node::vmi::{ConfigMapVolumeSource, SecretVolumeSource, SysprepSource};

use super::review::Review;
use crate::cloud_init::{DataKind, DataVolume, DataVolumeSource};
use crate::error::{Bound, FieldError, Rule};

/// KubeVirt's labels.
pub(super) const LABEL: &str = "cfgdata";
const SYSPREP_LABEL: &str = "unattendCD";
/// What a volume descriptor has room for.
const MAX_LABEL_BYTES: usize = 32;

pub(super) fn secret(
    path: &str,
    wire: &SecretVolumeSource,
    review: &mut Review<'_>,
) -> Option<DataVolume> {
    let named = Named {
        kind: DataKind::Secret,
        field: "secretName",
        name: &wire.secret_name,
    };
    named.volume(path, (&wire.volume_label, LABEL), wire.optional, review)
}

pub(super) fn config_map(
    path: &str,
    wire: &ConfigMapVolumeSource,
    review: &mut Review<'_>,
) -> Option<DataVolume> {
    let named = Named {
        kind: DataKind::ConfigMap,
        field: "name",
        name: &wire.name,
    };
    named.volume(path, (&wire.volume_label, LABEL), wire.optional, review)
}

/// Answer files of Windows are one of the two.
pub(super) fn sysprep(
    path: &str,
    wire: &SysprepSource,
    review: &mut Review<'_>,
) -> Option<DataVolume> {
    let sources = [
        (DataKind::Secret, "secret.name", wire.secret.as_ref()),
        (
            DataKind::ConfigMap,
            "configMap.name",
            wire.config_map.as_ref(),
        ),
    ];
    let mut given = sources
        .into_iter()
        .filter_map(|(kind, field, reference)| Some((kind, field, reference?)));
    let (Some((kind, field, reference)), None) = (given.next(), given.next()) else {
        let message = format!("{path} must have exactly one of secret and configMap");
        let error = FieldError::new(path, Rule::Invalid, message);
        review.push(error.beyond(Bound::Release));
        return None;
    };
    let named = Named {
        kind,
        field,
        name: &reference.name,
    };
    let volume = named.volume(path, ("", SYSPREP_LABEL), None, review)?;
    Some(DataVolume {
        is_sysprep: true,
        ..volume
    })
}

/// An object as a volume names it.
struct Named<'a> {
    kind: DataKind,
    field: &'static str,
    name: &'a str,
}

impl Named<'_> {
    fn volume(
        &self,
        path: &str,
        label: (&str, &str),
        optional: Option<bool>,
        review: &mut Review<'_>,
    ) -> Option<DataVolume> {
        if self.name.is_empty() {
            let field = format!("{path}.{}", self.field);
            let message = format!("{field} is a required field");
            review.invalid(&field, "", message);
            return None;
        }
        let label = check_label(path, label, review)?;
        let source = DataVolumeSource::Object {
            kind: self.kind,
            name: self.name.to_owned(),
            optional: optional.unwrap_or(false),
        };
        Some(DataVolume::new(label, source))
    }
}

/// The label of a volume, or the default where none is given.
pub(super) fn check_label<'a>(
    path: &str,
    (label, default): (&'a str, &'a str),
    review: &mut Review<'_>,
) -> Option<&'a str> {
    let printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if label.len() > MAX_LABEL_BYTES || !label.bytes().all(printable) {
        let rule = "a volume label has at most 32 printable characters of ASCII";
        review.unable(&format!("{path}.volumeLabel"), label, rule);
        return None;
    }
    Some(if label.is_empty() { default } else { label })
}
