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
        /// Its name.
        name: String,
        /// Keys.
        keys: [&'static str; 2],
    },
}

/// A volume of what is in a Secret or a ConfigMap: a file for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataVolume {
    /// The volume's label.
    pub label: String,
    /// Which of the two.
    pub kind: DataKind,
    /// Name in the VMI's namespace.
    pub name: String,
    /// The volume is empty when it is missing; otherwise the VMI waits for it.
    pub optional: bool,
    /// What is in it, once it was read.
    pub data: BTreeMap<String, Vec<u8>>,
}

/// Kinds of objects with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKind {
    /// A Secret.
    Secret,
    /// A ConfigMap.
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
