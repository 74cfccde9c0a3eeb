//! What packages say of the firmware that they install (QEMU's `docs/interop/firmware.json`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc;
use serde::Deserialize;

/// Directories of descriptors. A file hides those of its name in the directories after it.
const DIRECTORIES: [&str; 2] = ["etc/qemu/firmware", "usr/share/qemu/firmware"];

/// More files than any distribution has; the rest is not looked at.
const MAX_FILES: usize = 256;
/// A descriptor has about 1 KiB.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Features that firmware has which this machine cannot run, or which would change what runs on it.
const UNSUITABLE: [&str; 4] = [
    "requires-smm",
    "secure-boot",
    "enrolled-keys",
    "host-uefi-vars",
];

/// Which kind of firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interface {
    Bios,
    Uefi,
}

/// One descriptor, as far as it is looked at. Members that it has besides mean nothing here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Descriptor {
    interface_types: Vec<String>,
    mapping: Mapping,
    targets: Vec<Target>,
    #[serde(default)]
    features: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "device", rename_all = "kebab-case")]
enum Mapping {
    #[serde(rename_all = "kebab-case")]
    Flash {
        #[serde(default)]
        mode: FlashMode,
        executable: Image,
        nvram_template: Option<Image>,
    },
    Memory {
        filename: PathBuf,
    },
    #[serde(other)]
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FlashMode {
    #[default]
    Split,
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, Deserialize)]
struct Image {
    filename: PathBuf,
    format: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Target {
    architecture: String,
    #[serde(default)]
    machines: Vec<String>,
}

/// Files of one piece of firmware, not looked at yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) code: PathBuf,
    /// Template of its variables; BIOS has none.
    pub(super) variables: Option<PathBuf>,
}

impl Descriptor {
    /// Its files, when it is of this kind and a machine of this release can run it.
    pub(super) fn suits(&self, interface: Interface) -> Option<Files> {
        let word = match interface {
            Interface::Bios => "bios",
            Interface::Uefi => "uefi",
        };
        let is_it = self.interface_types.iter().any(|kind| kind == word);
        if !is_it || self.is_secure() || !self.targets.iter().any(Target::is_ours) {
            return None;
        }
        match (&self.mapping, interface) {
            (Mapping::Memory { filename }, Interface::Bios) => Some(Files {
                code: filename.clone(),
                variables: None,
            }),
            (
                Mapping::Flash {
                    mode: FlashMode::Split,
                    executable,
                    nvram_template: template,
                },
                _,
            ) if executable.format == "raw" => {
                let template = template.as_ref().filter(|image| image.format == "raw");
                let variables = template.map(|image| image.filename.clone());
                let complete = interface == Interface::Bios || variables.is_some();
                complete.then(|| Files {
                    code: executable.filename.clone(),
                    variables: variables.filter(|_| interface == Interface::Uefi),
                })
            }
            _ => None,
        }
    }

    /// Whether it must not be loaded without system management mode.
    pub(super) fn is_secure(&self) -> bool {
        let features = self.features.iter();
        features
            .map(String::as_str)
            .any(|feature| UNSUITABLE.contains(&feature))
    }

    /// The image that runs.
    pub(super) fn code(&self) -> Option<&Path> {
        match &self.mapping {
            Mapping::Flash { executable, .. } => Some(&executable.filename),
            Mapping::Memory { filename } => Some(filename),
            Mapping::Other => None,
        }
    }
}

impl Target {
    /// Whether any q35 machine is meant: patterns name versions of QEMU's, which this is none of.
    fn is_ours(&self) -> bool {
        const MACHINE: &str = "pc-q35-";
        let any_version = |pattern: &String| {
            let start = pattern.split_once('*').map(|(start, _)| start);
            start.is_some_and(|start| MACHINE.starts_with(start))
        };
        self.architecture == "x86_64" && self.machines.iter().any(any_version)
    }
}

/// What is described on a node.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    /// In the order in which they are to be tried.
    pub(super) found: Vec<Descriptor>,
    /// Files that could not be read, each with the reason.
    pub(super) unread: Vec<String>,
}

impl Descriptors {
    /// Reads all below `root`, in the order of their names, whichever directory they are in. An empty file
    /// describes nothing.
    pub(super) fn read(root: &Path) -> Self {
        let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
        for directory in DIRECTORIES {
            for (name, path) in listed(&root.join(directory)) {
                files.entry(name).or_insert(path);
            }
        }
        let mut descriptors = Self::default();
        for path in files.values() {
            match read_one(path) {
                Ok(found) => descriptors.found.extend(found),
                Err(why) => descriptors
                    .unread
                    .push(format!("{}: {why}", path.display())),
            }
        }
        descriptors
    }
}

/// Files of a directory that may be descriptors; a directory that is not there has none.
fn listed(directory: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_one = name.ends_with(".json") && !name.starts_with('.');
        is_one.then(|| (name, entry.path()))
    });
    named.take(MAX_FILES).collect()
}

fn read_one(path: &Path) -> Result<Option<Descriptor>, String> {
    let text = text(path).map_err(|error| error.to_string())?;
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| error.to_string())
}

fn text(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a FIFO would wait.
    let file: File = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is no file"));
    }
    let mut text = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!(
            "has more than {MAX_FILE_BYTES} bytes"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descriptor with some members replaced.
    fn descriptor(changes: &serde_json::Value) -> Descriptor {
        let mut value = serde_json::json!({
            "description": "UEFI firmware",
            "interface-types": ["uefi"],
            "mapping": {
                "device": "flash",
                "executable": {"filename": "/code.fd", "format": "raw"},
                "nvram-template": {"filename": "/vars.fd", "format": "raw"},
            },
            "targets": [{"architecture": "x86_64", "machines": ["pc-i440fx-*", "pc-q35-*"]}],
            "features": ["acpi-s3", "amd-sev", "verbose-dynamic"],
            "tags": [],
        });
        for (member, changed) in changes.as_object().unwrap() {
            value[member] = changed.clone();
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_what_the_machine_can_run_suits() {
        use serde_json::json;
        let plain = descriptor(&json!({})).suits(Interface::Uefi).unwrap();
        assert_eq!(plain.code, Path::new("/code.fd"));
        assert_eq!(plain.variables.as_deref(), Some(Path::new("/vars.fd")));
        assert_eq!(descriptor(&json!({})).suits(Interface::Bios), None);
        let image = json!({"filename": "/code.fd", "format": "raw"});
        let qcow2 = json!({"filename": "/code.fd", "format": "qcow2"});
        for unsuitable in [
            json!({"features": ["requires-smm", "secure-boot"]}),
            json!({"features": ["enrolled-keys"]}),
            json!({"targets": [{"architecture": "aarch64", "machines": ["virt-*"]}]}),
            json!({"targets": [{"architecture": "x86_64", "machines": ["microvm"]}]}),
            json!({"targets": [{"architecture": "x86_64", "machines": ["pc-q35-2.4"]}]}),
            json!({"mapping": {"device": "memory", "filename": "/code.fd"}}),
            json!({"mapping": {"device": "tape", "filename": "/code.fd"}}),
            json!({"mapping": {"device": "flash", "executable": image}}),
            json!({"mapping": {"device": "flash", "executable": qcow2, "nvram-template": image}}),
            json!({"mapping": {"device": "flash", "mode": "combined", "executable": image, "nvram-template": image}}),
        ] {
            assert_eq!(
                descriptor(&unsuitable).suits(Interface::Uefi),
                None,
                "{unsuitable}"
            );
        }
        let bios = json!({
            "interface-types": ["bios"],
            "mapping": {"device": "memory", "filename": "/bios.bin"},
            "targets": [{"architecture": "x86_64", "machines": ["pc-*"]}],
        });
        let bios = descriptor(&bios).suits(Interface::Bios).unwrap();
        assert_eq!(
            (bios.code.as_path(), bios.variables),
            (Path::new("/bios.bin"), None)
        );
    }

    #[test]
    fn what_is_no_descriptor_costs_little_and_is_said() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("usr/share/qemu/firmware");
        fs::create_dir_all(&directory).unwrap();
        let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
        write("10-empty.json", "");
        write("20-torn.json", "{\"interface-types\": [");
        write("30-deep.json", &"[".repeat(60_000));
        write("40-long.json", &" ".repeat(70_000));
        write("notes.txt", "not looked at");
        nix::unistd::mkfifo(
            &directory.join("50-fifo.json"),
            nix::sys::stat::Mode::S_IRWXU,
        )
        .unwrap();
        let read = Descriptors::read(root.path());
        assert!(read.found.is_empty());
        assert_eq!(read.unread.len(), 4, "{:?}", read.unread);
    }
}
