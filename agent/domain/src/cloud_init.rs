//! What cloud-init reads in a guest.

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
    /// The spec.
    Inline(Vec<u8>),
}
