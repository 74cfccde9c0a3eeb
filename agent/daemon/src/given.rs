//! What a VMI is given of Secrets and ConfigMaps, read when a guest is about to start. A missing one is waited for.

use agent_domain::{CloudInitData, ContainerImage, DataKind, DataVolume, DiskSource, Vmi};
use agent_host::Host;
use agent_objects::{ObjectId, data_of};
use agent_plan::{Action, Failure, Verdict};
use agent_sources::{ApiError, ObjectRegistry};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::BTreeMap;

use crate::agent::Agent;

/// The key of a Secret of the type `kubernetes.io/dockerconfigjson`.
const DOCKER_CONFIG: &str = ".dockerconfigjson";

/// A VMI with what its volumes are given, for actions that need it.
pub(crate) fn with_data<H: Host>(
    agent: &Agent<H>,
    action: &Action,
    mut vmi: Vmi,
) -> Result<Vmi, Failure> {
    if !matches!(action, Action::EnsureDisks | Action::ConfigureVmm { .. }) {
        return Ok(vmi);
    }
    let namespace = vmi.namespace.to_string();
    let read = |kind, name: &str| read(agent, kind, &namespace, name);
    for disk in &mut vmi.disks {
        match &mut disk.source {
            DiskSource::CloudInit(cloud_init) => {
                let both = [&mut cloud_init.user_data, &mut cloud_init.network_data];
                for data in both.into_iter().flatten() {
                    fill(data, &read)?;
                }
            }
            DiskSource::Data(volume) => fill_volume(volume, &read)?,
            DiskSource::Container(container) => {
                if let (Some(secret), ContainerImage::Registry(image)) =
                    (&container.pull_secret, &container.image)
                {
                    let data = present(DataKind::Secret, secret, read(DataKind::Secret, secret)?)?;
                    let found = credentials(&data, &image.registry);
                    container.credentials = found.map_err(|why| {
                        let message = format!("imagePullSecret {secret:?}: {why}");
                        waits("FailedToRetrieveImagePullSecret", message)
                    })?;
                }
            }
            DiskSource::Host { .. } | DiskSource::Empty { .. } => {}
        }
    }
    Ok(vmi)
}

/// Values by key; `None`: there is no such object.
type Data = Option<BTreeMap<String, Vec<u8>>>;

fn read<H: Host>(
    agent: &Agent<H>,
    kind: DataKind,
    namespace: &str,
    name: &str,
) -> Result<Data, Failure> {
    let id = ObjectId {
        kind: kind.name().to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let failed = |why: String| {
        let message = format!("{} {namespace}/{name} cannot be read: {why}", kind.name());
        waits("FailedMount", message)
    };
    match agent.get_object(&id) {
        Ok(object) => match data_of(&object) {
            Ok(data) => Ok(Some(data)),
            Err(error) => Err(failed(error.to_string())),
        },
        Err(ApiError::NotFound { .. }) => Ok(None),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn present(kind: DataKind, name: &str, data: Data) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
    data.ok_or_else(|| {
        let resource = match kind {
            DataKind::Secret => "secret",
            DataKind::ConfigMap => "configmap",
        };
        waits("FailedMount", format!("{resource} {name:?} not found"))
    })
}

fn fill(
    data: &mut CloudInitData,
    read: &impl Fn(DataKind, &str) -> Result<Data, Failure>,
) -> Result<(), Failure> {
    let CloudInitData::Secret { name, keys } = data else {
        return Ok(());
    };
    let mut values = present(DataKind::Secret, name, read(DataKind::Secret, name)?)?;
    let found = keys.iter().find_map(|key| values.remove(*key));
    let found = found.ok_or_else(|| {
        let message = format!("secret {name:?} has none of the keys {}", keys.join(", "));
        waits("FailedMount", message)
    })?;
    *data = CloudInitData::Inline(found);
    Ok(())
}

fn fill_volume(
    volume: &mut DataVolume,
    read: &impl Fn(DataKind, &str) -> Result<Data, Failure>,
) -> Result<(), Failure> {
    let found = read(volume.kind, &volume.name)?;
    volume.data = match found {
        None if volume.optional => BTreeMap::new(),
        found => present(volume.kind, &volume.name, found)?,
    };
    Ok(())
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, DockerAuth>,
}

#[derive(Deserialize)]
struct DockerAuth {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// User and password for a registry; `None`: the Secret says nothing of it.
fn credentials(
    data: &BTreeMap<String, Vec<u8>>,
    registry: &str,
) -> Result<Option<(String, String)>, String> {
    let text = data
        .get(DOCKER_CONFIG)
        .ok_or_else(|| format!("there is no key {DOCKER_CONFIG}"))?;
    let config: DockerConfig =
        serde_json::from_slice(text).map_err(|_| format!("{DOCKER_CONFIG} is malformed"))?;
    let names = |name: &str| {
        let name = name
            .trim_start_matches("https://")
            .trim_start_matches("http://");
        let host = name.split('/').next().unwrap_or(name);
        host == registry || (registry == "docker.io" && host == "index.docker.io")
    };
    let Some((_, auth)) = config.auths.into_iter().find(|(name, _)| names(name)) else {
        return Ok(None);
    };
    if auth.auth.is_empty() {
        return Ok(Some((auth.username, auth.password)));
    }
    let malformed = || format!("{DOCKER_CONFIG}: the auth of {registry} is malformed");
    let plain = STANDARD.decode(auth.auth.trim()).map_err(|_| malformed())?;
    let plain = String::from_utf8(plain).map_err(|_| malformed())?;
    let (user, password) = plain.split_once(':').ok_or_else(malformed)?;
    Ok(Some((user.to_owned(), password.to_owned())))
}

fn waits(reason: &str, message: String) -> Failure {
    Failure {
        verdict: Verdict::Pending,
        reason: reason.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, registry: &str) -> Result<Option<(String, String)>, String> {
        let data = [(DOCKER_CONFIG.to_owned(), text.as_bytes().to_vec())];
        credentials(&data.into(), registry)
    }

    #[test]
    fn docker_s_configuration_gives_user_and_password_of_one_registry() {
        let text = r#"{"auths": {
            "registry.example:5000": {"auth": "bWU6c2VjOnJldA=="},
            "https://index.docker.io/v1/": {"username": "a", "password": "b"}
        }}"#;
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(
            of(text, "registry.example:5000").unwrap(),
            pair("me", "sec:ret")
        );
        assert_eq!(of(text, "docker.io").unwrap(), pair("a", "b"));
        assert_eq!(of(text, "registry.example").unwrap(), None);
        assert!(of("{", "x").is_err());
        assert!(of(r#"{"auths": {"x": {"auth": "!"}}}"#, "x").is_err());
        assert!(credentials(&BTreeMap::new(), "x").is_err());
    }
}
