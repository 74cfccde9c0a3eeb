//! The bill of materials of what is packaged: every crate that the programs link, as CycloneDX 1.5 in JSON.
//!
//! It is made of `cargo metadata` and `Cargo.lock` alone, and says nothing of time or machine: the same sources give the
//! same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context;
use cargo_metadata::{
    DependencyKind, Metadata, MetadataCommand, Package, PackageId, Resolve, TargetKind,
};
use serde_json::{Value, json};

/// The document of the programs of the crates `shipped`.
///
/// # Errors
/// When cargo does not tell, or `Cargo.lock` cannot be read.
pub fn document(root: &Path, shipped: &[&str]) -> anyhow::Result<String> {
    let mut command = MetadataCommand::new();
    command.manifest_path(root.join("Cargo.toml"));
    command.other_options(vec![
        "--filter-platform=x86_64-unknown-linux-gnu".to_owned(),
        "--locked".to_owned(),
    ]);
    let metadata = command.exec().context("cargo metadata")?;
    let lock = root.join("Cargo.lock");
    let lock = fs::read_to_string(&lock).with_context(|| lock.display().to_string())?;
    let value = describe(&metadata, shipped, &checksums(&lock))?;
    Ok(format!("{value:#}\n"))
}

fn describe(
    metadata: &Metadata,
    shipped: &[&str],
    checksums: &BTreeMap<(String, String), String>,
) -> anyhow::Result<Value> {
    let resolve = metadata.resolve.as_ref();
    let resolve = resolve.context("cargo metadata resolved nothing")?;
    let programs: Vec<&PackageId> = metadata
        .workspace_packages()
        .into_iter()
        .filter(|package| shipped.contains(&package.name.as_str()))
        .map(|package| &package.id)
        .collect();
    anyhow::ensure!(
        programs.len() == shipped.len(),
        "not all of {shipped:?} are in the workspace"
    );
    let linked = linked(metadata, resolve, &programs);
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for (reference, (package, needs)) in &linked {
        components.push(component(package, reference, checksums));
        dependencies.push(json!({"ref": reference, "dependsOn": needs}));
    }
    let version = linked
        .values()
        .find(|(package, _)| programs.contains(&&package.id))
        .map(|(package, _)| package.version.to_string());
    let product = "pkg:generic/kvmlet";
    let needs: BTreeSet<String> = programs.iter().map(|id| purl(&metadata[id])).collect();
    dependencies.push(json!({"ref": product, "dependsOn": needs}));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": product,
                "name": "kvmlet",
                "version": version,
            },
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// What programs link, by reference, with the references of what each needs. Build scripts and procedural macros stay in
/// the compiler, tests at home.
fn linked<'m>(
    metadata: &'m Metadata,
    resolve: &Resolve,
    programs: &[&'m PackageId],
) -> BTreeMap<String, (&'m Package, BTreeSet<String>)> {
    let nodes: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let is_macro = |id: &PackageId| {
        let mut targets = metadata[id].targets.iter();
        targets.any(|target| target.kind.contains(&TargetKind::ProcMacro))
    };
    let mut found = BTreeMap::new();
    let mut open: Vec<PackageId> = programs.iter().map(|id| (*id).clone()).collect();
    while let Some(id) = open.pop() {
        let package = &metadata[&id];
        let reference = purl(package);
        if found.contains_key(&reference) {
            continue;
        }
        let needs: Vec<PackageId> = nodes
            .get(&id)
            .into_iter()
            .flat_map(|node| &node.deps)
            .filter(|dependency| {
                let mut kinds = dependency.dep_kinds.iter();
                kinds.any(|kind| kind.kind == DependencyKind::Normal) && !is_macro(&dependency.pkg)
            })
            .map(|dependency| dependency.pkg.clone())
            .collect();
        let references = needs.iter().map(|id| purl(&metadata[id])).collect();
        found.insert(reference, (package, references));
        open.extend(needs);
    }
    found
}

fn component(
    package: &Package,
    reference: &str,
    checksums: &BTreeMap<(String, String), String>,
) -> Value {
    let key = (package.name.to_string(), package.version.to_string());
    let mut component = json!({
        "type": "library",
        "bom-ref": reference,
        "name": key.0,
        "version": key.1,
        "purl": reference,
    });
    if let Some(license) = &package.license {
        // The older way to write a choice.
        let expression = license.replace('/', " OR ");
        component["licenses"] = json!([{"expression": expression}]);
    }
    if let Some(checksum) = checksums.get(&key) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

/// The address of a package, as package-url has it.
fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

/// The checksums of a `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |block: &str, name: &str| {
        let prefix = format!("{name} = \"");
        let mut lines = block.lines();
        let value = lines.find_map(|line| line.strip_prefix(&prefix))?;
        value.strip_suffix('"').map(str::to_owned)
    };
    let blocks = lock.split("[[package]]").skip(1);
    blocks
        .filter_map(|block| {
            let key = (field(block, "name")?, field(block, "version")?);
            Some((key, field(block, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_names_what_the_programs_link_and_nothing_that_only_builds_or_tests_them() {
        let root = crate::workspace::root().expect("here");
        let text = document(&root, &crate::package::SHIPPED).expect("is made");
        let bill: Value = serde_json::from_str(&text).expect("JSON");
        let components = bill["components"].as_array().expect("a list");
        let names: BTreeSet<&str> = components
            .iter()
            .filter_map(|component| component["name"].as_str())
            .collect();
        for name in ["tokio", "rustls", "kvm-ioctls", "agent-host", "vmm-monitor"] {
            assert!(names.contains(name), "{name} is missing");
        }
        for name in [
            "proptest",
            "insta",
            "prost-build",
            "serde_derive",
            "xtask",
            "integration",
        ] {
            assert!(!names.contains(name), "{name} is not linked");
        }
        let references: BTreeSet<&str> = components
            .iter()
            .filter_map(|component| component["bom-ref"].as_str())
            .collect();
        assert_eq!(references.len(), components.len(), "each once");
        for component in components {
            let is_ours = component["version"] == env!("CARGO_PKG_VERSION");
            let is_known = component["hashes"][0]["content"].is_string();
            assert!(is_ours || is_known, "{component}");
            assert!(
                component["licenses"][0]["expression"].is_string(),
                "{component}"
            );
        }
        for needs in bill["dependencies"].as_array().expect("a list") {
            let needs = needs["dependsOn"].as_array().expect("a list");
            assert!(
                needs
                    .iter()
                    .filter_map(Value::as_str)
                    .all(|need| references.contains(need))
            );
        }
        assert_eq!(
            text,
            document(&root, &crate::package::SHIPPED).expect("again")
        );
    }
}
