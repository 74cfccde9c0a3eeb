//! Which namespaces may use which files of the host: records of the ledger, beside the grants of the configuration.
//!
//! The configuration says what a namespace may use. Two things it cannot say: that a disk which
//! several namespaces could name belongs to the one that has written to it, and which namespaces used
//! what before releases asked for grants at all. Both are remembered in the ledger, and outlive VMIs.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use agent_domain::{
    Admitted, Boot, ContainerImage, DiskSource, FieldError, ImageLocation, KernelBoot, PathRecord,
    PathRecords, PathRules, Rule, Vmi,
};
use agent_host::KnownPaths;
use agent_sources::{ApiError, Kind};
use agent_store::{Ledger, StoreError, Transaction};
use anyhow::Context;
use proto_node::object::VMI_KIND;
use proto_node::vmi::VirtualMachineInstance;
use tracing::{info, warn};

use crate::error::WriteError;
use crate::object;

/// The namespace that files go to which no VMI named when paths were first remembered.
const LEFT_OVER: &str = "default";

/// Of a directory with more entries the rest is not looked at.
const MAX_ENTRIES: usize = 65_536;

/// Disks beside its own directory that are remembered of one namespace.
const MAX_DISKS: usize = 4096;

/// Everything that is remembered. A ledger of a release that remembered nothing is brought up to
/// date first.
pub(crate) fn load(ledger: &Ledger, rules: &PathRules) -> anyhow::Result<KnownPaths> {
    if ledger.lacks_path_records()? {
        let records = records_of_the_past(ledger, rules)?;
        ledger.write::<_, StoreError, _>(|transaction| {
            for (path, record) in &records {
                if let Some(path) = path.to_str() {
                    transaction.put_path(path, record)?;
                }
            }
            transaction.note_path_records()
        })?;
        info!(
            paths = records.len(),
            "files of the host that VMIs name stay with their namespaces, and others below the \
             directories of `paths` with namespace {LEFT_OVER:?}"
        );
    }
    let known = KnownPaths::default();
    let version = ledger.version()?;
    for (path, record) in ledger.path_records()? {
        known.insert(path, record, version);
    }
    Ok(known)
}

/// What VMIs of earlier releases name is theirs, and what else is there is the default namespace's.
fn records_of_the_past(ledger: &Ledger, rules: &PathRules) -> anyhow::Result<PathRecords> {
    let (objects, _) = ledger.objects(Kind::VirtualMachineInstance.as_str())?;
    let mut records = PathRecords::new();
    for (key, row) in objects {
        let vmi = object::vmi(&row).map_err(anyhow::Error::new)?;
        for (path, exclusive) in named(&vmi, rules) {
            let record = records.entry(path).or_insert_with(|| PathRecord {
                namespaces: BTreeSet::new(),
                exclusive: false,
                since: 0,
            });
            record.namespaces.insert(key.namespace.clone());
            record.exclusive |= exclusive;
        }
    }
    let mut all = PathRecords::new();
    for root in rules.roots() {
        add_left_over(root, rules, &records, &mut all)?;
    }
    all.extend(records);
    Ok(all)
}

/// Hands what lies in a directory of `paths`, or in one that such a directory lies in, to the default
/// namespace, without what is `named` by VMIs.
fn add_left_over(
    dir: &Path,
    rules: &PathRules,
    named: &PathRecords,
    all: &mut PathRecords,
) -> anyhow::Result<()> {
    for entry in entries(dir)? {
        if entry.file_name().is_some_and(|name| name == LEFT_OVER) && entry.is_dir() {
            // Its own already.
        } else if rules.contains_root(&entry) {
            add_left_over(&entry, rules, named, all)?;
        } else if named
            .iter()
            .any(|(path, record)| is_within_own(path, &entry, record))
        {
            // The directory of a namespace stays its own, but not what nobody of it has named.
            all.extend(entries(&entry)?.into_iter().map(default_record));
        } else {
            all.extend([default_record(entry)]);
        }
    }
    Ok(())
}

/// Whether a path lies in a directory that bears the name of one of its namespaces.
fn is_within_own(path: &Path, dir: &Path, record: &PathRecord) -> bool {
    let name = dir.file_name().and_then(|name| name.to_str());
    path != dir
        && path.starts_with(dir)
        && name.is_some_and(|name| record.namespaces.contains(name))
}

fn default_record(path: PathBuf) -> (PathBuf, PathRecord) {
    let record = PathRecord {
        namespaces: BTreeSet::from([LEFT_OVER.to_owned()]),
        exclusive: false,
        since: 0,
    };
    (path, record)
}

/// What is in a directory. Nothing when it is none.
fn entries(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let read = match fs::read_dir(dir) {
        Ok(read) => read,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error).with_context(|| unreadable(dir)),
    };
    let mut found = Vec::new();
    for entry in read {
        let path = entry.with_context(|| unreadable(dir))?.path();
        if found.len() >= MAX_ENTRIES {
            warn!(
                directory = %dir.display(),
                "of its files, those after the first {MAX_ENTRIES} are granted to nobody"
            );
            break;
        }
        found.push(path);
    }
    Ok(found)
}

fn unreadable(dir: &Path) -> String {
    format!("{}: whose its files are cannot be found out", dir.display())
}

/// Paths of the host that a stored VMI names, and whether its guest writes there.
fn named(object: &VirtualMachineInstance, rules: &PathRules) -> Vec<(PathBuf, bool)> {
    let Ok(Admitted { vmi, .. }) = Vmi::restore(object.clone()) else {
        return named_as_written(object);
    };
    let disks = vmi.disks.iter().flat_map(|disk| match &disk.source {
        DiskSource::Host { path, .. } => vec![(path.clone(), !disk.read_only)],
        DiskSource::Container(container) => match &container.image {
            ContainerImage::Layout(ImageLocation::OciLayout { path, .. }) => {
                let paths = layout_paths(path, rules).into_iter();
                paths.map(|path| (path, false)).collect()
            }
            ContainerImage::Archive(archive) => vec![(archive.path.clone(), false)],
            ContainerImage::Directory(path) => vec![(path.clone(), false)],
            ContainerImage::Layout(_) | ContainerImage::Registry(_) => Vec::new(),
        },
        DiskSource::Empty { .. } | DiskSource::CloudInit(_) | DiskSource::Data(_) => Vec::new(),
    });
    let image = match &vmi.boot {
        Boot::Kernel(kernel) => image_paths(kernel, rules),
        Boot::Firmware(_) => Vec::new(),
    };
    let image = image.into_iter().map(|path| (path, false));
    disks.chain(image).collect()
}

/// The directory of an image. Where that is a directory of `paths` itself, its files too: the rest of
/// what is in it is no part of the image.
fn image_paths(kernel: &KernelBoot, rules: &PathRules) -> Vec<PathBuf> {
    match &kernel.image {
        ImageLocation::Directory(path) => {
            let files = [Some(&kernel.kernel_path), kernel.initrd_path.as_ref()];
            with_files(path, files.into_iter().flatten(), rules)
        }
        ImageLocation::OciLayout { path, .. } => layout_paths(path, rules),
    }
}

/// What belongs to an image layout.
fn layout_paths(path: &Path, rules: &PathRules) -> Vec<PathBuf> {
    let files = ["index.json", "blobs"].map(PathBuf::from);
    with_files(path, files.iter(), rules)
}

fn with_files<'a>(
    path: &Path,
    files: impl Iterator<Item = &'a PathBuf>,
    rules: &PathRules,
) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    if rules.contains_root(path) {
        paths.extend(files.map(|file| path.join(file)));
    }
    paths.push(path.to_owned());
    paths
}

/// The same of an object that this release cannot read as a whole.
fn named_as_written(object: &VirtualMachineInstance) -> Vec<(PathBuf, bool)> {
    let Some(spec) = &object.spec else {
        return Vec::new();
    };
    let disks = spec.volumes.iter().filter_map(|volume| {
        let disk = volume.host_disk.as_ref()?;
        plain(&disk.path).map(|path| (path, true))
    });
    let container = spec
        .domain
        .as_ref()
        .and_then(|domain| domain.firmware.as_ref()?.kernel_boot.as_ref())
        .and_then(|boot| boot.container.as_ref());
    let image = container.and_then(|container| {
        let (_, rest) = container.image.split_once(':')?;
        plain(rest.split(':').next()?).map(|path| (path, false))
    });
    disks.chain(image).collect()
}

fn plain(text: &str) -> Option<PathBuf> {
    let path: PathBuf = Path::new(text).components().collect();
    let is_plain = path.is_absolute()
        && path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    is_plain.then_some(path)
}

/// Disks that a new VMI writes to.
pub(crate) fn written(vmi: &Vmi) -> Vec<PathBuf> {
    let disks = vmi.disks.iter().filter(|disk| !disk.read_only);
    disks
        .filter_map(|disk| match &disk.source {
            DiskSource::Host { path, .. } => Some(path.clone()),
            DiskSource::Empty { .. }
            | DiskSource::CloudInit(_)
            | DiskSource::Data(_)
            | DiskSource::Container(_) => None,
        })
        .collect()
}

/// Whose the disks of a new VMI are to be, as far as others could name them, too.
pub(crate) fn judge_disks(
    transaction: &Transaction<'_>,
    rules: &PathRules,
    (namespace, name): (&str, &str),
    written: &[PathBuf],
) -> Result<PathRecords, WriteError> {
    let mut records = PathRecords::new();
    for path in written {
        let Some(text) = path.to_str() else {
            continue;
        };
        let before = transaction.path_record(text)?;
        if !rules.is_contested(namespace, path, before.as_ref()) {
            continue;
        }
        let is_its_own = before
            .as_ref()
            .is_some_and(|record| record.exclusive && record.namespaces.contains(namespace));
        let record = rules.record_for(namespace, path, before, transaction.next_version());
        let record = record.map_err(|refusal| {
            // Accepted a moment ago, after this one had been judged.
            let message = format!("{text:?} is {}", refusal.message(namespace));
            refused(name, message, refusal.way_out(path, &rules.setting))
        })?;
        if !is_its_own && transaction.paths_of(namespace)? + records.len() >= MAX_DISKS {
            let message = format!(
                "{text:?} would be one of more than {MAX_DISKS} disks of namespace {namespace:?} outside of its \
                 own directories"
            );
            let way_out = "use its own directories".to_owned();
            return Err(refused(name, message, way_out));
        }
        records.insert(path.clone(), record);
    }
    Ok(records)
}

/// Remembers whose the disks of a new VMI are; it counts once the transaction is committed. Who is refused after a change
/// takes along what others have in the same commit, so all is judged before.
pub(crate) fn put_records(
    transaction: &mut Transaction<'_>,
    records: &PathRecords,
) -> Result<(), WriteError> {
    for (path, record) in records {
        if let Some(text) = path.to_str() {
            transaction.put_path(text, record)?;
        }
    }
    Ok(())
}

fn refused(name: &str, message: String, way_out: String) -> WriteError {
    let error = FieldError::new("spec.volumes", Rule::Forbidden, message).fix(way_out);
    WriteError::Refused(ApiError::Invalid {
        kind: VMI_KIND,
        name: name.to_owned(),
        errors: vec![error],
    })
}

#[cfg(test)]
mod tests;
