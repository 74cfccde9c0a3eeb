//! Keys and passwords for users of a guest, by KubeVirt's rules.

use proto_node::vmi::{
    AccessCredential as Wire, AccessCredentialSource, VirtualMachineInstanceSpec, Volume,
};

use super::review::Review;
use crate::access::{AccessCredential, Propagation};
use crate::cloud_init::CloudInitKind;
use crate::error::{FieldError, Rule};

/// Bound of ours on the list, and on that of users.
const MAX_ENTRIES: usize = 64;
/// Longest name of a user (`LOGIN_NAME_MAX` of Linux).
const MAX_USER_BYTES: usize = 256;

/// Reads `spec.accessCredentials`.
pub(super) fn judge(
    spec: &VirtualMachineInstanceSpec,
    review: &mut Review<'_>,
) -> Vec<AccessCredential> {
    let wire = &spec.access_credentials;
    if !review.lists_fit(&[("spec.accessCredentials", wire.len())], MAX_ENTRIES) {
        return Vec::new();
    }
    let mut credentials = Vec::new();
    for (index, credential) in wire.iter().enumerate() {
        let mut judged = Judged {
            path: format!("spec.accessCredentials[{index}]"),
            volumes: &spec.volumes,
            review,
        };
        credentials.extend(judged.credential(credential));
    }
    credentials
}

/// A credential that is judged.
struct Judged<'a, 'b> {
    path: String,
    volumes: &'a [Volume],
    review: &'a mut Review<'b>,
}

impl Judged<'_, '_> {
    fn credential(&mut self, wire: &Wire) -> Option<AccessCredential> {
        let keys = wire.ssh_public_key.as_ref().and_then(|keys| {
            let secret = self.secret("sshPublicKey", keys.source.as_ref());
            let propagation = self.key_propagation(keys.propagation_method.as_ref());
            AccessCredential::of(secret?, propagation?)
        });
        let passwords = wire.user_password.as_ref().and_then(|passwords| {
            let secret = self.secret("userPassword", passwords.source.as_ref());
            let method = passwords.propagation_method.as_ref();
            let is_given = method.is_some_and(|method| method.qemu_guest_agent.is_some());
            if !is_given {
                self.invalid(
                    "must have exactly one propagationMethod set",
                    "userPassword.propagationMethod",
                );
            }
            AccessCredential::of(secret?, is_given.then_some(Propagation::AgentPasswords)?)
        });
        if wire.ssh_public_key.is_some() == wire.user_password.is_some() {
            self.invalid("must have exactly one access credential type set", "");
            return None;
        }
        keys.or(passwords)
    }

    fn secret(&mut self, kind: &str, source: Option<&AccessCredentialSource>) -> Option<String> {
        let Some(secret) = source.and_then(|source| source.secret.as_ref()) else {
            self.invalid(
                "must have exactly one source set",
                &format!("{kind}.source"),
            );
            return None;
        };
        if secret.secret_name.is_empty() {
            let field = format!("{}.{kind}.source.secret.secretName", self.path);
            let message = format!("{field} is a required field");
            self.review.missing(&field, message);
            return None;
        }
        Some(secret.secret_name.clone())
    }

    fn key_propagation(
        &mut self,
        wire: Option<&proto_node::vmi::SshPublicKeyPropagationMethod>,
    ) -> Option<Propagation> {
        const METHOD: &str = "sshPublicKey.propagationMethod";
        let wire = wire.cloned().unwrap_or_default();
        let mut given = Vec::new();
        if wire.no_cloud.is_some() {
            given.push(Propagation::CloudInit(CloudInitKind::NoCloud));
            if !self
                .volumes
                .iter()
                .any(|volume| volume.cloud_init_no_cloud.is_some())
            {
                self.invalid(
                    "requires a noCloud volume to exist when the noCloud propagationMethod is in use.",
                    METHOD,
                );
            }
        }
        if wire.config_drive.is_some() {
            given.push(Propagation::CloudInit(CloudInitKind::ConfigDrive));
            if !self
                .volumes
                .iter()
                .any(|volume| volume.cloud_init_config_drive.is_some())
            {
                self.invalid(
                    "requires a configDrive volume to exist when the configDrive propagationMethod is in use.",
                    METHOD,
                );
            }
        }
        if let Some(agent) = wire.qemu_guest_agent {
            self.check_users(&agent.users);
            given.push(Propagation::AgentKeys { users: agent.users });
        }
        if given.len() != 1 {
            self.invalid("must have exactly one propagationMethod set", METHOD);
        }
        given.pop()
    }

    fn check_users(&mut self, users: &[String]) {
        const USERS: &str = "sshPublicKey.propagationMethod.qemuGuestAgent.users";
        let field = format!("{}.{USERS}", self.path);
        if users.is_empty() {
            self.invalid(
                "requires at least one user to be present in the users list",
                USERS,
            );
        }
        if !self.review.lists_fit(&[(&field, users.len())], MAX_ENTRIES) {
            return;
        }
        for (index, user) in users.iter().enumerate() {
            let is_name = (1..=MAX_USER_BYTES).contains(&user.len())
                && !user.contains(|letter: char| letter.is_control() || letter == ':');
            if !is_name {
                let rule = "a user's name has 1 to 256 bytes without ':' and control characters";
                self.review.unable(&format!("{field}[{index}]"), user, rule);
            }
        }
    }

    /// KubeVirt's messages name the element, whatever the field.
    fn invalid(&mut self, message: &str, field: &str) {
        let field = match field {
            "" => self.path.clone(),
            field => format!("{}.{field}", self.path),
        };
        let message = format!("{} {message}", self.path);
        self.review
            .push(FieldError::new(field, Rule::Invalid, message));
    }
}

impl AccessCredential {
    fn of(secret: String, propagation: Propagation) -> Option<Self> {
        Some(Self {
            secret,
            propagation,
        })
    }
}
