//! Debian's registry as people run theirs: with TLS and passwords.

use anyhow::Context;
use serde_json::json;

use crate::authority::DIRECTORY;
use crate::commands::Commands;

/// Who may pull and push.
pub const USER: &str = "alice";
/// With this password.
pub const PASSWORD: &str = "open sesame";
/// The same as `docker-registry` reads it: by bcrypt.
const PASSWORDS: &str = "alice:$2b$04$5WeYgFYiwfdeQZY1FEpGhOzdpeh8DpvburXFIzKVkcI0OSe8cL/nK\n";

/// Whether a registry takes images, or has those that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It takes more.
    ReadWrite,
    /// Its directory may be read-only.
    Read,
}

/// Starts a registry on a machine under test, at `address`, which keeps its images in `directory`. The machine has its
/// certificate and key as `registry.crt` and `registry.key` in [`DIRECTORY`].
///
/// # Errors
/// When the machine refuses.
pub fn start<M: Commands>(
    machine: &M,
    address: &str,
    directory: &str,
    access: Access,
) -> anyhow::Result<()> {
    let maintenance = match access {
        Access::ReadWrite => "",
        // Otherwise it wants to remove uploads that nobody goes on with.
        Access::Read => {
            ", maintenance: {uploadpurging: {enabled: false}, readonly: {enabled: true}}"
        }
    };
    let config = format!(
        "version: 0.1\nlog: {{level: warn}}\n\
         storage: {{filesystem: {{rootdirectory: {directory}}}{maintenance}}}\n\
         http: {{addr: \"{address}\", tls: {{certificate: {DIRECTORY}/registry.crt, key: {DIRECTORY}/registry.key}}}}\n\
         auth: {{htpasswd: {{realm: test, path: /run/passwords}}}}\n"
    );
    machine.put("/run/passwords", 0o644, PASSWORDS.as_bytes())?;
    machine.put("/run/secure.yml", 0o644, config.as_bytes())?;
    machine
        .sh("setsid docker-registry serve /run/secure.yml </dev/null >/run/secure.log 2>&1 &")
        .map(drop)
        .context("Debian's registry")
}

/// A pull secret by the name `registry` for a registry, with a password that it may or may not take.
#[must_use]
pub fn pull_secret(registry: &str, namespace: &str, password: &str) -> String {
    let auths = json!({"auths": {registry: {"username": USER, "password": password}}});
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "registry", "namespace": namespace},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": auths.to_string()},
    })
    .to_string()
}
