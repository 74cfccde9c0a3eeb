//! Keys and passwords for users of a guest, by reference.

use crate::cloud_init::CloudInitKind;

/// Keys or passwords of a Secret of the VMI's namespace, and how they get into the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessCredential {
    /// Name of the Secret.
    pub secret: String,
    /// What its values are, and the way.
    pub propagation: Propagation,
}

/// How keys or passwords get into a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Each value is a public key: cloud-init finds them on the volume of this kind.
    CloudInit(CloudInitKind),
    /// Each value is a public key: the guest agent gives them to these users.
    AgentKeys {
        /// Names of users of the guest; at least one.
        users: Vec<String>,
    },
    /// Each value is the password of the user that its key names: the guest agent sets it.
    AgentPasswords,
}

impl AccessCredential {
    /// Whether the guest agent carries it out.
    #[must_use]
    pub const fn is_of_agent(&self) -> bool {
        !matches!(self.propagation, Propagation::CloudInit(_))
    }
}
