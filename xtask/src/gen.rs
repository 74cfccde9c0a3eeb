//! `cargo xtask gen`: the generated code of `proto/`, checked in so that building needs no generator.
//!
//! The .proto files are compiled by protox, so no `protoc` is needed either. Everything is first made
//! in memory; writing and checking are the same walk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// One crate below `proto/` whose code is generated.
struct Api {
    /// Directory of the crate.
    crate_dir: &'static str,
    /// The files to compile, relative to the crate's `proto` directory.
    protos: &'static [&'static str],
    flavour: Flavour,
}

/// What is made of the files.
enum Flavour {
    /// Messages only, with the default settings of prost-build.
    Messages,
    /// Messages that know their names, gRPC client and server, and the descriptors with comments.
    ServiceAndDescriptors,
}

const APIS: &[Api] = &[
    Api {
        crate_dir: "proto/vmm",
        protos: &["kvmlet/vmm/v1/vmm.proto"],
        flavour: Flavour::Messages,
    },
    Api {
        crate_dir: "proto/node",
        protos: &[
            "kvmlet/node/v1/service.proto",
            "kvmlet/node/v1/maintenance.proto",
            "kvmlet/node/v1/objects.proto",
            "kvmlet/node/v1/machines.proto",
            "kvmlet/node/v1/images.proto",
            "kubevirt/v1/preset.proto",
            "kubevirt/v1/replicaset.proto",
            "kubevirt/v1/virtualmachine.proto",
            "kubevirt/instancetype/v1beta1/instancetype.proto",
            "kvmlet/apps/v1/controllerrevision.proto",
            "kvmlet/core/v1/data.proto",
            "kvmlet/core/v1/namespace.proto",
            "kvmlet/core/v1/node.proto",
            "kvmlet/core/v1/serviceaccount.proto",
            "kvmlet/controlplane/v1/controlplane.proto",
            "kvmlet/hooks/v1/hooks.proto",
        ],
        flavour: Flavour::ServiceAndDescriptors,
    },
];

/// Where the generated files of a crate live.
const GENERATED: &str = "src/generated";

/// Writes the generated code below `root`, or with `check` fails when it differs from what is
/// checked in.
///
/// # Errors
/// When generation fails, or with `check` on drift.
pub fn run(root: &Path, check: bool) -> anyhow::Result<()> {
    let mut drifted = Vec::new();
    for api in APIS {
        let files = generate(root, api)
            .with_context(|| format!("cannot generate the code of {}", api.crate_dir))?;
        let target = root.join(api.crate_dir).join(GENERATED);
        if check {
            drifted.extend(drift(&target, &files)?);
        } else {
            write(&target, &files)?;
        }
    }
    anyhow::ensure!(
        drifted.is_empty(),
        "generated code differs from the .proto files: {}; run `cargo xtask gen` and commit what it writes",
        drifted
            .iter()
            .map(|path| path
                .strip_prefix(root)
                .unwrap_or(path)
                .display()
                .to_string())
            .collect::<Vec<_>>()
            .join(", ")
    );
    Ok(())
}

/// The generated files of one crate by name.
fn generate(root: &Path, api: &Api) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let include = root.join(api.crate_dir).join("proto");
    let mut compiler = protox::Compiler::new([&include])?;
    compiler.include_imports(true).include_source_info(true);
    for proto in api.protos {
        // Miette's display shows the offending line; anyhow would show the first sentence only.
        compiler
            .open_file(proto)
            .map_err(|error| anyhow::anyhow!("{proto}: {error:?}"))?;
    }

    let scratch = scratch_dir(api)?;
    let mut config = prost_build::Config::new();
    config.out_dir(&scratch);
    let result = match api.flavour {
        Flavour::Messages => config.compile_fds(compiler.file_descriptor_set()),
        Flavour::ServiceAndDescriptors => {
            config.enable_type_names().btree_map(["."]);
            // Thousands of objects are pieces of one buffer.
            config.bytes([".kvmlet.node.v1.ListObjectsResponse.items"]);
            tonic_prost_build::configure()
                .out_dir(&scratch)
                .build_transport(false)
                .compile_fds_with_config(compiler.file_descriptor_set(), config)
        }
    };
    let files = result
        .context("code generator failed")
        .and_then(|()| read_all(&scratch));
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    let mut files = files?;
    if matches!(api.flavour, Flavour::ServiceAndDescriptors) {
        // The encoded form keeps the custom options, which prost's own types do not know.
        files.insert(
            "descriptors.bin".to_owned(),
            compiler.encode_file_descriptor_set(),
        );
    }
    Ok(files)
}

/// A new empty directory for the generator, which can write to directories only.
fn scratch_dir(api: &Api) -> anyhow::Result<PathBuf> {
    let name = format!(
        "xtask-gen-{}-{}",
        std::process::id(),
        api.crate_dir.replace('/', "-")
    );
    let scratch = std::env::temp_dir().join(name);
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    Ok(scratch)
}

/// The regular files of a directory by name; none when there is no directory.
fn read_all(dir: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    if !dir.exists() {
        return Ok(files);
    }
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .with_context(|| format!("{} has an odd name", path.display()))?
            .to_owned();
        let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        files.insert(name, content);
    }
    Ok(files)
}

/// The files of `target` that are missing, superfluous or differ.
fn drift(target: &Path, wanted: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<Vec<PathBuf>> {
    let found = read_all(target)?;
    let names = wanted.keys().chain(found.keys());
    let mut drifted: Vec<PathBuf> = names
        .filter(|name| wanted.get(*name) != found.get(*name))
        .map(|name| target.join(name))
        .collect();
    drifted.sort();
    drifted.dedup();
    Ok(drifted)
}

/// Makes `target` hold exactly these files.
fn write(target: &Path, files: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
    fs::create_dir_all(target).with_context(|| format!("cannot make {}", target.display()))?;
    for path in drift(target, files)? {
        let wanted = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| files.get(name));
        match wanted {
            Some(content) => fs::write(&path, content)
                .with_context(|| format!("cannot write {}", path.display()))?,
            None => fs::remove_file(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?,
        }
        println!("gen   {}", path.display());
    }
    Ok(())
}
