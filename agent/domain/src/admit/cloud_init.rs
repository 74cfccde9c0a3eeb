//! Volumes for cloud-init, by KubeVirt's rules.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proto_node::vmi::CloudInitSource;

use super::review::Review;
use crate::cloud_init::{CloudInit, CloudInitData, CloudInitKind};
use crate::error::{FieldError, Rule};

/// KubeVirt's bound on data within a spec.
const MAX_INLINE_BYTES: usize = 2048;

/// Annotations that name an instance type; the first wins.
const INSTANCE_TYPES: [&str; 2] = [
    "kubevirt.io/cluster-instancetype-name",
    "kubevirt.io/instancetype-name",
];

/// Reads a volume; `path` is that of its source.
pub(super) fn cloud_init(
    path: &str,
    kind: CloudInitKind,
    wire: &CloudInitSource,
    review: &mut Review<'_>,
) -> Option<CloudInit> {
    let user = Given {
        what: "userdata",
        sources: "userdatasource",
        field: "userData",
        secret_field: "UserDataSecretRef",
        text: &wire.user_data,
        base64: &wire.user_data_base64,
        secret: name_of(wire.user_data_secret_ref.as_ref()),
        keys: ["userdata", "userData"],
    };
    let network = Given {
        what: "networkdata",
        sources: "networkdata source",
        field: "networkData",
        secret_field: "NetworkDataSecretRef",
        text: &wire.network_data,
        base64: &wire.network_data_base64,
        secret: name_of(wire.network_data_secret_ref.as_ref()),
        keys: ["networkdata", "networkData"],
    };
    let before = review.errors.len();
    let user_data = user.read(path, kind, review);
    let network_data = network.read(path, kind, review);
    if user.count() + network.count() == 0 {
        let message =
            format!("{path} must have at least one userdatasource or one networkdatasource set.");
        review.push(FieldError::new(path, Rule::Invalid, message));
    }
    (review.errors.len() == before).then_some(CloudInit {
        kind,
        user_data,
        network_data,
        public_keys: Vec::new(),
        meta_data: None,
    })
}

/// The name of the instance type that a VMI was made of.
pub(super) fn instance_type(annotations: &BTreeMap<String, String>) -> Option<String> {
    let mut names = INSTANCE_TYPES
        .iter()
        .filter_map(|key| annotations.get(*key));
    names.find(|name| !name.is_empty()).cloned()
}

fn name_of(reference: Option<&proto_node::vmi::LocalObjectReference>) -> &str {
    reference.map_or("", |reference| reference.name.as_str())
}

/// One of the two kinds of data, as it was given.
struct Given<'a> {
    what: &'static str,
    sources: &'static str,
    field: &'static str,
    secret_field: &'static str,
    text: &'a str,
    base64: &'a str,
    /// Name of the Secret.
    secret: &'a str,
    keys: [&'static str; 2],
}

impl Given<'_> {
    fn count(&self) -> usize {
        [
            !self.text.is_empty(),
            !self.base64.is_empty(),
            !self.secret.is_empty(),
        ]
        .into_iter()
        .map(usize::from)
        .sum()
    }

    fn read(
        &self,
        path: &str,
        kind: CloudInitKind,
        review: &mut Review<'_>,
    ) -> Option<CloudInitData> {
        if self.count() > 1 {
            let message = format!("{path} must have only one {} set.", self.sources);
            review.push(FieldError::new(path, Rule::Invalid, message));
        }
        let data = if self.text.is_empty() {
            self.decoded(path, kind, review)
        } else {
            self.text.as_bytes().to_vec()
        };
        // What runs was admitted already.
        if data.len() > MAX_INLINE_BYTES && review.is_new() {
            let message = format!(
                "{path} {} exceeds {MAX_INLINE_BYTES} byte limit. Should use {} for larger data.",
                self.what, self.secret_field
            );
            review.push(FieldError::new(path, Rule::Invalid, message));
        }
        if !self.secret.is_empty() {
            return Some(CloudInitData::Secret {
                name: self.secret.to_owned(),
                keys: self.keys,
            });
        }
        (!data.is_empty()).then_some(CloudInitData::Inline(data))
    }

    fn decoded(&self, path: &str, kind: CloudInitKind, review: &mut Review<'_>) -> Vec<u8> {
        // Go's decoder skips line ends.
        let text: String = self
            .base64
            .chars()
            .filter(|c| !"\r\n".contains(*c))
            .collect();
        STANDARD.decode(text).unwrap_or_else(|_| {
            let source = match kind {
                CloudInitKind::NoCloud => "cloudInitNoCloud",
                CloudInitKind::ConfigDrive => "cloudInitConfigDrive",
            };
            let field = format!("{path}.{}Base64", self.field);
            let message = format!(
                "{field}.{source}.{}Base64 is not a valid base64 value.",
                self.field
            );
            review.push(FieldError::new(field, Rule::Invalid, message));
            Vec::new()
        })
    }
}
