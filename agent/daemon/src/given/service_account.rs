//! Tokens of service accounts. A node issues none: it hands out those that are in Secrets of Kubernetes' type for them.

use std::collections::BTreeMap;

use agent_objects::{Object, data_of};
use agent_plan::Failure;
use agent_sources::{ApiError, ObjectRegistry};

use super::{Reader, waits};

const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";

/// What a pod finds in `/var/run/secrets/kubernetes.io/serviceaccount`.
const FILES: [&str; 3] = ["ca.crt", "namespace", "token"];

impl Reader<'_> {
    /// The files of a service account's volume.
    pub(super) fn token_of(&self, account: &str) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
        let failed = |error: ApiError| {
            let message = format!("service account {account:?} cannot be read: {error}");
            waits("FailedMount", message)
        };
        match self.objects.get_object(&self.id("ServiceAccount", account)) {
            Ok(_) => {}
            Err(ApiError::NotFound { .. }) => {
                let message = format!("serviceaccount {account:?} not found");
                return Err(waits("FailedMount", message));
            }
            Err(error) => return Err(failed(error)),
        }
        let secrets = self.objects.list_objects("Secret").map_err(failed)?;
        let mut tokens: Vec<&Object> = secrets
            .items
            .iter()
            .filter(|secret| self.is_token(secret, account))
            .collect();
        tokens.sort_by_key(|secret| &secret.metadata.name);
        let token = tokens.into_iter().find_map(|secret| {
            let mut data = data_of(secret).ok()?;
            data.contains_key("token").then(|| {
                data.retain(|key, _| FILES.contains(&key.as_str()));
                data
            })
        });
        let mut files = token.ok_or_else(|| {
            waits(
                "FailedMount",
                format!(
                    "serviceaccount {account:?} has no token, and this node issues none: make a Secret of the type \
                     {TOKEN_TYPE} with the annotation {ACCOUNT}={account} and the key token"
                ),
            )
        })?;
        files
            .entry(String::from("namespace"))
            .or_insert_with(|| self.namespace.as_bytes().to_vec());
        Ok(files)
    }

    fn is_token(&self, secret: &Object, account: &str) -> bool {
        let metadata = &secret.metadata;
        let kind = secret.content.get("type").and_then(|kind| kind.as_str());
        metadata.namespace == self.namespace
            && kind == Some(TOKEN_TYPE)
            && metadata
                .annotations
                .get(ACCOUNT)
                .is_some_and(|name| name == account)
    }
}
