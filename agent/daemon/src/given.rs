//! What a VMI is given of other objects, read when a guest is about to start. A missing one is waited for.

mod metadata;
mod pull_secret;
mod service_account;

use std::collections::BTreeMap;

use agent_domain::{
    AccessCredential, CloudInit, CloudInitData, ContainerDisk, ContainerImage, DataKind,
    DataVolume, DataVolumeSource, DiskSource, Propagation, Vmi,
};
use agent_host::GuestCredentials;
use agent_objects::{ObjectId, data_of};
use agent_plan::{Action, Failure, FailureClass};
use agent_sources::{ApiError, ObjectRegistry};
use proto_node::vmi::VirtualMachineInstance;

use crate::objects::Objects;

/// The kubelet's reason, who pulls without it all the same; here it is waited for.
const NO_PULL_SECRET: &str = "FailedToRetrieveImagePullSecret";

/// Answer files of Windows, in any case; one of them is enough.
const ANSWER_FILES: [&str; 2] = ["autounattend.xml", "unattend.xml"];

/// KubeVirt's words.
const NO_ANSWERS: &str =
    "Sysprep drive should contain autounattend.xml or unattend.xml but neither were found.";

/// A VMI with what its volumes are given, for actions that need it.
pub(crate) fn with_data(
    objects: &Objects,
    action: &Action,
    object: &VirtualMachineInstance,
    mut vmi: Vmi,
) -> Result<Vmi, Failure> {
    if !matches!(action, Action::EnsureDisks | Action::ConfigureVmm { .. }) {
        return Ok(vmi);
    }
    let namespace = vmi.namespace.to_string();
    let reader = Reader {
        objects,
        namespace: &namespace,
    };
    let credentials = vmi.access_credentials.clone();
    for disk in &mut vmi.disks {
        match &mut disk.source {
            DiskSource::CloudInit(cloud_init) => {
                reader.fill_cloud_init(cloud_init, &credentials)?;
            }
            DiskSource::Data(volume) => reader.fill_volume(volume, object)?,
            DiskSource::Container(container) => reader.fill_credentials(container)?,
            DiskSource::Host { .. } | DiskSource::Empty { .. } => {}
        }
    }
    Ok(vmi)
}

/// What the registry of a disk's image is shown, if the disk names a pull secret of the namespace.
///
/// # Errors
/// Which Secret is missing, or says nothing that can be read.
pub(crate) fn fill_credentials(
    objects: &Objects,
    namespace: &str,
    disk: &mut ContainerDisk,
) -> Result<(), Failure> {
    Reader { objects, namespace }.fill_credentials(disk)
}

/// Keys and passwords that the agent in a guest is to set.
///
/// # Errors
/// Which Secret is missing.
pub(crate) fn guest_credentials(
    objects: &Objects,
    namespace: &str,
    credentials: &[AccessCredential],
) -> Result<GuestCredentials, Failure> {
    let reader = Reader { objects, namespace };
    let mut all = GuestCredentials::default();
    for credential in credentials {
        match &credential.propagation {
            Propagation::CloudInit(_) => {}
            Propagation::AgentKeys { users } => {
                let keys = lines(reader.present(DataKind::Secret, &credential.secret)?);
                for user in users {
                    let of_user: &mut Vec<String> = all.keys.entry(user.clone()).or_default();
                    of_user.extend(keys.iter().cloned());
                }
            }
            Propagation::AgentPasswords => {
                let data = reader.present(DataKind::Secret, &credential.secret)?;
                // As KubeVirt has it: an end of line is no part of a password, and without one a user keeps his.
                let trimmed = data
                    .into_iter()
                    .map(|(user, password)| (user, password.trim_ascii().to_vec()));
                let given = trimmed.filter(|(_, password)| !password.is_empty());
                all.passwords.extend(given);
            }
        }
    }
    Ok(all)
}

/// Public keys, one a line, as files of them have it.
fn lines(data: BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let mut keys = Vec::new();
    for value in data.values() {
        let text = String::from_utf8_lossy(value);
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        keys.extend(lines.map(str::to_owned));
    }
    keys
}

/// Values by key; `None`: there is no such object.
type Data = Option<BTreeMap<String, Vec<u8>>>;

/// Reads objects of a VMI's namespace.
struct Reader<'a> {
    objects: &'a Objects,
    namespace: &'a str,
}

impl Reader<'_> {
    fn read(&self, kind: DataKind, name: &str) -> Result<Data, Failure> {
        let id = self.id(kind.name(), name);
        let failed = |why: String| {
            let message = format!(
                "{} {}/{name} cannot be read: {why}",
                kind.name(),
                self.namespace
            );
            waits("FailedMount", message)
        };
        match self.objects.get_object(&id) {
            Ok(object) => match data_of(&object) {
                Ok(data) => Ok(Some(data)),
                Err(error) => Err(failed(error.to_string())),
            },
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    fn id(&self, kind: &str, name: &str) -> ObjectId {
        ObjectId {
            kind: kind.to_owned(),
            namespace: self.namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn present(&self, kind: DataKind, name: &str) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
        self.read(kind, name)?.ok_or_else(|| {
            let resource = match kind {
                DataKind::Secret => "secret",
                DataKind::ConfigMap => "configmap",
            };
            waits("FailedMount", format!("{resource} {name:?} not found"))
        })
    }

    fn fill_cloud_init(
        &self,
        cloud_init: &mut CloudInit,
        credentials: &[AccessCredential],
    ) -> Result<(), Failure> {
        let both = [&mut cloud_init.user_data, &mut cloud_init.network_data];
        for data in both.into_iter().flatten() {
            self.fill(data)?;
        }
        let by = Propagation::CloudInit(cloud_init.kind);
        for credential in credentials.iter().filter(|it| it.propagation == by) {
            let keys = self.present(DataKind::Secret, &credential.secret)?;
            cloud_init.public_keys.extend(lines(keys));
        }
        Ok(())
    }

    fn fill(&self, data: &mut CloudInitData) -> Result<(), Failure> {
        let CloudInitData::Secret { name, keys } = data else {
            return Ok(());
        };
        let mut values = self.present(DataKind::Secret, name)?;
        let found = keys.iter().find_map(|key| values.remove(*key));
        let found = found.ok_or_else(|| {
            let message = format!("secret {name:?} has none of the keys {}", keys.join(", "));
            waits("FailedMount", message)
        })?;
        *data = CloudInitData::Inline(found);
        Ok(())
    }

    fn fill_volume(
        &self,
        volume: &mut DataVolume,
        object: &VirtualMachineInstance,
    ) -> Result<(), Failure> {
        volume.data = match &volume.source {
            DataVolumeSource::Object {
                kind,
                name,
                optional: true,
            } => self.read(*kind, name)?.unwrap_or_default(),
            DataVolumeSource::Object { kind, name, .. } => self.present(*kind, name)?,
            DataVolumeSource::ServiceAccount { name } => self.token_of(name)?,
            DataVolumeSource::Metadata(files) => {
                let metadata = object.metadata.clone().unwrap_or_default();
                metadata::files(files, &metadata)
            }
        };
        let is_answer = |file: &String| ANSWER_FILES.contains(&file.to_lowercase().as_str());
        if volume.is_sysprep && !volume.data.keys().any(is_answer) {
            return Err(waits("FailedMount", String::from(NO_ANSWERS)));
        }
        Ok(())
    }

    fn fill_credentials(&self, container: &mut ContainerDisk) -> Result<(), Failure> {
        if let (Some(secret), ContainerImage::Registry(_)) =
            (&container.pull_secret, &container.image)
        {
            let data = self
                .present(DataKind::Secret, secret)
                .map_err(|failure| Failure {
                    reason: String::from(NO_PULL_SECRET),
                    ..failure
                })?;
            container.credentials = pull_secret::credentials(&data).map_err(|why| {
                let message = format!("imagePullSecret {secret:?}: {why}");
                waits(NO_PULL_SECRET, message)
            })?;
        }
        Ok(())
    }
}

fn waits(reason: &str, message: String) -> Failure {
    Failure {
        class: FailureClass::Pending,
        reason: reason.to_owned(),
        message,
    }
}
