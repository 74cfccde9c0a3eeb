//! Keys and passwords that an agent in a guest sets.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::conversation::{GuestAgent, GuestAgentError};

/// Keys and passwords for users of a guest.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct GuestCredentials {
    /// Public keys by user, which take the place of those that the user has.
    pub keys: BTreeMap<String, Vec<String>>,
    /// Passwords by user.
    pub passwords: BTreeMap<String, Vec<u8>>,
}

impl std::fmt::Debug for GuestCredentials {
    /// Without passwords.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("GuestCredentials")
            .field("keys", &self.keys)
            .field("passwords", &self.passwords.keys())
            .finish()
    }
}

impl GuestAgent {
    /// Sets all of them, as far as the guest takes them.
    ///
    /// # Errors
    /// The error of the last one that the guest did not take, in KubeVirt's words.
    pub(crate) async fn set_credentials(
        &mut self,
        credentials: &GuestCredentials,
    ) -> Result<(), String> {
        let mut outcome = Ok(());
        for (user, keys) in &credentials.keys {
            if let Err(error) = self.set_keys(user, keys).await {
                outcome = Err(format!(
                    "Error encountered writing ssh pub key access credentials for user [{user}]: {error}"
                ));
            }
        }
        for (user, password) in &credentials.passwords {
            if let Err(error) = self.set_password(user, password).await {
                outcome = Err(format!(
                    "Error encountered setting password for user [{user}]: {error}"
                ));
            }
        }
        outcome
    }

    async fn set_keys(&mut self, user: &str, keys: &[String]) -> Result<(), GuestAgentError> {
        let request = json!({"username": user, "keys": keys, "reset": true});
        self.ask("guest-ssh-add-authorized-keys", &request)
            .await
            .map(drop)
    }

    async fn set_password(&mut self, user: &str, password: &[u8]) -> Result<(), GuestAgentError> {
        let password = BASE64_STANDARD.encode(password);
        let request = json!({"username": user, "password": password, "crypted": false});
        self.ask("guest-set-user-password", &request)
            .await
            .map(drop)
    }
}

#[cfg(test)]
mod tests;
