//! `cargo xtask package`: the Debian package of agent, VMM and command line.
//!
//! What is in it says `agent/daemon/Cargo.toml` (`package.metadata.deb`); cargo-deb makes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use integration::process::{self, cargo};
use integration::{artifacts, cache, skip};

use crate::progress::step;
use crate::sbom;

/// The version that is installed where there is none.
const CARGO_DEB: &str = "3.8.0";
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Crates whose programs are in the package.
pub const SHIPPED: [&str; 4] = [
    "agent-daemon",
    "agent-dhcp-server",
    "agent-cli",
    "vmm-monitor",
];

/// Options of `cargo xtask package`.
#[derive(clap::Args)]
pub struct PackageOptions {
    /// Debian's part of the version: the package is kvmlet 0.1.0-REVISION.
    #[arg(long, default_value_t = 1)]
    revision: u32,
    /// Where to put it: a directory, or a file.
    #[arg(long, value_name = "PATH", default_value = ".")]
    output: PathBuf,
}

/// Builds the programs as they are shipped, and the package.
///
/// # Errors
/// When something cannot be built.
pub fn run(root: &Path, options: &PackageOptions) -> anyhow::Result<()> {
    let cargo_deb = step("cargo-deb", || cargo_deb(root))?;
    step("build", || build(root))?;
    step("guest", || boot(root))?;
    let output = std::path::absolute(&options.output)?;
    step("package", || {
        make(root, &cargo_deb, "dist", options.revision, &output)
    })?;
    let made = built()?;
    let beside = if output.is_dir() {
        output.join(BILL)
    } else {
        output.with_extension("cdx.json")
    };
    fs::copy(made.join("generated").join(BILL), &beside)
        .with_context(|| beside.display().to_string())?;
    Ok(())
}

/// Builds the programs as they are shipped.
///
/// # Errors
/// When the build fails.
pub fn build(root: &Path) -> anyhow::Result<()> {
    let mut build = cargo(root);
    build.args(["build", "--profile", "dist", "--bins"]);
    build.args(SHIPPED.iter().flat_map(|crate_name| ["-p", crate_name]));
    process::stream(&mut build)
}

/// What the test guest writes when all its tests have passed.
const PASSED: &str = "TESTGUEST done passed=";
const NONE_FAILED: &str = " failed=0 ";

/// Boots a guest with the VMM as it is shipped. Its profile is the only one with link-time optimisation, which has broken it
/// before, and the tests use another.
///
/// # Errors
/// When the guest does not run, or fails one of its tests.
pub fn boot(root: &Path) -> anyhow::Result<()> {
    if let Some(reason) = skip::without_kvm() {
        println!("    no guest is booted: {reason}");
        return Ok(());
    }
    crate::build::only(root, &["vmm-front"])?;
    crate::build::testguest(root)?;
    let disk = tempfile::NamedTempFile::new_in(artifacts::directory()?)?;
    disk.as_file().set_len(1 << 20)?;
    let mut front = Command::new(artifacts::program("vmm-front")?);
    front
        .args(["run", "--vmm"])
        .arg(built()?.join("kvmlet-vmm"));
    front
        .arg("--kernel")
        .arg(artifacts::program("testguest")?)
        .args(["--memory", "64M", "--cmdline", "tests=blk"])
        .arg("--disk")
        // With the VMM's own transfers, which ask the disk for its alignment.
        .arg(format!("{},cache=none", disk.path().display()));
    let ended = front.stdin(Stdio::null()).output()?;
    let console = String::from_utf8_lossy(&ended.stdout);
    let mut lines = console.lines();
    let passed = lines.any(|line| line.starts_with(PASSED) && line.contains(NONE_FAILED));
    ensure!(
        ended.status.success() && passed,
        "the VMM as it is shipped does not run a guest: {}\n{console}{}",
        ended.status,
        String::from_utf8_lossy(&ended.stderr)
    );
    Ok(())
}

/// The directory of the programs as they are shipped.
///
/// # Errors
/// When the running program's own path is unknown.
pub fn built() -> anyhow::Result<PathBuf> {
    Ok(artifacts::directory()?.with_file_name("dist"))
}

/// Two packages of the programs that tests use, of which the second is newer. Without cargo-deb there are
/// none, and the test says so.
///
/// # Errors
/// When they cannot be made.
pub fn for_tests(root: &Path) -> anyhow::Result<()> {
    let cargo_deb = cargo_deb(root);
    if let Err(error) = &cargo_deb {
        eprintln!("    no packages: {error:#}");
    }
    for revision in [1, 2] {
        let output = artifacts::directory()?.join(integration::package::file(revision));
        if output.exists() {
            fs::remove_file(&output).with_context(|| output.display().to_string())?;
        }
        let Ok(cargo_deb) = &cargo_deb else {
            continue;
        };
        make(root, cargo_deb, &artifacts::profile()?, revision, &output)?;
    }
    Ok(())
}

/// The bill of materials, in the package and beside it.
const BILL: &str = "kvmlet.cdx.json";

fn make(
    root: &Path,
    cargo_deb: &Path,
    profile: &str,
    revision: u32,
    output: &Path,
) -> anyhow::Result<()> {
    generate(root, profile)?;
    let revision = revision.to_string();
    let mut command = Command::new(cargo_deb);
    command
        .current_dir(root)
        .args(["--no-build", "--strip", "--package", "agent-daemon"])
        .args(["--target", TARGET, "--profile", profile])
        .args(["--deb-revision", &revision, "--output"])
        .arg(output);
    if profile != "dist" {
        // An emulated node takes half a minute to unpack xz.
        command.args(["--fast", "--compress-type", "gz"]);
    }
    process::stream(&mut command)
}

/// Completions and manual pages, which the programs write of themselves, and the bill of materials.
fn generate(root: &Path, profile: &str) -> anyhow::Result<()> {
    let programs = artifacts::directory()?.with_file_name(profile);
    let to = programs.join("generated");
    let manuals = to.join("man1");
    if to.exists() {
        // Pages of verbs that are no more.
        fs::remove_dir_all(&to).with_context(|| to.display().to_string())?;
    }
    fs::create_dir_all(&manuals).with_context(|| manuals.display().to_string())?;
    let kvmctl = programs.join("kvmctl");
    for shell in ["bash", "zsh", "fish"] {
        let script = process::output(Command::new(&kvmctl).args(["completion", shell]))?;
        let path = to.join(format!("kvmctl.{shell}"));
        fs::write(&path, script).with_context(|| path.display().to_string())?;
    }
    process::output(Command::new(&kvmctl).arg("manual-pages").arg(&manuals))?;
    let page = process::output(Command::new(programs.join("kvmlet")).arg("manual-page"))?;
    let path = to.join("kvmlet.8");
    fs::write(&path, page).with_context(|| path.display().to_string())?;
    let path = to.join(BILL);
    fs::write(&path, sbom::document(root, &SHIPPED)?).with_context(|| path.display().to_string())
}

/// cargo-deb, installed beside the images where it is not there.
fn cargo_deb(root: &Path) -> anyhow::Result<PathBuf> {
    let directory = cache::root()
        .join("tools")
        .join(format!("cargo-deb-{CARGO_DEB}"));
    let program = directory.join("bin/cargo-deb");
    if program.is_file() {
        return Ok(program);
    }
    let _held = cache::lock("cargo-deb")?;
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let mut install = cargo(root);
    install
        .args(["install", "cargo-deb", "--version", CARGO_DEB, "--locked"])
        // Packages are compressed by gzip: xz would want a C library built.
        .args(["--no-default-features", "--features", "gzip", "--root"])
        .arg(&directory)
        .arg("--target-dir")
        .arg(directory.join("build"))
        // Our own flags are for what is shipped.
        .env_remove("CARGO_BUILD_TARGET")
        .current_dir("/");
    process::stream(&mut install)?;
    fs::remove_dir_all(directory.join("build")).context("what cargo-deb was built of stays")?;
    Ok(program)
}
