//! The packages of a workspace and who imports whom, as cargo sees it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use anyhow::Context;
use cargo_metadata::{CargoOpt, DependencyKind, MetadataCommand};

/// Packages by name. Two versions of one package count as one here.
pub(super) struct Packages {
    members: BTreeSet<String>,
    /// What a member's own manifest names, but for its tests.
    named: BTreeMap<String, BTreeSet<String>>,
    /// What a package links at run time; build scripts and procedural macros stay in the compiler.
    linked: BTreeMap<String, BTreeSet<String>>,
}

impl Packages {
    /// Asks cargo about the workspace at `root`.
    pub(super) fn of_workspace(root: &Path) -> anyhow::Result<Self> {
        let mut command = MetadataCommand::new();
        command
            .manifest_path(root.join("Cargo.toml"))
            .features(CargoOpt::AllFeatures);
        command.other_options(vec![
            "--filter-platform=x86_64-unknown-linux-gnu".to_owned(),
        ]);
        let metadata = command.exec().context("cargo metadata")?;
        let resolve = metadata
            .resolve
            .as_ref()
            .context("cargo metadata resolved nothing")?;
        let is_macro = |id: &cargo_metadata::PackageId| {
            metadata[id]
                .targets
                .iter()
                .any(|target| target.kind.contains(&cargo_metadata::TargetKind::ProcMacro))
        };
        let mut packages = Self {
            members: metadata
                .workspace_packages()
                .iter()
                .map(|package| package.name.to_string())
                .collect(),
            named: BTreeMap::new(),
            linked: BTreeMap::new(),
        };
        for package in metadata.workspace_packages() {
            let named = package
                .dependencies
                .iter()
                // Tests of a crate may look into its neighbours; what ships may not.
                .filter(|dependency| dependency.kind != DependencyKind::Development)
                .map(|dependency| dependency.name.clone())
                .collect();
            packages.named.insert(package.name.to_string(), named);
        }
        for node in &resolve.nodes {
            let linked = packages
                .linked
                .entry(metadata[&node.id].name.to_string())
                .or_default();
            for dependency in &node.deps {
                let at_run_time = dependency
                    .dep_kinds
                    .iter()
                    .any(|kind| kind.kind == DependencyKind::Normal);
                if at_run_time && !is_macro(&dependency.pkg) {
                    linked.insert(metadata[&dependency.pkg].name.to_string());
                }
            }
        }
        Ok(packages)
    }

    /// The crates of the workspace.
    pub(super) fn members(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(String::as_str)
    }

    pub(super) fn is_member(&self, name: &str) -> bool {
        self.members.contains(name)
    }

    /// What the manifest of `member` names.
    pub(super) fn imports(&self, member: &str) -> impl Iterator<Item = &str> {
        self.named
            .get(member)
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    /// Everything linked into `name`, itself included.
    pub(super) fn reach(&self, name: &str) -> BTreeSet<&str> {
        self.walk(name).into_keys().collect()
    }

    /// How `from` comes to link `to`, shortest way first, if it does.
    pub(super) fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let came_from = self.walk(from);
        let mut at = *came_from.get_key_value(to)?.0;
        let mut path = vec![at.to_owned()];
        while let Some(before) = came_from.get(at).copied().flatten() {
            path.push(before.to_owned());
            at = before;
        }
        path.reverse();
        Some(path)
    }

    fn walk(&self, from: &str) -> BTreeMap<&str, Option<&str>> {
        let mut came_from = BTreeMap::new();
        let mut next = VecDeque::new();
        if let Some((start, _)) = self.linked.get_key_value(from) {
            came_from.insert(start.as_str(), None);
            next.push_back(start.as_str());
        }
        while let Some(at) = next.pop_front() {
            for linked in self.linked.get(at).into_iter().flatten() {
                if !came_from.contains_key(linked.as_str()) {
                    came_from.insert(linked, Some(at));
                    next.push_back(linked);
                }
            }
        }
        came_from
    }
}

#[cfg(test)]
impl Packages {
    /// As if the manifest of `importer` named `imported`.
    pub(super) fn add_import(&mut self, importer: &str, imported: &str) {
        for edges in [&mut self.named, &mut self.linked] {
            edges
                .entry(importer.to_owned())
                .or_default()
                .insert(imported.to_owned());
        }
        self.linked.entry(imported.to_owned()).or_default();
    }

    /// As if the workspace had one crate more.
    pub(super) fn add_member(&mut self, name: &str) {
        self.members.insert(name.to_owned());
    }
}
