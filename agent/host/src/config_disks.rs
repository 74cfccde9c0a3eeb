//! Volumes of files that the agent makes for a guest: cloud-init's, and data of objects.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use agent_domain::{CloudInit, CloudInitData, CloudInitKind, DataVolume, Vmi};
use agent_images::iso::{IsoError, IsoFile, iso};
use agent_plan::PciAddresses;
use serde::Serialize;

use crate::layout::{absent_is_none, ensure_private_dir};

/// A volume that is to be made.
#[derive(Debug)]
pub(crate) struct ConfigVolume {
    label: String,
    files: Vec<(String, Vec<u8>)>,
}

impl ConfigVolume {
    /// What cloud-init of a VMI's guest is to find.
    pub(crate) fn of_cloud_init(
        vmi: &Vmi,
        addresses: &PciAddresses,
        source: &CloudInit,
    ) -> io::Result<Self> {
        let (label, directory, [meta, user, network]) = match source.kind {
            CloudInitKind::NoCloud => ("cidata", "", ["meta-data", "user-data", "network-config"]),
            CloudInitKind::ConfigDrive => (
                "config-2",
                "openstack/latest/",
                ["meta_data.json", "user_data", "network_data.json"],
            ),
        };
        let meta_data = match &source.meta_data {
            Some(bytes) => bytes.clone(),
            None => meta_data(vmi, addresses, source)?,
        };
        let data = |source: &Option<CloudInitData>| match source {
            None => Vec::new(),
            Some(CloudInitData::Inline(bytes)) => bytes.clone(),
            // Whoever asks for the volume has read it before.
            Some(CloudInitData::Secret { .. }) => Vec::new(),
        };
        let mut files = vec![(meta, meta_data), (user, data(&source.user_data))];
        if source.network_data.is_some() {
            files.push((network, data(&source.network_data)));
        }
        let named = |(name, bytes)| (format!("{directory}{name}"), bytes);
        Ok(Self {
            label: label.to_owned(),
            files: files.into_iter().map(named).collect(),
        })
    }

    /// Data that was read: a file for each key.
    pub(crate) fn of_data(volume: &DataVolume) -> Self {
        let files = volume.data.iter();
        Self {
            label: volume.label.clone(),
            files: files
                .map(|(key, data)| (key.clone(), data.clone()))
                .collect(),
        }
    }

    /// The bytes of the volume.
    pub(crate) fn bytes(&self) -> io::Result<Vec<u8>> {
        let files: Vec<IsoFile<'_>> = self
            .files
            .iter()
            .map(|(path, data)| IsoFile { path, data })
            .collect();
        iso(&self.label, &files).map_err(invalid)
    }

    /// Makes the volume in `directory`, in place of an earlier one, which guests that have it keep. Opens it for
    /// reading.
    pub(crate) fn make(&self, directory: &Path, name: &str) -> io::Result<File> {
        let bytes = self.bytes()?;
        ensure_private_dir(directory)?;
        let path = directory.join(format!("{name}.iso"));
        let draft = directory.join(format!("{name}.iso.new"));
        absent_is_none(fs::remove_file(&draft))?;
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.open(&draft)?.write_all(&bytes)?;
        fs::rename(&draft, &path)?;
        File::open(&path)
    }
}

/// What cloud-init of a VMI's guest learns of it, as KubeVirt has it.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn meta_data(vmi: &Vmi, addresses: &PciAddresses, source: &CloudInit) -> io::Result<Vec<u8>> {
    let bytes = match source.kind {
        CloudInitKind::NoCloud => serde_json::to_vec(&NoCloudMetaData::of(vmi, source)),
        CloudInitKind::ConfigDrive => {
            serde_json::to_vec(&ConfigDriveMetaData::of(vmi, addresses, source))
        }
    };
    Ok(bytes?)
}

fn invalid(error: IsoError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// KubeVirt's `meta-data`, member by member in its order.
#[derive(Serialize)]
struct NoCloudMetaData<'a> {
    #[serde(rename = "instance-type", skip_serializing_if = "Option::is_none")]
    instance_type: Option<&'a str>,
    #[serde(rename = "instance-id")]
    instance_id: String,
    #[serde(rename = "local-hostname")]
    local_hostname: &'a str,
    #[serde(rename = "public-keys", skip_serializing_if = "PublicKeys::is_empty")]
    public_keys: PublicKeys<'a>,
}

impl<'a> NoCloudMetaData<'a> {
    fn of(vmi: &'a Vmi, source: &'a CloudInit) -> Self {
        Self {
            instance_type: vmi.instance_type.as_deref(),
            instance_id: uuid(vmi),
            local_hostname: &vmi.hostname,
            public_keys: public_keys(source),
        }
    }
}

/// KubeVirt's `meta_data.json`, member by member in its order.
#[derive(Serialize)]
struct ConfigDriveMetaData<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_type: Option<&'a str>,
    instance_id: String,
    hostname: &'a str,
    uuid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<TaggedDevice<'a>>,
    #[serde(skip_serializing_if = "PublicKeys::is_empty")]
    public_keys: PublicKeys<'a>,
}

impl<'a> ConfigDriveMetaData<'a> {
    fn of(vmi: &'a Vmi, addresses: &PciAddresses, source: &'a CloudInit) -> Self {
        Self {
            instance_type: vmi.instance_type.as_deref(),
            instance_id: format!("{}.{}", vmi.name, vmi.namespace),
            hostname: &vmi.hostname,
            uuid: uuid(vmi),
            devices: tagged(vmi, addresses),
            public_keys: public_keys(source),
        }
    }
}

/// A device with a tag, member by member as KubeVirt has it.
#[derive(Serialize)]
struct TaggedDevice<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    bus: &'static str,
    address: String,
    mac: String,
    tags: [&'a str; 1],
}

/// The interfaces that have one, where the guest finds them at power-on.
fn tagged<'a>(vmi: &'a Vmi, addresses: &PciAddresses) -> Vec<TaggedDevice<'a>> {
    let interfaces = vmi.interfaces.iter();
    let tagged = interfaces.filter(|interface| !interface.tag.is_empty());
    let devices = tagged.filter_map(|interface| {
        let place = addresses.interfaces.get(interface.name.as_str())?;
        Some(TaggedDevice {
            kind: "nic",
            bus: "pci",
            address: format!("0000:{:02x}:{:02x}.0", place.bus, place.device),
            mac: interface.mac.to_string(),
            tags: [&interface.tag],
        })
    });
    devices.collect()
}

/// Public keys of SSH by their numbers.
type PublicKeys<'a> = BTreeMap<String, &'a str>;

fn public_keys(source: &CloudInit) -> PublicKeys<'_> {
    let keys = source.public_keys.iter().enumerate();
    keys.map(|(number, key)| (number.to_string(), key.as_str()))
        .collect()
}

/// The firmware's UUID as text.
fn uuid(vmi: &Vmi) -> String {
    let hex = hex::encode(vmi.identity.system.uuid);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| hex.get(range).unwrap_or(""));
    parts.join("-")
}

#[cfg(test)]
mod tests;
