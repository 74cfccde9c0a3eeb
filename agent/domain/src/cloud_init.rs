//! Volumes of files that a guest reads: cloud-init's, and data of objects.

use std::collections::BTreeMap;

/// A volume for cloud-init.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudInit {
    /// Where cloud-init looks for what.
    pub kind: CloudInitKind,
    /// User data, if any.
    pub user_data: Option<CloudInitData>,
    /// Network data, if any.
    pub network_data: Option<CloudInitData>,
    /// Public keys for the default user, once the Secrets of the VMI's access credentials were read.
    pub public_keys: Vec<String>,
    /// Meta-data as hooks have seen it, or changed it; `None`: what follows from the VMI.
    pub meta_data: Option<Vec<u8>>,
}

/// Data sources of cloud-init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudInitKind {
    /// NoCloud: a volume `cidata`.
    NoCloud,
    /// OpenStack's: a volume `config-2`.
    ConfigDrive,
}

/// Where data comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudInitData {
    /// The spec, or the Secret that it names, once it was read.
    Inline(Vec<u8>),
    /// The first of these keys that a Secret of the VMI's namespace has.
    Secret {
        /// Name of the Secret.
        name: String,
        /// In the order in which they are looked for.
        keys: [&'static str; 2],
    },
}

/// A volume with data that is read when the guest starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataVolume {
    /// The volume's label.
    pub label: String,
    /// Where the data comes from.
    pub source: DataVolumeSource,
    /// One file at least is to be an answer file of Windows.
    pub is_sysprep: bool,
    /// Its files by path, once they were read.
    pub data: BTreeMap<String, Vec<u8>>,
}

impl DataVolume {
    /// A volume whose data was not read.
    pub(crate) fn new(label: impl Into<String>, source: DataVolumeSource) -> Self {
        Self {
            label: label.into(),
            source,
            is_sysprep: false,
            data: BTreeMap::new(),
        }
    }
}

/// Where the data of a volume comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataVolumeSource {
    /// A Secret or a ConfigMap: a file for each key.
    Object {
        /// ConfigMap or Secret.
        kind: DataKind,
        /// Name in the VMI's namespace.
        name: String,
        /// The volume is empty when it is missing; otherwise the VMI waits for it.
        optional: bool,
    },
    /// A service account's token.
    ServiceAccount {
        /// Name in the VMI's namespace.
        name: String,
    },
    /// Metadata of the VMI.
    Metadata(Vec<MetadataFile>),
}

/// A file with a field of the VMI's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataFile {
    /// Its path on the volume, names with `/` between them.
    pub path: String,
    /// The field whose value the file has.
    pub field: MetadataField,
}

/// A field of the VMI's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataField {
    /// `metadata.name`.
    Name,
    /// `metadata.namespace`.
    Namespace,
    /// `metadata.uid`.
    Uid,
    /// All labels.
    Labels,
    /// All annotations.
    Annotations,
    /// The label of this key; empty when there is none.
    Label(String),
    /// The annotation of this key; empty when there is none.
    Annotation(String),
}

/// Kinds of objects with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKind {
    /// `Secret`; the ledger stores its data encrypted.
    Secret,
    /// `ConfigMap`; its data is not confidential.
    ConfigMap,
}

impl DataKind {
    /// The kind's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }
}
