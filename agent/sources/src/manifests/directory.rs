//! Reading the directory: files to objects.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use agent_objects::{Kinds, Object, ObjectId, Scope, Writer};
use prost::Message;
use proto_node::manifest::{self, MAX_MANIFEST_BYTES};
use proto_node::node::object;
use proto_node::vmi::VirtualMachineInstance;
use sha2::{Digest, Sha256};

/// Files of one directory that are read; more are reported and left out.
const MAX_FILES: usize = 4096;

/// Why an object of a file is refused that has no name.
const NAMELESS: &str = "metadata.name must be set: an object of a file needs a name that stays";

/// One VMI that a file asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DesiredVmi {
    /// Name of the file.
    pub(crate) file: String,
    /// Digest of the object: differs where the object was changed.
    pub(crate) digest: String,
    /// The object as the file has it.
    pub(crate) object: VirtualMachineInstance,
}

/// Which object without a guest, which file, and what to say.
pub(crate) type OtherComplaint = (ObjectId, String, String);

/// Namespace and name.
pub(crate) type VmiKey = (String, String);

/// What a file last said.
#[derive(Debug, Default)]
struct FileState {
    /// Digest of the bytes that were last looked at.
    seen: Vec<u8>,
    /// From the last version that could be read; `None` when none could yet.
    desired_objects: Option<DesiredObjects>,
}

/// What one file asks for.
#[derive(Debug, Default)]
struct DesiredObjects {
    vmis: Vec<DesiredVmi>,
    others: Vec<OtherObject>,
}

/// Something to report to the operator about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    /// Name of the file.
    pub(crate) file: String,
    /// Namespace and name of the object, as far as they are known.
    pub(crate) object: VmiKey,
    /// One sentence.
    pub(crate) message: String,
}

/// What the directory says as a whole.
pub(crate) struct Directory {
    kinds: &'static Kinds,
    files: BTreeMap<String, FileState>,
    /// Grows with each scan that found something else than the one before.
    revision: u64,
}

impl Directory {
    /// A directory that was not read yet, with objects of these kinds.
    pub(crate) fn new(kinds: &'static Kinds) -> Self {
        Self {
            kinds,
            files: BTreeMap::new(),
            revision: 0,
        }
    }

    /// The same without what was read, for when a scan may not have come to its end.
    pub(crate) fn unread(&self) -> Self {
        Self {
            revision: self.revision + 1,
            ..Self::new(self.kinds)
        }
    }

    /// Reads the directory again. Complaints are made once for each content of a file.
    ///
    /// # Errors
    /// The directory cannot be listed; everything stays as it was.
    pub(crate) fn scan(&mut self, path: &Path) -> io::Result<Vec<Complaint>> {
        let mut names = BTreeSet::new();
        let mut complaints = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let name = entry?.file_name();
            match name.to_str() {
                Some(name) if is_manifest(name) => names.insert(name.to_owned()),
                _ => continue,
            };
        }
        while names.len() > MAX_FILES {
            if let Some(file) = names.pop_last() {
                let message =
                    format!("is left out: the directory holds more than {MAX_FILES} files");
                complaints.push(Complaint {
                    file,
                    object: VmiKey::default(),
                    message,
                });
            }
        }
        let is_same = self.files.keys().eq(&names);
        self.files.retain(|name, _| names.contains(name));
        let before = self.seen();
        for name in names {
            let state = self.files.entry(name.clone()).or_default();
            match read(&path.join(&name)) {
                Ok(bytes) => complaints.extend(state.take(self.kinds, &name, &bytes)),
                // It went between listing and reading; the next scan will not list it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => complaints.extend(state.refuse(&name, &error.to_string())),
            }
        }
        if !is_same || self.seen() != before {
            self.revision += 1;
        }
        Ok(complaints)
    }

    /// What each file held when it was last looked at.
    fn seen(&self) -> Vec<Vec<u8>> {
        self.files
            .values()
            .map(|state| state.seen.clone())
            .collect()
    }

    /// The same number means that no file was added, removed or changed between two calls.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Every VMI that is asked for, and complaints about those asked for twice (the file that comes
    /// first in the alphabet wins).
    pub(crate) fn vmis(&self) -> (BTreeMap<VmiKey, DesiredVmi>, Vec<Complaint>) {
        let (mut desired_objects, mut complaints) =
            (BTreeMap::<VmiKey, DesiredVmi>::new(), Vec::new());
        for desired in self
            .files
            .values()
            .filter_map(|state| state.desired_objects.as_ref())
            .flat_map(|desired_objects| &desired_objects.vmis)
        {
            let key = key_of(&desired.object);
            match desired_objects.get(&key) {
                Some(first) => {
                    let message = format!(
                        "{}/{} is left out: {} has it already",
                        key.0, key.1, first.file
                    );
                    complaints.push(Complaint {
                        file: desired.file.clone(),
                        object: key,
                        message,
                    });
                }
                None => {
                    desired_objects.insert(key, desired.clone());
                }
            }
        }
        (desired_objects, complaints)
    }

    /// Every other object that is asked for, and those asked for twice: which, by which file, and what to say.
    pub(crate) fn others(&self) -> (BTreeMap<ObjectId, OtherObject>, Vec<OtherComplaint>) {
        let (mut desired_objects, mut complaints) =
            (BTreeMap::<ObjectId, OtherObject>::new(), Vec::new());
        let files = self.files.values();
        let asked = files.filter_map(|state| state.desired_objects.as_ref());
        for desired in asked.flat_map(|desired_objects| &desired_objects.others) {
            let id = desired.object.id();
            if let Some(first) = desired_objects.get(&id) {
                let first = &first.file;
                let message = format!(
                    "{} {:?} is left out: {first} has it already",
                    id.kind, id.name
                );
                complaints.push((id, desired.file.clone(), message));
            } else {
                desired_objects.insert(id, desired.clone());
            }
        }
        (desired_objects, complaints)
    }

    /// Whether what this file wants is not known: it is there and could never be read.
    pub(crate) fn is_unknown(&self, file: &str) -> bool {
        self.files
            .get(file)
            .is_some_and(|state| state.desired_objects.is_none())
    }
}

impl FileState {
    fn take(&mut self, kinds: &Kinds, file: &str, bytes: &[u8]) -> Vec<Complaint> {
        let seen = Sha256::digest(bytes).to_vec();
        if seen == self.seen {
            return Vec::new();
        }
        self.seen = seen;
        match parse(kinds, file, bytes) {
            Ok(desired_objects) => {
                self.desired_objects = Some(desired_objects);
                Vec::new()
            }
            Err(complaints) => complaints,
        }
    }

    fn refuse(&mut self, file: &str, why: &str) -> Vec<Complaint> {
        let seen = why.as_bytes().to_vec();
        if seen == self.seen {
            return Vec::new();
        }
        self.seen = seen;
        vec![Complaint {
            file: file.to_owned(),
            object: VmiKey::default(),
            message: format!("cannot be read: {why}"),
        }]
    }
}

/// Editors' and other hidden files are not manifests.
fn is_manifest(name: &str) -> bool {
    let hidden = name.starts_with(['.', '#']) || name.ends_with('~');
    !hidden
        && [".yaml", ".yml", ".json"]
            .iter()
            .any(|ending| name.ends_with(ending))
}

/// The bytes of a regular file of bounded size. Never waits for a pipe or device.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_MANIFEST_BYTES)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    file.take(limit).read_to_end(&mut bytes)?;
    if bytes.is_empty() {
        // Somebody is about to write it, or a power cut took what had been written.
        return Err(io::Error::other(
            "it is empty; remove the file to end its guests",
        ));
    }
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(io::Error::other(format!(
            "it is larger than {MAX_MANIFEST_BYTES} bytes"
        )));
    }
    Ok(bytes)
}

/// All objects of a file, or everything that is wrong with it. One bad document spoils the file:
/// what an operator saves is one change, and half of it may be worse than none.
fn parse(kinds: &Kinds, file: &str, bytes: &[u8]) -> Result<DesiredObjects, Vec<Complaint>> {
    let complain = |object: VmiKey, message: String| Complaint {
        file: file.to_owned(),
        object,
        message,
    };
    let documents = manifest::parse(bytes)
        .map_err(|error| vec![complain(VmiKey::default(), error.to_string())])?;
    let (mut desired_objects, mut complaints) = (DesiredObjects::default(), Vec::new());
    for document in documents {
        let named = (document.name.namespace, document.name.name);
        if let Some(value) = document.other {
            match desired_object(kinds, file, value) {
                Ok(desired) => desired_objects.others.push(desired),
                Err(message) => {
                    let message = format!("line {}: {message}", document.line);
                    complaints.push(complain(named, message));
                }
            }
            continue;
        }
        match document.object.map(|object| object.kind) {
            Ok(Some(object::Kind::VirtualMachineInstance(vmi))) => match desired_vmi(file, vmi) {
                Ok(desired) => desired_objects.vmis.push(desired),
                Err(message) => complaints.push(complain(
                    named,
                    format!("line {}: {message}", document.line),
                )),
            },
            Ok(_) => {
                let message = format!(
                    "line {}: objects of this kind are written by the agent alone",
                    document.line
                );
                complaints.push(complain(named, message));
            }
            Err(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                complaints.push(complain(
                    named,
                    format!("line {}: {}", document.line, errors.join("; ")),
                ));
            }
        }
    }
    if complaints.is_empty() {
        Ok(desired_objects)
    } else {
        Err(complaints)
    }
}

/// An object without a guest. What admission says of it comes when it is applied.
fn desired_object(
    kinds: &Kinds,
    file: &str,
    value: serde_json::Value,
) -> Result<OtherObject, String> {
    let (kind, mut object) = kinds.read(value).map_err(|error| error.to_string())?;
    if !matches!(kind.writer, Writer::Objects(_)) {
        let text = format!("a {} is written by the agent alone", kind.kind);
        return Err(text);
    }
    let metadata = &mut object.metadata;
    if metadata.name.is_empty() {
        return Err(String::from(NAMELESS));
    }
    if kind.scope == Scope::Namespaced && metadata.namespace.is_empty() {
        metadata.namespace = String::from("default");
    }
    metadata.generate_name.clear();
    Ok(OtherObject {
        file: file.to_owned(),
        object,
    })
}

fn desired_vmi(file: &str, mut object: VirtualMachineInstance) -> Result<DesiredVmi, String> {
    let metadata = object.metadata.get_or_insert_default();
    if metadata.name.is_empty() {
        return Err(String::from(NAMELESS));
    }
    if metadata.namespace.is_empty() {
        metadata.namespace = String::from("default");
    }
    metadata.generate_name.clear();
    object.status = None;
    let digest = hex(&Sha256::digest(object.encode_to_vec()));
    Ok(DesiredVmi {
        file: file.to_owned(),
        digest,
        object,
    })
}

pub(crate) fn key_of(object: &VirtualMachineInstance) -> VmiKey {
    object
        .metadata
        .as_ref()
        .map(|metadata| (metadata.namespace.clone(), metadata.name.clone()))
        .unwrap_or_default()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// An object that a file asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OtherObject {
    /// Name of the file.
    pub(crate) file: String,
    /// The object as the file has it.
    pub(crate) object: Object,
}

#[cfg(test)]
mod tests;
